"""What `search.py` measures of Headrace: lines of JSON in and out, as peers/lucene/Monitor.java has them."""

import gc
import json
import sys
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import pyarrow as pa

import search_data
from headrace.percolation.index import QueryIndex, percolate_batch
from headrace.percolation.index.batch import Percolated
from headrace.percolation.tree import Query, Term


def held_bytes() -> int:
    """What the process holds in memory that is its own."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Private_Dirty:"):
            return int(line.split()[1]) * 1024
    raise AssertionError


class Ours:
    def __init__(self) -> None:
        self._index = QueryIndex()
        self._ids: dict[str, int] = {}
        # Nothing in these mixes has to be evaluated: a query's tree would be asked for here.
        self._trees: dict[int, Query] = {}
        self._documents: Any = None

    def percolate(self, batch: Any) -> Percolated:
        return percolate_batch(self._index, batch, self._trees.__getitem__, search_data.MAPPING)

    def learn(self, count: int) -> dict[str, Any]:
        """The first documents of a stream, before there is any query but one."""
        self._index.add(0, Term("body", "-"))
        self.percolate(pa.RecordBatch.from_pylist(search_data.documents(count, seed=5)))
        self._index.remove(0)
        return {}

    def add(self, mix: str, first: int, last: int) -> dict[str, Any]:
        seconds = 0.0
        for begin in range(first, last, 1_000):
            made = list(search_data.queries(mix, begin, begin + 1_000))
            started = process_time()
            for number, query in enumerate(made, begin):
                self._ids[str(number)] = number
                self._index.add(number, query)
            seconds += process_time() - started
        return {"added": last - first, "seconds": seconds}

    def documents(self, path: str) -> dict[str, Any]:
        rows = [json.loads(line) for line in Path(path).read_text().splitlines()]
        self._documents = pa.RecordBatch.from_pylist(rows)
        return {"documents": len(rows)}

    def rate(self, count: int, batch: int, seconds: float) -> dict[str, Any]:
        done = pairs = total = 0
        started, taken, is_first = process_time(), 0.0, True
        while taken < seconds:
            for at in range(0, count, batch):
                found = self.percolate(self._documents.slice(at, min(batch, count - at)))
                done += min(batch, count - at)
                if is_first:
                    pairs += len(found.rows)
                    total += int((found.numbers.astype("int64") * ((at + found.rows) % 1000 + 1)).sum())
                taken = process_time() - started
                if taken >= seconds and not is_first:
                    break
            is_first = False
        return {"documents": done, "seconds": taken, "pairs": pairs, "sum": total}

    def first(self, number: int, document: dict[str, Any]) -> dict[str, Any]:
        batch = pa.RecordBatch.from_pylist([document])
        query = Term("body", document["body"].split()[0])
        started = perf_counter()
        self._index.add(number, query)
        while number not in self.percolate(batch).numbers:
            pass
        seconds = perf_counter() - started
        self._index.remove(number)
        return {"seconds": seconds}

    def memory(self) -> dict[str, Any]:
        gc.collect()
        return {"bytes": held_bytes(), "index": self._index.size_bytes}


def main() -> None:
    ours = Ours()
    for line in sys.stdin:
        name, arguments = json.loads(line)
        print(json.dumps(getattr(ours, name)(*arguments)), flush=True)


if __name__ == "__main__":
    main()
