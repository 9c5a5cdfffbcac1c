"""Changes that go straight from the source to their operator: the same rows as by Spark's expressions, as refused."""

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from headrace import Broker
from headrace.pipelines.keyed.hashing import can_hash, hash_rows
from headrace.pipelines.keyed.layout import rows_from_bytes
from headrace.pipelines.operators.tables.changes import table_changes
from headrace.pipelines.operators.tables.changes_reading import envelope_schema
from headrace.pipelines.operators.tables.form import TIME, VERSION, VERSIONS, WEIGHT
from headrace.pipelines.operators.tables.joins.join import join_tables
from headrace.pipelines.operators.tables.straight import SETTING, cells_of

pytestmark = pytest.mark.java
TEXT = "__debezium_unavailable_value"
ROW = "id long, other int, name string, tags array<string>, at timestamp, price decimal(9,2)"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(autouse=True)
def as_it_was(spark: SparkSession) -> Iterator[None]:
    yield
    spark.conf.unset(SETTING)


class Topics:
    def __init__(self, spark: SparkSession, servers: str, *names: str) -> None:
        self.spark, self.servers = spark, servers
        self.producer = Producer({"bootstrap.servers": servers})
        admin = AdminClient({"bootstrap.servers": servers})
        for future in admin.create_topics([NewTopic(name, 2) for name in names]).values():
            future.result()

    def put(self, topic: str, value: Any, key: str | None = None) -> None:
        data = None if value is None else json.dumps(value, ensure_ascii=False)
        self.producer.produce(topic, data, key=key)

    def table(self, topic: str, schema: str, *, straight: bool, **settings: Any) -> DataFrame:
        self.producer.flush()
        self.spark.conf.set(SETTING, "true" if straight else "false")
        options = {"bootstrap": self.servers, "format": "json", "startingOffsets": "earliest"}
        options |= settings.pop("options", {})
        read = self.spark.readStream.format("headrace").options(**options).schema(schema).load(topic)
        key = settings.pop("key", "id")
        found = read.transform(table_changes(key, trust_before=True, **settings))
        assert (cells_of(found) is not None) is straight
        return found


def collected(frame: DataFrame, folder: Path) -> tuple[Counter[str], int]:
    """What a stream gives in one run, each row as text, and how many rows its sources had."""
    rows: Counter[str] = Counter()

    def add(batch: DataFrame, _number: int) -> None:
        rows.update(repr(row) for row in batch.collect())

    writer = frame.writeStream.option("checkpointLocation", str(folder)).trigger(availableNow=True)
    query = writer.foreachBatch(add).start()
    assert query.awaitTermination(120)
    return rows, sum(progress["numInputRows"] for progress in query.recentProgress)


def envelopes(seed: int, count: int) -> Iterator[tuple[str | None, Any]]:
    """Keys and values of records as captures write them, and as they might."""
    chance = random.Random(seed)
    rows: dict[int, Any] = {}
    sources = (
        lambda n: {"ts_ms": n, "lsn": n},
        lambda n: {"file": "binlog.7", "pos": n, "row": 0 if n % 2 else None},
        lambda n: {"ts_ms": n, "position": n},
        lambda _: None,
    )
    for number in range(count):
        key = chance.randrange(12)
        before = rows.get(key)
        after: Any = {
            "id": key,
            "other": chance.randrange(5),
            "name": chance.choice([None, 'ä\n"x\\', "long" * 9, "x"]),
            "tags": chance.choice([None, [], ["a", "b"]]),
            "at": chance.choice([None, "2026-01-01T00:00:00.5Z"]),
            "price": chance.choice([None, 12.5]),
        }
        if before and chance.random() < 0.2:
            after |= {"name": TEXT, "tags": [TEXT]}  # what was not sent again is in before
            rows[key] = after | {"name": before["name"], "tags": before["tags"]}
            if None in (before["name"], before["tags"]):
                after |= {"name": "x", "tags": ["x"]}
                rows[key] = after
        else:
            rows[key] = after
        op = "u" if before else chance.choice("cr")
        if before and chance.random() < 0.3:
            op, after = "d", None
            del rows[key]
        written = chance.choice(['{"id":%d}', '{"schema":{},"payload":{"id":%d}}', "%d", None])
        text = None if written is None else written % key
        value = {"before": before, "after": after, "op": op, "source": chance.choice(sources)(number)}
        captured = {
            "ts_ms": 2**63 - 1 if (value["source"] or {}).get("ts_ms") else number
        }  # no time, and not asked for
        yield text, value | (captured if chance.random() < 0.5 else {})
        if op == "d" and chance.random() < 0.5:
            yield text, None


def test_rows_are_those_that_spark_makes(spark: SparkSession, servers: str, tmp_path: Path) -> None:
    topics = Topics(spark, servers, "straight")
    for key, value in envelopes(1, 400):
        topics.put("straight", value, key)
    for place, settings in enumerate(({}, {"table": "t"}, {"truncates": "ignore"})):
        ours = topics.table("straight", envelope_schema(ROW), straight=True, **settings)
        theirs = topics.table("straight", envelope_schema(ROW), straight=False, **settings)
        assert ours.schema == theirs.schema
        found, read = collected(ours, tmp_path / f"ours {place}")
        assert (found, read) == collected(theirs, tmp_path / f"theirs {place}")
        assert sum(found.values()) > 400
        assert read > 400  # a row for each record, as progress reports count them


