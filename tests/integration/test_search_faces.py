"""The same hits from every face: the plain class, a search at work, HTTP, and what runs under Spark; on any bytes."""

import http.client
import json
import os
import random
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import create_topic
from headrace.client.cluster import Cluster
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.client.writer import NewRecord, Writer
from headrace.percolation import InvalidDocument, Percolator, StoredQuery, read_mapping
from headrace.percolation.documents import parse_document
from headrace.pipelines.operators.percolation.hits import HITS, Reading
from headrace.pipelines.operators.stragglers import drop
from headrace.searches.http import SearchServer
from headrace.searches.runner import SearchRunner
from headrace.searches.settings import SearchSettings
from headrace.stores.compacted_topic import CompactedTopic

SEED = int(os.environ.get("HEADRACE_SEED", str(random.randrange(2**31))))
MAPPING = {"fields": {"title": {"type": "text", "analyzer": "english"}, "price": "double"}, "default_fields": ["title"]}
QUERIES = [
    "title:bike", "bikes AND -car", '"red bike"~2', "price:>5", "price:[* TO 3}", "-title:bike", "a.b:blue",
    "a:blue OR c:*",
    "parts:nested(name:wheel AND price:<3)", "title:bi*^2 OR title:cra~1", "n:>=10", "day:>2024-02-01", "*:*",
    "title:/b[io]ke?/",
]  # fmt: skip
ODD = [
    b"", b"null", b"[]", b"3", b"{", b"\xff", b"{}", b'{"price": NaN}', b'{"price": -Infinity}', b'{"price": 1e999}',
    b'{"n": 1e308}', b'{"n": ' + b"9" * 400 + b"}", b'{"n": ' + b"9" * 5_000 + b"}", b'\xef\xbb\xbf{"price": 7}',
    '{"title": "bike"}'.encode("utf-16"), b'{"price": 9, "price": 1}', b'{"a": ' * 90 + b"1" + b"}" * 90,
    b'{"a": ' * 120 + b"1" + b"}" * 120, b"[" * 100_000, b'{"": {"": 1}, ".": 2}', b'{"\\ud800": "\\udfff bike"}',
    b'{"price": [6, null, "7", [8]]}', b'{"price": "cheap"}', b'{"title": {"b": "bike"}}',
    b'{"title": "' + b"bike " * 40_000 + b'"}',
]  # fmt: skip


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Broker(durability="os") as broker, Cluster(parse_bootstrap(broker.bootstrap_servers)) as made:
        yield made


def document(chosen: random.Random) -> bytes:
    words = ("bike", "bikes", "car", "red", "blue", "crab", "boat")
    made: dict[str, Any] = {"title": " ".join(chosen.choices(words, k=chosen.randrange(6)))}
    values = [
        None,
        True,
        3,
        -2.5,
        10**20,
        "blue",
        "2024-03-01",
        ["blue", "x"],
        {"b": "blue"},
        [{"b": 1}, {"b": "blue"}],
    ]
    for field in ("a", "a.b", "c", "n", "day", "price"):
        if chosen.random() < 0.4:
            made[field] = chosen.choice([1, 4.5, "6", None] if field == "price" else values)
    if chosen.random() < 0.5:
        made["parts"] = [{"name": chosen.choice(["wheel", "bell"]), "price": chosen.randrange(6)} for _ in range(3)]
    return json.dumps(made).encode()


def ask(server: SearchServer, body: bytes) -> set[tuple[str, float]] | None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", "/percolate?mapping=listings", body)
    answer = connection.getresponse()
    said = json.loads(answer.read())
    connection.close()
    assert answer.status in (200, 400), said
    return {(hit["query"], hit["score"]) for hit in said["hits"]} if answer.status == 200 else None


