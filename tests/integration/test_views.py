"""Views with a real Spark: what stores are handed, a view's life through crash, rebuild and switch, the example."""

import json
import os
import runpy
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import duckdb as duckdb_driver
import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import create_topic
from headrace.client.cluster import Cluster
from headrace.client.writer import NewRecord, Writer
from headrace.pipelines.jobs.build import prepare
from headrace.pipelines.jobs.declare import AVAILABLE_NOW, Job
from headrace.pipelines.jobs.load import load
from headrace.pipelines.jobs.place import Place, folder_of, mark_started, open_place
from headrace.pipelines.jobs.run import Runner
from headrace.pipelines.jobs.versions import at_version, build_beside, switch
from headrace.pipelines.views import duckdb, sqlite, topic, view
from headrace.pipelines.views.declare import views_in
from headrace.pipelines.views.sink import ViewSink
from headrace.status import VIEWS, StatusReader
from headrace.stores.errors import BadView
from headrace.stores.frames import with_row_json
from headrace.stores.views.question import everything
from headrace.stores.views.shape import key_text, load_row
from headrace.stores.views.store import KEY, ROW

pytestmark = [pytest.mark.java, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

EXAMPLES = Path(__file__).parents[2] / "examples"
SCHEMA = (
    "id long, name string, price decimal(10,2), at timestamp, local timestamp_ntz, day date, yes boolean, raw binary, "
    "score double, tags array<string>, deep struct<a: int, b: map<string, int>>, _weight int"
)
FULL = (
    1, "ü\u001f\"\\u00e4\t/", Decimal("12.50"), datetime(2026, 3, 1, 12, 0, 0, 250000, UTC),
    datetime.fromisoformat("2026-03-01T01:00"),
    date(2026, 3, 1), True, b"\x00\xff", 1e22, ["a", None], (1, {"k": 2}),
)  # fmt: skip
EMPTY = (2, "x", *([None] * 9))
ENDS = [
    (number, "x", None, end.replace(tzinfo=UTC), end, end.date(), *([None] * 5))
    for number, end in ((4, datetime.min), (5, datetime.max))  # noqa: DTZ901 - one column has no zone
]
FILE = """
from pyspark.sql import functions as F
from headrace.pipelines.operators import aggregates as agg
from headrace.pipelines.operators.tables.groups.changes import group_changes
from headrace.pipelines.views import sqlite, topic, view

ITEMS = topic("items", format="json", schema="id long, kind string, n int, w int", maxRecordsPerTrigger=4)
STORE = sqlite(STORE_PATH)

def weighted(items):
    version = F.lit(None).cast("struct<table: string, key: string, offset: bigint, lsn: string>")
    return items.select("id", "kind", "n", F.col("w").alias("_weight"), version.alias("_version"),
                        F.current_timestamp().alias("_time"))

@view(key="id", inputs={"items": ITEMS}, store=STORE)
def by_id(items):
    return weighted(items)

@view(key="kind", inputs={"items": ITEMS}, store=STORE)
def by_kind(items):
    return weighted(items).transform(group_changes(by="kind", total=agg.sum("n"), rows=agg.count()))
"""


@pytest.fixture
def elsewhere(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.session.timeZone", "Europe/Paris")
    yield
    spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.usefixtures("elsewhere")
def test_every_value_arrives_in_every_store_and_what_is_wrong_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    stores = {"sqlite": sqlite(tmp_path / "v.db"), "duckdb": duckdb(tmp_path / "v.duckdb")}
    net = spark.createDataFrame(
        [(*FULL, 1), (*EMPTY, 1), (*EMPTY, 2), (*EMPTY, -2), (3, *EMPTY[1:], 1), (3, *EMPTY[1:], -1)]
        + [(*row, 1) for row in ENDS],
        SCHEMA,
    )
    for store in stores.values():
        sink = ViewSink("things", ("id", "name"), store)
        sink(net, 0)
        reader = store.reader("things")
        rows = {row["id"]: row for row in reader.page(everything(reader.kept().shape)).rows}
        assert rows.keys() == {1, 2, 4, 5}
        assert [tuple(rows[row[0]].values())[:6] for row in ENDS] == [row[:6] for row in ENDS]
        assert set(rows[2].values()) == {2, "x", None}
        assert tuple(rows[1].values())[:10] == FULL[:10]
        assert rows[1]["deep"]["a"] == 1
        reader.close()
    found = sink.changed(net)
    shape = sink.shape_of(found)
    texts = {row["headrace_key"]: row for row in with_row_json(found).collect()}
    every = (FULL, EMPTY, *ENDS)
    assert texts.keys() == {key_text(shape, dict(zip(("id", "name"), one, strict=False))) for one in every}
    for end in ENDS:
        row = load_row(shape, texts[key_text(shape, {"id": end[0], "name": "x"})][ROW])
        assert tuple(row.values())[:6] == end[:6]
    row = load_row(shape, texts[key_text(shape, {"id": 1, "name": FULL[1]})][ROW])
    assert tuple(row.values())[:10] == FULL[:10]
    assert row["deep"] == {"a": 1, "b": {"k": 2}}
    sink = ViewSink("broken", ("id",), stores["sqlite"])
    for rows, sentence in (
        ([(1, "a", 1), (1, "b", 1)], r'two rows with the key {"id":1}: the key \(id\) does not identify rows'),
        ([(None, "a", 1)], r"a row has the key {\"id\":null}, with nothing in one of its columns"),
    ):
        with pytest.raises(BadView, match=sentence):
            sink(spark.createDataFrame(rows, "id long, name string, _weight int"), 0)

    @view(key="id", inputs={"items": topic("items")}, store=stores["sqlite"])
    def checked(items: DataFrame) -> DataFrame:
        return items

    with pytest.raises(BadView, match="there are only id, name: begin with"):
        checked(spark.createDataFrame([(1, "a")], "id long, name string"))
    with pytest.raises(BadView, match="the view's key names 'id', and its rows have only name"):
        checked(net.select("name", "_weight"))
    assert KEY in found.columns


def run(job: Job, spark: SparkSession, state: Path, bootstrap: str) -> Place:
    """Run a view over all that there is."""
    place = open_place(job, state)
    current = at_version(job, place.version, switched=True)
    mark_started(job, place)
    prepared = prepare(current, spark, place, bootstrap=bootstrap, trigger=AVAILABLE_NOW)
    runner = Runner([prepared], restarts=0, say=lambda *_: None)
    runner.begin()
    while runner.tend():
        runner.wait(0.05)
    return place


def undo_the_last_commit(place: Place) -> int:
    """As after a crash between the store's commit and Spark's; the batch that is run again."""
    commits = place.checkpoint("out") / "commits"
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdecimal())
    for name in (str(last), f".{last}.crc"):
        (commits / name).unlink(missing_ok=True)
    return last


class World:
    """A broker with a topic of weighted items, and the views of a file over it."""

    def __init__(self, spark: SparkSession, broker: Broker, folder: Path) -> None:
        self.spark, self.bootstrap, self.state = spark, broker.bootstrap_servers, folder / "state"
        file = folder / "item_views.py"
        file.write_text(FILE.replace("STORE_PATH", repr(str(folder / "views.db"))))
        self.jobs = {job.name: job for job in load(file)}
        self.cluster = Cluster(parse_bootstrap(self.bootstrap))
        create_topic(self.cluster, "items", partitions=1)

    def write(self, *items: tuple[int, str, int, int]) -> None:
        writer = Writer(self.cluster, "items")
        for item in items:
            value = json.dumps(dict(zip(("id", "kind", "n", "w"), item, strict=True))).encode()
            writer.add(NewRecord(None, value, timestamp=int(time.time() * 1000), partition=0))
        writer.flush()

    def run(self, job: Job) -> Place:
        return run(job, self.spark, self.state, self.bootstrap)

    def output_mode(self, job: Job) -> str:
        prepared = prepare(job, self.spark, open_place(job, self.state), bootstrap=self.bootstrap)
        (sink,) = views_in([prepared.job]).values()
        return sink.output_mode

    def told(self, name: str) -> dict[str, Any]:
        """The last status of a view, once it was told that its query has ended."""
        reader = StatusReader(VIEWS)
        while True:
            statuses = reader.read(self.cluster)
            if name in statuses and statuses[name].state == "stopped":
                return dict(statuses[name].facts)
            time.sleep(0.1)

    def rows(self, name: str) -> dict[Any, tuple[Any, ...]]:
        sink = views_in(list(self.jobs.values()))[name]
        reader = sink.store.reader(name)
        try:
            self.kept = reader.kept()
            found = reader.page(everything(self.kept.shape)).rows
        finally:
            reader.close()
        return {row[sink.key[0]]: tuple(row.values())[1:] for row in found}


def test_the_life_of_a_view(spark: SparkSession, tmp_path: Path) -> None:
    with Broker(tmp_path / "broker") as broker:
        world = World(spark, broker, tmp_path)
        by_id, by_kind = world.jobs["by-id"], world.jobs["by-kind"]
        world.write((1, "a", 5, 1), (2, "a", 7, 1), (3, "b", 1, 1), (1, "a", 5, -1), (1, "b", 6, 1))
        place = world.run(by_id)
        expected = {1: ("b", 6), 2: ("a", 7), 3: ("b", 1)}
        assert world.rows("by-id") == expected
        assert world.kept.freshness.standing.offsets == {"items-0": 5}
        before = world.kept.freshness
        last = undo_the_last_commit(place)
        world.run(by_id)
        assert world.rows("by-id") == expected
        assert world.kept.freshness.batch == last
        world.write((3, "b", 1, -1), (2, "a", 7, -1))
        version = build_beside(
            by_id, spark, world.state, world.bootstrap, watch=lambda _: None, say=lambda *_: None
        )  # fmt: skip
        assert world.rows("by-id") == expected  # the old one, until the switch
        switch(by_id, world.state, version)
        assert world.rows("by-id") == {1: ("b", 6)}
        world.write((4, "c", 1, 1))
        world.run(by_id)
        world.run(by_kind)
        assert world.rows("by-id") == {1: ("b", 6), 4: ("c", 1)}
        assert world.kept.freshness.revision > before.revision
        assert world.rows("by-kind") == {"b": (6, 1), "c": (1, 1)}
        assert (folder_of(by_id, world.state) / "v2").exists()
        told = world.told("by-kind")
        assert (told["kind"], told["source"], told["rows"], told["lag_records"]) == ("sqlite", "items", 2, 0)
        # Spark's own aggregation was chosen, and goes on behind a restart: what is subtracted to nothing is gone.
        assert world.output_mode(by_kind) == "update"
        assert world.output_mode(by_id) == "append"
        world.write((1, "b", 6, -1), (5, "c", 2, 1))
        world.run(by_kind)
        assert world.rows("by-kind") == {"c": (3, 2)}
        world.cluster.close()


class Social:
    """Random posts and follows in topics, and the tables that they come to."""

    def __init__(self, cluster: Cluster, random: Random) -> None:
        self._random = random
        self._writers = {}
        for name in ("posts", "follows"):
            create_topic(cluster, name, partitions=2)
            self._writers[name] = Writer(cluster, name)
        self.posts: dict[int, tuple[str, str, str]] = {}
        self.follows: set[tuple[str, str]] = set()

    def change(self, times: int) -> None:
        for _ in range(times):
            if self._random.random() < 0.6:
                post, is_gone = self._random.randrange(12), self._random.random() < 0.25
                author, at = self._random.choice("abcd"), f"2026-01-01T12:0{self._random.randrange(6)}:00Z"
                row = {"post": post, "author": author, "text": f"t{self._random.randrange(99)}", "at": at}
                self._write("posts", {"post": post}, None if is_gone else row)
                self.posts.pop(post, None)
                if not is_gone:
                    self.posts[post] = (author, row["text"], at)
            else:
                pair, is_gone = (self._random.choice("xyz"), self._random.choice("abcd")), self._random.random() < 0.4
                row = {"user": pair[0], "author": pair[1]}
                for _ in range(self._random.choice([1, 1, 2])):  # some come twice
                    self._write("follows", row, None if is_gone else row)
                self.follows.discard(pair)
                self.follows |= set() if is_gone else {pair}
        for writer in self._writers.values():
            writer.flush()

    def _write(self, name: str, key: dict[str, Any], row: dict[str, Any] | None) -> None:
        value = None if row is None else json.dumps(row).encode()
        self._writers[name].add(NewRecord(json.dumps(key).encode(), value, timestamp=int(time.time() * 1000)))

    def expected(self) -> dict[str, list[tuple[int, str, str]]]:
        """The same query, by DuckDB over the tables as they are."""
        db = duckdb_driver.connect()
        db.execute("CREATE TABLE posts (post INT, author TEXT, body TEXT, moment TEXT)")
        db.execute("CREATE TABLE follows (reader TEXT, author TEXT)")
        if self.posts:
            db.executemany("INSERT INTO posts VALUES (?, ?, ?, ?)", [(one, *row) for one, row in self.posts.items()])
        if self.follows:
            db.executemany("INSERT INTO follows VALUES (?, ?)", sorted(self.follows))
        found = db.execute(
            "SELECT reader, post, author, body FROM follows JOIN posts USING (author) QUALIFY row_number() OVER "
            "(PARTITION BY reader ORDER BY moment DESC, post DESC) <= 3 ORDER BY reader, moment DESC, post DESC"
        ).fetchall()
        db.close()
        timelines: dict[str, list[tuple[int, str, str]]] = {}
        for user, *post in found:
            timelines.setdefault(user, []).append(tuple(post))
        return timelines


def test_timelines_equal_their_query_after_any_history(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = int(os.environ.get("HEADRACE_SEED", time.time_ns() % 1_000_000))
    print(f"HEADRACE_SEED={seed}")
    monkeypatch.setenv("HEADRACE_TIMELINES", str(tmp_path / "views.db"))
    (home,) = load(EXAMPLES / "timelines_views.py")
    cut = {
        word: replace(given, options={**given.options, "maxRecordsPerTrigger": "25"})
        for word, given in home.inputs.items()
    }
    home = replace(home, inputs=cut)
    with Broker(tmp_path / "broker") as broker, Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
        social = Social(cluster, Random(seed))
        reader = views_in([home])["home"].store.reader("home")
        for turn in range(2):
            social.change(40)
            place = run(home, spark, tmp_path / "state", broker.bootstrap_servers)
            rows = reader.page(everything(reader.kept().shape)).rows
            found = {one["user"]: [(p["post"], p["author"], p["text"]) for p in one["posts"]] for one in rows}
            assert found == social.expected(), f"HEADRACE_SEED={seed}, turn {turn}"
            undo_the_last_commit(place)  # the next run begins with a batch that the store has already
        reader.close()


def test_the_example_tells_its_story(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setenv("HEADRACE_TIMELINES", "")  # the example sets it, and it is put back afterwards
    example = runpy.run_path(str(EXAMPLES / "timelines.py"))
    assert list(example["tell"](spark, tmp_path)) == [
        "ann follows bob and cat, who write:",
        "  ann sees bob: a long walk; cat: tea?; bob: hello",
        "bob thinks better of it, and cat deletes hers:",
        "  ann sees bob: a short walk; bob: hello",
        "dan begins to follow bob, and ann ends it:",
        "  dan sees bob: a short walk; bob: hello",
        "  ann sees nothing",
    ]