REFUSED = {
    "a truncate": ({"op": "t"}, "is a truncate"),
    "an op": ({"op": "x", "after": {"id": 1}}, "has an op that is none of"),
    "no after": ({"op": "c"}, "has no after"),
    "no key": ({"op": "c", "after": {"other": 1}}, r"has no value for the primary key \(id\)"),
    "no before": ({"op": "u", "after": {"id": 1}}, "has no before, which trust_before=True needs"),
    "only the key": ({"op": "d", "before": {"id": 1}}, "has only the key in before"),
    "left out": ({"op": "c", "after": {"id": 1, "name": TEXT}}, "leaves out a large value"),
    "left out before": (
        {"op": "u", "before": {"id": 1, "tags": [TEXT]}, "after": {"id": 1}},
        "leaves out a large value",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_in_the_same_words(
    spark: SparkSession, servers: str, tmp_path: Path, name: str
) -> None:
    topic = f"refused-{list(REFUSED).index(name)}"
    topics = Topics(spark, servers, topic)
    value, words = REFUSED[name]
    topics.put(topic, {"op": "c", "after": {"id": 7, "name": "good"}}, "1")
    topics.put(topic, value, "1")
    said = rf"the change at offset 1 of partition \d of {topic} {words}"
    for straight in (True, False):
        with pytest.raises(Exception, match=said):
            collected(topics.table(topic, envelope_schema(ROW), straight=straight), tmp_path / str(straight))


def test_a_join_goes_on_from_a_checkpoint_that_spark_made(spark: SparkSession, servers: str, tmp_path: Path) -> None:
    topics = Topics(spark, servers, "people", "towns")
    people, towns = "id long, town string, n int", "name string, land string"

    def joined(*, straight: tuple[bool, bool]) -> DataFrame:
        left = topics.table("people", envelope_schema(people), straight=straight[0])
        right = topics.table("towns", envelope_schema(towns), straight=straight[1], key="name")
        on = {"town": "name"}
        return left.transform(join_tables(right, on=on, how="full", buckets=3)).drop(VERSIONS, TIME)

    def change(topic: str, before: Any, after: Any) -> None:
        value = {"before": before, "after": after, "op": "d" if after is None else "u" if before else "c"}
        topics.put(topic, value, "{}")

    def everyone(n: int) -> list[dict[str, Any]]:
        return [{"id": one, "town": ("a", "b", None, "é" * 40)[one % 4], "n": n} for one in range(40)]

    total: Counter[tuple[Any, ...]] = Counter()
    # The first run has what was before there were straight changes; the others one side so, and both.
    ways = ((False, False), (True, False), (True, True), (False, True))
    for turn, straight in enumerate(ways):
        for place, row in enumerate(everyone(turn)):
            change("people", everyone(turn - 1)[place] if turn else None, row)
        for name in ("a", "é" * 40):
            land = {"name": name, "land": f"land {turn}"}
            change("towns", {"name": name, "land": f"land {turn - 1}"} if turn else None, land)
        rows: list[Any] = []
        writer = joined(straight=straight).writeStream.option("checkpointLocation", str(tmp_path / "joined"))
        query = writer.trigger(availableNow=True).foreachBatch(lambda batch, _: rows.extend(batch.collect())).start()  # noqa: B023
        assert query.awaitTermination(120)
        for row in rows:
            cells = row.asDict()
            weight = cells.pop(WEIGHT)
            total[tuple(cells.values())] += weight
        lands = {"a": f"land {turn}", "é" * 40: f"land {turn}"}
        expected = Counter(
            (one["id"], one["town"], turn, one["town"] if one["town"] in lands else None, lands.get(one["town"]))
            for one in everyone(turn)
        )
        assert Counter({row: count for row, count in total.items() if count}) == expected


def test_a_table_joined_with_itself_is_one_source_as_before(spark: SparkSession, servers: str, tmp_path: Path) -> None:
    topics = Topics(spark, servers, "staff")
    total: Counter[tuple[Any, ...]] = Counter()
    for turn, straight in enumerate((False, True, False)):
        for one in range(10):
            was, row = ({"id": one, "boss": one // 2, "n": number} for number in (turn - 1, turn))
            topics.put("staff", {"op": "u", "before": was, "after": row} if turn else {"op": "c", "after": row})
        staff = topics.table("staff", envelope_schema("id long, boss long, n int"), straight=straight)
        joined = staff.transform(join_tables(staff, on={"boss": "id"}, prefix="their_", buckets=2)).drop(VERSIONS, TIME)
        rows: list[Any] = []
        writer = joined.writeStream.option("checkpointLocation", str(tmp_path / "staff")).trigger(availableNow=True)
        query = writer.foreachBatch(lambda batch, _: rows.extend(batch.collect())).start()  # noqa: B023
        assert query.awaitTermination(120)
        assert len(query.lastProgress["sources"]) == 1
        for row in rows:
            total[tuple(value for name, value in row.asDict().items() if name != WEIGHT)] += row[WEIGHT]
        there = {row: count for row, count in total.items() if count}
        assert there == {(one, one // 2, turn, one // 2, one // 4, turn): 1 for one in range(10)}


def test_python_is_handed_no_more_changes_at_once_than_rows(spark: SparkSession, servers: str, tmp_path: Path) -> None:
    topics = Topics(spark, servers, "bounded")
    topics.producer = Producer({"bootstrap.servers": servers, "batch.num.messages": 20})  # of which each makes a cell
    for number in range(2000):
        topics.put("bounded", {"op": "c", "after": {"id": number}}, "1")
    limit = "spark.sql.execution.arrow.maxRecordsPerBatch"
    spark.conf.set(limit, "100")
    try:
        options = {"fetchBytes": "1024"}
        found = cells_of(topics.table("bounded", envelope_schema("id long"), straight=True, options=options))
        assert found
        handed = found.frame.mapInArrow(_changes_at_once, "changes int")
        rows, _ = collected(handed, tmp_path / "bounded")
    finally:
        spark.conf.unset(limit)
    counts = Counter({int(text.removeprefix("Row(changes=").removesuffix(")")): times for text, times in rows.items()})
    assert sum(count * times for count, times in counts.items()) == 2000
    assert max(counts) <= 120


def _changes_at_once(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = [rows_from_bytes(cell.as_buffer()).num_rows for cell in batch.column(0).drop_null()]
        yield pa.RecordBatch.from_pydict({"changes": pa.array([sum(rows)], pa.int32())})


def test_only_what_stands_right_behind_the_source_is_straight(spark: SparkSession, servers: str) -> None:
    topics = Topics(spark, servers, "behind")
    found = topics.table("behind", envelope_schema("id long, name string"), straight=True)
    assert cells_of(found.where("id > 1")) is None
    options = {"bootstrap": servers, "format": "json", "subscribe": "behind"}
    schema = envelope_schema("id long, name string")
    filtered = spark.readStream.format("headrace").options(**options).schema(schema).load().where("op <> 'r'")
    assert cells_of(filtered.transform(table_changes("id", trust_before=True))) is None
    bounded = spark.read.format("headrace").options(**options).schema(schema).load()
    assert cells_of(bounded.transform(table_changes("id", trust_before=True))) is None
    for row in ("id double, name string", "id timestamp, name string"):  # of which no JSON is made here for a version
        read = spark.readStream.format("headrace").options(**options).schema(envelope_schema(row)).load()
        assert cells_of(read.transform(table_changes("id", trust_before=True))) is None


def test_hashes_are_those_of_spark(spark: SparkSession) -> None:
    chance = random.Random(3)
    longs = [None, 0, -1, 2**63 - 1, -(2**63), *(chance.randrange(-(2**63), 2**63) for _ in range(200))]
    texts = [None, "", *("".join(chance.choices("aé名😀", k=size)) for size in range(203))]
    columns = {
        "a": pa.array(longs),
        "b": pa.array(texts),
        "c": pa.array([None if n is None else n % 2**31 - 2**30 for n in longs], pa.int32()),
        "d": pa.array([None if n is None else n % 256 - 128 for n in longs], pa.int8()),
        "e": pa.array([None if n is None else n % 2 == 0 for n in longs]),
        "f": pa.array([None if n is None else n % 2**15 for n in longs], pa.int16()),
    }
    frame = spark.createDataFrame(pa.table(columns))
    for names in (*([name] for name in columns), list(columns)):
        assert all(can_hash(columns[name].type) for name in names)
        theirs = [row[0] for row in frame.select(fn.xxhash64(*names)).collect()]
        assert hash_rows([columns[name] for name in names]).tolist() == theirs
    sliced = [column.slice(5, 60) for column in columns.values()]
    assert hash_rows(sliced).tolist() == theirs[5:65]


def test_keys_of_versions_are_the_json_of_spark(spark: SparkSession, servers: str, tmp_path: Path) -> None:
    topics = Topics(spark, servers, "versions")
    row = {"id": 1, "name": 'q"\\\n\x01é/', "is": True}
    topics.put("versions", {"op": "u", "before": row, "after": row, "source": {"lsn": 5, "ts_ms": 1}}, "1")
    made = []
    for straight in (True, False):
        schema = envelope_schema("id long, name string, is boolean")
        found = topics.table("versions", schema, straight=straight, key=["name", "id", "is"])
        made.append(collected(found.select(WEIGHT, f"{VERSION}.*"), tmp_path / str(straight))[0])
    assert made[0] == made[1]
    assert {eval(text.split("key=")[1].split(", offset")[0]) for text in made[0]} == {
        '{"name":"q\\"\\\\\\n\\u0001é/","id":1,"is":true}'
    }