def read_hits(cluster: Cluster) -> list[Any]:
    def refuse(text: str) -> Any:
        raise ValueError(f"{text} is not JSON")

    held = bounds(cluster, cluster.partitions("documents.hits"), committed=True)
    starts = {where: bound.start for where, bound in held.items()}
    until = {where: bound.end for where, bound in held.items()}
    reading = read_records(cluster, starts, until=until, options=FetchOptions(committed=True))
    return [json.loads(record.value or b"", parse_constant=refuse) for some in reading for _, record in some]


def test_all_have_the_same_hits(cluster: Cluster) -> None:
    print(f"HEADRACE_SEED={SEED}")
    chosen = random.Random(SEED)
    values = [*ODD, *(document(chosen) for _ in range(300))]
    topic = CompactedTopic(cluster, "searches")
    topic.write("mapping:listings", json.dumps(MAPPING).encode())
    plain = Percolator({"listings": read_mapping(MAPPING)})
    for number, text in enumerate(QUERIES):
        stored = StoredQuery(f"q{number}", text, mapping="listings", boost=1 + number % 3)
        plain.put(stored)
        topic.write(stored.id, stored.as_json())
    create_topic(cluster, "documents", partitions=1)
    writer = Writer(cluster, "documents")
    for value in values:
        writer.add(NewRecord(None, value, int(time.time() * 1000), partition=0))
    writer.flush()

    wanted: dict[int, set[tuple[str, float]] | None] = {}
    for number, value in enumerate(values):
        try:
            read = parse_document(value, plain.mappings["listings"])
        except InvalidDocument:
            wanted[number] = None
        else:
            wanted[number] = {(hit.id, hit.score) for hit in plain.percolate(read, "listings")}

    bootstrap = parse_bootstrap(str(cluster))
    settings = SearchSettings(
        "documents", "documents", "searches", "documents.hits", "listings", from_start=True, with_document=True
    )
    runner = SearchRunner(settings, bootstrap)
    runner.run(until_idle=True)
    at_work: dict[int, set[tuple[str, float]]] = {number: set() for number in wanted}
    for hit in read_hits(cluster):
        assert (hit["query"], hit["score"]) not in at_work[hit["offset"]]
        at_work[hit["offset"]].add((hit["query"], hit["score"]))
    assert at_work == {number: hits or set() for number, hits in wanted.items()}
    assert runner.progress.letters == sum(hits is None for hits in wanted.values())

    with SearchServer(bootstrap, "searches", port=0) as server:
        assert {number: ask(server, value) for number, value in enumerate(values) if not value.startswith(b"[")} == {
            number: hits for number, hits in wanted.items() if not values[number].startswith(b"[")
        }

    rows = pa.schema([("n", pa.int64()), ("body", pa.binary())])
    reading = Reading(rows, ("body",), "body", "listings", highlights=False, refused=drop(), from_topic=False)
    batch = pa.RecordBatch.from_pylist([{"n": n, "body": value} for n, value in enumerate(values)], schema=rows)
    under_spark: dict[int, set[tuple[str, float]]] = {number: set() for number in wanted}
    for part in reading.held(plain, batch, None, None):
        for row in part.output.to_pylist():
            for hit in row[HITS] or ():
                under_spark[row["n"]].add((hit["query"], hit["query_score"]))
    assert under_spark == at_work


def test_a_topic_with_the_longest_name_has_dead_letters_too(cluster: Cluster) -> None:
    name = "d" * 249
    create_topic(cluster, name, partitions=1)
    writer = Writer(cluster, name)
    for value in (b"not json", b'{"title": "bike"}'):
        writer.add(NewRecord(None, value, int(time.time() * 1000), partition=0))
    writer.flush()
    CompactedTopic(cluster, "of-long").write("q", b'{"query": "title:bike"}')
    runner = SearchRunner(
        SearchSettings("long", name, "of-long", "long.hits", from_start=True), parse_bootstrap(str(cluster))
    )
    runner.run(until_idle=True)
    assert (runner.progress.hits, runner.progress.letters) == (1, 1)
