"""Stored queries beside Lucene Monitor: documents a second, memory a query, and how soon a new query matches.

    python benchmarks/search.py [--sizes 1000,10000] [--rounds 3] [--mixes realistic,adversarial] [--keep]

Both sides are one process on one core each, hold the same queries, read the same documents, and take turns. A rate is
documents per second of processor time of the whole process, collector and compiler included, since that is what a core
gives; before it counts, each side has warmed up. Of Lucene Monitor the faster of its presearchers counts. In batches,
ours are Arrow batches of a thousand and its of a hundred; one by one, both have one document at a time. In the first
round of each rate both have to find the same pairs, or the run fails. Figures are kept only with `--keep`: on a quiet
machine. With `--quick` there is less of everything, and the figures mean nothing.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import search_data
from harness import OURS, ROOT, Figure, alternate_all, headline, keep, scratch, verdict
from peers.lucene.monitor import LuceneMonitor
from peers.lucene.queries import as_json

PEER, GOAL = "Lucene Monitor 9.11.1", 1.0
# Those that file prefixes and wildcards by their letters are slower here at every size: `--kinds term,multipass`.
KINDS = "term-plain,multipass-plain"
OUR_BATCH, PEER_BATCH = 1_000, 100
LEARNED = 2_000
# Beyond that only the first kind: the second takes ten minutes of a core to store a million queries.
_MOST_FOR_ALL = 100_000
# Documents of the first round, by size: what each side has to get through at least.
COUNTS = {
    "realistic": {1_000: 2_000, 10_000: 2_000, 100_000: 1_000, 1_000_000: 200},
    "adversarial": {1_000: 500, 10_000: 100, 100_000: 20, 1_000_000: 3},
}
SINGLES = {1_000: 200, 10_000: 100, 100_000: 30, 1_000_000: 5}
Answer = dict[str, Any]


class Ours:
    """Our side, in a process of its own."""

    def __init__(self, core: list[str]) -> None:
        command = [*core, sys.executable, str(ROOT / "benchmarks" / "search_ours.py")]
        self._process = subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, name: str, *arguments: object) -> Answer:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps([name, arguments]) + "\n")
        stdin.flush()
        line = stdout.readline()
        assert line, f"our side ended at {name}"
        answer: Answer = json.loads(line)
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


class Run:
    """Both sides with the queries of one mix, which grow from size to size."""

    def __init__(self, mix: str, ours: Ours, peers: dict[str, LuceneMonitor], folder: Path, asked: Any) -> None:
        self._mix, self._ours, self._peers, self._folder, self._asked = mix, ours, dict(peers), folder, asked
        self._figures: list[Figure] = []
        self._documents = search_data.documents(max(COUNTS[mix].values()), seed=9)
        path = folder / "documents"
        search_data.write_documents(path, self._documents)
        frequencies = search_data.frequencies(LEARNED)
        ours.ask("learn", LEARNED)
        ours.ask("documents", str(path))
        for peer in peers.values():
            peer.ask(frequencies=frequencies)
            peer.ask(documents=str(path))
        self._held_from(0)

    def figures(self) -> Iterator[Figure]:
        for first, last in pairwise((0, *self._asked.sizes)):
            if self._mix == "adversarial" and last > self._asked.adversarial_most:
                return
            if last > _MOST_FOR_ALL:
                self._peers = dict(list(self._peers.items())[:1])
            self._add(first, last)
            # Below that a query's share is lost in what a process allocates and frees besides.
            memory = self._memory(f"{self._mix}, {last:,} queries: memory a query", last) if last >= 100_000 else None
            count = min(COUNTS[self._mix].get(last, 100), len(self._documents)) // (4 if self._asked.quick else 1)
            name = f"{self._mix}, {last:,} queries"
            singles = min(count, SINGLES.get(last, 50))
            best = self._warm_up(count, singles)
            yield self._rates(f"{name}: documents in batches", count, OUR_BATCH, best, PEER_BATCH)
            yield self._rates(f"{name}: documents one by one", singles, 1, best, 1)
            if memory is not None:
                yield memory
            elif not first:  # what is compiled for all kinds of queries is there by now, and is no query's
                self._held_from(last)
            yield self._first_match(f"{name}: from adding to the first match", last, best)

    def _add(self, first: int, last: int) -> None:
        path = self._folder / "queries"
        with path.open("w") as file:
            for number, query in enumerate(search_data.queries(self._mix, first, last), first):
                file.write(json.dumps([str(number), as_json(query)]) + "\n")
        taken = {OURS: self._ours.ask("add", self._mix, first, last)["seconds"]}
        taken |= {kind: peer.ask(add_file=str(path))["seconds"] for kind, peer in self._peers.items()}
        print(
            f"  {last - first:,} queries added in " + ", ".join(f"{each:.1f} s ({who})" for who, each in taken.items())
        )

    def _warm_up(self, count: int, singles: int) -> str:
        """Both run until they are as fast as they get; the kind of the peer that is the fastest."""
        self._ours.ask("rate", count, OUR_BATCH, 0.5)
        rates = {}
        for kind, peer in self._peers.items():
            peer.ask(rate=singles, batch=1, seconds=self._asked.warm)
            found = peer.ask(rate=count, batch=PEER_BATCH, seconds=self._asked.warm)
            rates[kind] = found["documents"] / found["seconds"]
        best = max(rates, key=lambda kind: rates[kind])
        if len(rates) > 1:
            print("  " + ", ".join(f"{kind} {rate:,.0f} documents/s" for kind, rate in rates.items()))
        return best

    def _rates(self, name: str, count: int, our_batch: int, best: str, peer_batch: int) -> Figure:
        seen = set[tuple[int, int]]()

        def rate(ask: Callable[[], Answer]) -> float:
            found = ask()
            seen.add((found["pairs"], found["sum"]))
            assert len(seen) == 1, f"{name}: the sides find different pairs: {seen}"
            return float(found["documents"] / found["seconds"])

        sides: Mapping[str, Callable[[], float]] = {
            OURS: lambda: rate(lambda: self._ours.ask("rate", count, our_batch, self._asked.seconds)),
            PEER: lambda: rate(
                lambda: self._peers[best].ask(rate=count, batch=peer_batch, seconds=self._asked.seconds)
            ),
        }
        return Figure.of(name, "documents/s", alternate_all(sides, self._asked.rounds))

    def _held_from(self, count: int) -> None:
        """Count what a query holds from this many queries on."""
        self._held_at = count
        self._held = {OURS: self._ours.ask("memory")["bytes"]}
        self._held |= {kind: peer.ask(memory=True)["bytes"] for kind, peer in self._peers.items()}

    def _memory(self, name: str, count: int) -> Figure:
        """What each side holds more than with the first size: private memory of ours, heap of the thriftiest JVM."""
        count -= self._held_at
        ours = max(self._ours.ask("memory")["bytes"] - self._held[OURS], 0) / count
        theirs = min(peer.ask(memory=True)["bytes"] - self._held[kind] for kind, peer in self._peers.items()) / count
        return Figure.of(name, "bytes", {OURS: [ours], PEER: [theirs]})

    def _first_match(self, name: str, number: int, best: str) -> Figure:
        document = self._documents[0]
        of_peer = {"first": [str(number), {"term": ["body", document["body"].split()[0]]}], "document": document}
        sides: Mapping[str, Callable[[], float]] = {
            OURS: lambda: 1_000 * float(self._ours.ask("first", number, document)["seconds"]),
            PEER: lambda: 1_000 * float(self._peers[best].ask(**of_peer)["seconds"]),
        }
        return Figure.of(name, "ms", alternate_all(sides, self._asked.rounds))


@contextmanager
def both_sides(asked: Any) -> Iterator[tuple[Ours, dict[str, LuceneMonitor]]]:
    """Our process and one for each kind of the peer, all on the last core, where one at a time works."""
    core = ["taskset", "-c", str(max(os.sched_getaffinity(0)))]
    with ExitStack() as stack:
        ours = stack.enter_context(Ours(core))
        peers = {
            kind: stack.enter_context(
                LuceneMonitor(kind, heap=asked.heap, flags=("-server", "-XX:+UseSerialGC"), before=core)
            )
            for kind in asked.kinds.split(",")
        }
        yield ours, peers


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", default="1000,10000,100000,1000000")
    parser.add_argument("--mixes", default="realistic,adversarial")
    parser.add_argument("--kinds", default=KINDS, help="Lucene Monitor's presearchers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5, help="of processor time for each rate of a round")
    parser.add_argument(
        "--warm", type=float, default=4.0, help="seconds of processor time for a JVM to get warm at each size"
    )
    parser.add_argument("--adversarial-most", type=int, default=100_000, help="queries of the adversarial mix")
    parser.add_argument("--heap", default="4g")
    parser.add_argument("--quick", action="store_true", help="less of everything, to see that it runs")
    parser.add_argument("--keep", action="store_true", help="keep the figures: on a quiet machine")
    asked = parser.parse_args()
    if asked.quick:
        asked.sizes, asked.rounds, asked.seconds, asked.warm = "1000,5000", 1, 0.3, 0.5
    asked.sizes = [int(each) for each in asked.sizes.split(",")]
    print(headline("stored queries"))
    figures = []
    for mix in asked.mixes.split(","):
        with scratch() as folder, both_sides(asked) as (ours, peers):
            for figure in Run(mix, ours, peers, folder, asked).figures():
                figures.append(figure)
                values = ", ".join(f"{side} {value:,.1f}" for side, value in figure.values.items())
                ratio = figure.ratios[PEER]
                judged = verdict(ratio, GOAL) if figure.unit == "documents/s" else ""
                if figure.unit == "bytes":
                    judged = f"{'met' if ratio <= 0.5 else 'MISSED'} (goal ≤ 0.5×)"
                print(f"{figure.name:62} {values} {figure.unit}  {ratio:.2f}×  {judged}", flush=True)
    if asked.keep:
        keep("search", figures, asked.rounds)


if __name__ == "__main__":
    main()
