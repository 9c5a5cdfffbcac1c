"""Hits go to a topic exactly once, with the whole query killed at random instants; queries change meanwhile.

A document that comes again after a kill meets the queries that it met before, and each hit says up to where they were
known: the plain class with the queries up to there has the same hits.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import create_topic
from headrace.client.cluster import Cluster
from headrace.client.writer import NewRecord, Writer
from headrace.percolation import Catalog, Percolator
from headrace.percolation.documents import parse_document
from tests.integration.percolate_worker import DOCUMENTS, FIXED, HITS, QUERIES, STORED, documents
from tests.reading import read_committed

pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]
KILLS = int(os.environ.get("HEADRACE_KILLS", "1"))
SEED = int(os.environ.get("HEADRACE_SEED", str(random.randrange(2**31))))
PARTITIONS = 2
CHANGES: list[dict[str, str | None]] = [
    {"goes": None, "bikes": '{"query": "title:bike", "paused": true, "version": 2}', "new": '{"query": "title:boat"}'},
    {"bikes": '{"query": "title:(bike boat)", "version": 3}', "broken": '{"query": "title:red"}', "rests": None},
]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Broker(tmp_path / "broker") as broker, Cluster(parse_bootstrap(broker.bootstrap_servers)) as made:
        yield made


def write(cluster: Cluster, topic: str, *records: tuple[str, bytes | None, int]) -> None:
    writer = Writer(cluster, topic)
    for key, value, partition in records:
        writer.add(NewRecord(key.encode(), value, int(time.time() * 1000), partition=partition))
    writer.flush()


class Worker:
    def __init__(self, root: Path, servers: str) -> None:
        self._errors = (root / "worker.err").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.percolate_worker", str(root), servers],
            stdout=subprocess.PIPE, stderr=self._errors, text=True, start_new_session=True,
            cwd=Path(__file__).parents[2],
        )  # fmt: skip

    def lines(self) -> Iterator[str]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            yield line.strip()

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)  # with the JVM and its Python workers
        self.end()

    def end(self) -> int:
        code = self._process.wait(300)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()
        return code


Place = tuple[int, int]


def by_document(servers: str, topic: str) -> dict[Place, list[dict[str, Any]]]:
    found = defaultdict(list)
    for message in read_committed(servers, topic):
        hit = json.loads(message.value() or b"")
        found[hit["_partition"], hit["_offset"]].append(hit)
    return found


def words(hits: list[dict[str, Any]]) -> list[Any]:
    return sorted(
        (hit["query"], hit["query_version"], hit["query_score"], len(hit["query_highlights"])) for hit in hits
    )


def plain(percolator: Percolator, value: bytes) -> list[Any]:
    found = percolator.percolate(parse_document(value, percolator.mappings["default"]))
    return sorted((hit.id, hit.version, hit.score, len(hit.highlights)) for hit in found)


def test_exactly_once_to_a_topic(tmp_path: Path, cluster: Cluster) -> None:
    print(f"HEADRACE_SEED={SEED}")
    chosen, servers = random.Random(SEED), str(cluster)
    create_topic(cluster, DOCUMENTS, partitions=PARTITIONS)
    create_topic(cluster, QUERIES, partitions=1, configs={"cleanup.policy": "compact"})
    for topic in HITS.values():
        create_topic(cluster, topic, partitions=1)
    told: list[tuple[str, bytes | None, int]] = [(name, text.encode(), 0) for name, text in STORED.items()]
    write(cluster, QUERIES, *told)
    values: dict[Place, bytes] = {}
    records = []
    for number, value in enumerate(documents(700 + 500 * KILLS)):
        values[number % PARTITIONS, number // PARTITIONS] = value
        records.append((str(number), value, number % PARTITIONS))
    write(cluster, DOCUMENTS, *records)

    for kill in range(KILLS):
        worker = Worker(tmp_path, servers)
        wait = chosen.randint(1, 6)
        for count, line in enumerate(worker.lines(), start=1):
            assert line.startswith("batch"), line
            if count == wait:
                break
        time.sleep(chosen.random() * 0.5)  # so that it is killed anywhere within a micro-batch
        worker.kill()
        changes = CHANGES[kill % len(CHANGES)]
        more = [(name, None if text is None else text.encode(), 0) for name, text in changes.items()]
        told += more
        write(cluster, QUERIES, *more)
    worker = Worker(tmp_path, servers)
    last = [*worker.lines()][-1:]
    assert worker.end() == 0, (tmp_path / "worker.err").read_text()[-3000:]
    assert last == ["finished"]

    percolator = Percolator()
    for name, text in FIXED.items():
        percolator.add(name, text)
    fixed = by_document(servers, HITS["fixed"])
    assert set(fixed) == set(values), "every document matches a query"
    for place, value in values.items():
        assert words(fixed[place]) == plain(percolator, value), place

    topic = by_document(servers, HITS["topic"])
    assert set(topic) == set(values)
    known = {place: {hit["queries_offset"] for hit in hits} for place, hits in topic.items()}
    assert all(len(each) == 1 for each in known.values()), "one document meets the queries of one moment"
    catalogs: dict[int, Catalog] = {}
    for offset in sorted({next(iter(each)) for each in known.values()}):
        catalogs[offset] = Catalog()
        for at, (key, text, _) in enumerate(told[:offset]):
            catalogs[offset].apply(at, key.encode(), text)
    assert max(catalogs) == len(told), "queries have changed in between"
    for place, value in values.items():
        assert words(topic[place]) == plain(catalogs[next(iter(known[place]))].percolator, value), place
    for partition in range(PARTITIONS):
        along = [next(iter(known[place])) for place in sorted(values) if place[0] == partition]
        assert along == sorted(along), "what was known is known from then on"
