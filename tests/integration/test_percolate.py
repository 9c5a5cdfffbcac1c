"""Stored queries through Spark: the hits of the plain class, on streams that end and go on while queries change."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.percolation import Catalog, InvalidDocument, InvalidQuery, Percolator, StoredQuery, read_mapping
from headrace.percolation.documents import parse_document
from headrace.pipelines.errors import BadOption
from headrace.pipelines.observed import PERCOLATED
from headrace.pipelines.operators import aggregates as agg
from headrace.pipelines.operators import (
    event_time,
    late_rows,
    on_time,
    percolate,
    queries_from,
    side_output,
    tumbling,
)
from headrace.pipelines.operators.errors import BadField
from tests.integration.operator_streams import START, Stream, at

pytestmark = pytest.mark.java

MAPPING = {"fields": {"title": {"type": "text", "analyzer": "english"}, "price": "double"}, "default_fields": ["title"]}
LISTINGS = "title string, price string, at timestamp, _partition int, _offset long"
RECORDS = "key string, value string, partition int, offset long"
WORDS = ("bike", "racing", "garden", "gnome", "a", "red")


def listings(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [
        {
            "title": " ".join(WORDS[(n * n + at) % len(WORDS)] for at in range(n % 4 + 1)),
            "price": "cheap" if n % 11 == 5 else str(n * 37 % 100),
            "at": at(n),
            "_partition": n % 3,
            "_offset": n,
        }
        for n in range(first, first + count)
    ]


def record(offset: int, key: str, text: str | None, **more: Any) -> dict[str, Any]:
    value = None if text is None else json.dumps({"query": text, **more})
    return {"key": key, "value": value, "partition": 0, "offset": offset}


def found_in(percolator: Percolator, rows: list[dict[str, Any]], mapping: str = "default") -> list[tuple[Any, ...]]:
    """By the plain class."""
    hits = []
    for row in rows:
        try:
            found = percolator.percolate({"title": row["title"], "price": row["price"], "at": row["at"]}, mapping)
        except InvalidDocument:
            continue
        hits += [
            (row["_offset"], hit.id, hit.version, hit.score, [each.text for each in hit.highlights]) for hit in found
        ]
    return sorted(hits)


def shown(row: Any) -> tuple[Any, ...]:
    words = [each.text for each in row.query_highlights]
    return (row["_offset"], row.query, row.query_version, row.query_score, words)


def test_queries_of_a_topic_change_over_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    """What a micro-batch reads holds for all of it, and for it again when it is done again."""
    stream = Stream(spark, tmp_path, listings=LISTINGS, searches=RECORDS)
    told = [
        [
            {"key": "mapping:listings", "value": json.dumps(MAPPING), "partition": 0, "offset": 0},
            record(1, "bikes", "racing bike", mapping="listings", owner="ann", tags=["sport"]),
            record(2, "broken", "title:(", mapping="listings"),
            record(3, "cheap", "price:<50", mapping="listings"),
        ],
        [],
        [record(7, "cheap", None), record(8, "gnomes", "gnom*", mapping="listings", boost=2)],
        [record(9, "bikes", "bike -red", mapping="listings", version=2), record(10, "gnomes", "x", paused=True)],
    ]
    known = [4, 4, 9, 11]
    catalog = Catalog()

    def make(rows: DataFrame, records: DataFrame) -> DataFrame:
        timed = rows.transform(event_time("at", delay="5 seconds", into="at"))
        return timed.transform(
            percolate(
                queries_from(records), fields=["title", "price"], mapping="listings", refused=side_output(), buckets=3
            )
        )

    batches = [listings(30, 30 * number) for number in range(4)]
    for number, (records, rows) in enumerate(zip(told, batches, strict=True)):
        stream.add("searches", records)
        stream.add("listings", rows)
        if number == 1:
            first = stream.run(make)
            assert len(first) > 20
    # The second micro-batch is to be done again, with more queries in the topic; there was none behind it with rows.
    for log in ("commits", "offsets"):
        for file in (tmp_path / "checkpoint" / log).iterdir():
            number = int(file.name.strip(".").removesuffix(".crc"))
            if number > 1 or (number == 1 and log == "commits"):
                file.unlink()
    before = len(stream.told)
    stream.run(make)
    done_again = stream.told[before:]
    second = [row for row in first if row.title is not None and row["_offset"] >= 30]
    results = [*first, *done_again]
    of_second = [row for row in done_again if row.title is not None and 30 <= row["_offset"] < 60]
    assert sorted(map(shown, of_second)) == sorted(map(shown, second))
    last = [row for row in results if row not in of_second] + of_second
    for number, (records, rows) in enumerate(zip(told, batches, strict=True)):
        for each in records:
            catalog.apply(
                each["offset"], each["key"].encode(), None if each["value"] is None else each["value"].encode()
            )
        offsets = {row["_offset"] for row in rows}
        mine = {(row["_offset"], row.query): row for row in last if row.title is not None and row["_offset"] in offsets}
        assert sorted(map(shown, mine.values())) == found_in(catalog.percolator, rows, "listings")
        assert {row.queries_offset for row in mine.values()} == {known[number]}
        wrong = [row["_aside"] for row in last if row["_aside"] is not None and row["_aside"].row["_offset"] in offsets]
        assert {each.row["_offset"] for each in wrong} == {row["_offset"] for row in rows if row["price"] == "cheap"}
        assert all("'price' is 'cheap'" in each.reason for each in wrong)
    bike = next(row for row in last if row.query == "bikes" and row.query_version == 1)
    assert (bike.query_owner, bike.query_tags) == ("ann", ["sport"])


def test_queries_that_stay(spark: SparkSession, tmp_path: Path) -> None:
    """On rows that do not stream, and on those that do, with windows behind; what is counted is in the progress."""
    percolator = Percolator({"default": read_mapping(MAPPING)})
    queries = {"bikes": "bike", "cheap": StoredQuery("cheap", "price:<50", owner="ann", version=3), "not": "-gnome"}
    for name, given in queries.items():
        percolator.put(given if isinstance(given, StoredQuery) else StoredQuery(name, given))
    rows = listings(120)
    held = percolate(queries, fields=["title", "price"], mapping=MAPPING, refused=side_output())
    stream = Stream(spark, tmp_path / "stream", listings=LISTINGS)
    for begin in range(0, 120, 40):
        stream.add("listings", rows[begin : begin + 40])
    stream.add("listings", [{**rows[0], "title": None, "price": None, "at": at(1_000)}])
    still = spark.read.schema(LISTINGS).json(str(tmp_path / "stream" / "listings"))
    found = still.where(f"at < '{START + timedelta(seconds=500)}'").transform(held).cache()
    assert sorted(map(shown, found.transform(on_time).collect())) == found_in(percolator, rows)
    wrong = found.transform(late_rows).collect()
    assert {row.row["_offset"] for row in wrong} == {row["_offset"] for row in rows if row["price"] == "cheap"}

    by_json = still.where("title is not null").selectExpr("_offset", "to_json(struct(title, price)) as value")
    parsed = by_json.transform(percolate(queries, json="value", mapping=MAPPING)).collect()
    assert sorted(map(shown, parsed)) == found_in(percolator, rows)
    (one,) = [row.value for row in parsed if row.query == "bikes"][:1]
    assert parse_document(one).value

    counted = []

    def windows(frame: DataFrame) -> DataFrame:
        timed = frame.transform(event_time("at", delay="1 second", into="at"))
        hits = timed.transform(percolate(queries, fields=["title", "price"], mapping=MAPPING, highlights=False))
        assert "query_highlights" not in hits.columns
        return hits.transform(tumbling("1 minute", by="query", n=agg.count()))

    readers = spark.readStream.schema(LISTINGS).option("maxFilesPerTrigger", 1).json(str(tmp_path / "stream/listings"))
    query = windows(readers).writeStream.format("memory").queryName("hits_a_minute").trigger(availableNow=True).start()
    query.awaitTermination()
    for progress in query.recentProgress:
        counted += [dict(each) for name, each in _metrics(progress).items() if name.startswith(PERCOLATED)]
    last = START.timestamp() + 500
    told = {
        (row.query, int(row.window_start.timestamp() - START.timestamp()) // 60): row.n
        for row in spark.table("hits_a_minute").collect()
        if row.window_start.timestamp() < last
    }
    wanted: dict[tuple[str, int], int] = {}
    for offset, name, *_ in found_in(percolator, rows):
        wanted[name, offset // 60] = wanted.get((name, offset // 60), 0) + 1
    assert told == wanted
    assert sum(each["documents"] for each in counted) == 121
    assert sum(each["refused"] for each in counted) == sum(row["price"] == "cheap" for row in rows)
    assert sum(each["hits"] for each in counted) == sum(wanted.values()) + 1


def _metrics(progress: Any) -> dict[str, Any]:
    said = json.loads(progress.json) if hasattr(progress, "json") else progress
    return dict(said.get("observedMetrics", {}))


def test_what_cannot_be_is_refused_in_a_sentence(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("a", 1)], "title string, n int")
    records = spark.createDataFrame([], RECORDS)
    with pytest.raises(InvalidQuery, match="query 'a'"):
        percolate({"a": "title:("})
    with pytest.raises(BadOption, match="no query"):
        percolate({})
    with pytest.raises(BadOption, match="leave buckets out"):
        percolate({"a": "b"}, buckets=2)
    with pytest.raises(BadOption, match="name one of them"):
        percolate({"a": "b"}, fields="title", json="title")
    with pytest.raises(BadOption, match="in the topic"):
        percolate(queries_from(records), mapping=MAPPING)
    with pytest.raises(BadField, match="not a column"):
        frame.transform(percolate({"a": "b"}, fields=["titel"]))
    with pytest.raises(BadField, match="JSON is a string"):
        frame.transform(percolate({"a": "b"}, json="n"))
    with pytest.raises(BadField, match="rename it"):
        frame.withColumnRenamed("n", "query_score").transform(percolate({"a": "b"}))
    with pytest.raises(BadField, match="queries_from"):
        queries_from(frame)
    # What does not stream has all its queries before all its documents.
    told = spark.createDataFrame([("q", '{"query": "title:a"}', 0, 0)], RECORDS)
    (hit,) = frame.transform(percolate(queries_from(told), buckets=2)).collect()
    assert (hit.title, hit.n, hit.query, hit.queries_offset) == ("a", 1, "q", 1)
