"""A streaming source over topics that come and go, without Spark: its micro-batches are driven as Spark drives them.

A topic that is deleted and made again is another topic, whatever its length and its number of partitions.
"""

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.types import BooleanType, StructField, StructType, TimestampType

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import create_topic, delete_topics
from headrace.client.cluster import Cluster
from headrace.client.errors import UnknownTopic
from headrace.client.offsets import bounds
from headrace.client.transactions import Transaction, Transactions
from headrace.client.writer import NewRecord, Writer
from headrace.model import TopicPartition
from headrace.pipelines.clusters import close_clusters
from headrace.pipelines.errors import DataLoss
from headrace.pipelines.jobs.status import Lag, lag_of
from headrace.pipelines.sink.topic.options import SinkOptions
from headrace.pipelines.sink.topic.phases import Attempt, write_task
from headrace.pipelines.source.columns import raw_schema
from headrace.pipelines.source.idle import stamp_of
from headrace.pipelines.source.options import read_options
from headrace.pipelines.source.stream import StreamReader
from headrace.pipelines.spark.checkpoint import read_done
from tests.integration.waiting import wait_until
from tests.property.storage_model import examples

_names = itertools.count()


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker.bootstrap_servers
    close_clusters()


class Topic:
    """A topic that can be made again; its records name the life that they were written in."""

    def __init__(self, bootstrap: str) -> None:
        self.cluster = Cluster(parse_bootstrap(bootstrap))
        self.name = f"lives-{next(_names)}"
        self.life = 0
        self.written: list[str] = []  # in the life that it is in
        self.is_there = False
        self.partitions = 0

    def make(self, partitions: int = 1, records: int = 0) -> None:
        create_topic(self.cluster, self.name, partitions=partitions)
        self.life += 1
        self.is_there, self.partitions = True, partitions
        self.written = []
        self.write(records)

    def delete(self) -> None:
        delete_topics(self.cluster, [self.name])
        self.is_there = False

    def make_again(self, partitions: int = 1, records: int = 0) -> None:
        self.delete()
        self.make(partitions, records)

    def write(self, records: int) -> None:
        writer = Writer(self.cluster, self.name)
        for _ in range(records):
            number = len(self.written)
            self.written.append(f"{self.life}/{number}")
            value = self.written[-1].encode()
            writer.add(NewRecord(None, value, timestamp=1_000, partition=number % self.partitions))
        writer.flush()


class Query:
    """The micro-batches of a query: what Spark has in its checkpoint, and what it asks the source for."""

    def __init__(self, bootstrap: str, topic: str, **options: str) -> None:
        self._options = {"bootstrap": bootstrap, "subscribe": topic, "startingOffsets": "earliest"} | options
        self.start()
        self.planned: tuple[Any, Any] | None = None  # in the offset log, and not in the commit log
        self.stands: Any = None
        self.seen: list[str] = []

    def start(self) -> None:
        """A new process, on the same checkpoint."""
        close_clusters()
        self._source = StreamReader(raw_schema(include_headers=False), read_options(self._options))

    def plan(self, limit: ReadLimit | None = None) -> None:
        if self.planned is None:
            if self.stands is None:
                self.stands = _stored(self._source.initialOffset())
            end = _stored(self._source.latestOffset(self.stands, limit or self._source.getDefaultReadLimit()))
            self.planned = (self.stands, end) if end != self.stands else None

    def run(self, between: Callable[[], None] = lambda: None) -> None:
        """The planned batch; `between` happens after its tasks were made and before they read."""
        if self.planned is None:
            return
        start, end = self.planned
        tasks = self._source.partitions(start, end)
        between()
        seen = [
            value.decode()
            for task in tasks
            for batch in self._source.read(task)
            for value in batch.column("value").to_pylist()
        ]
        self.seen += seen
        self.stands, self.planned = end, None
        self._source.commit(end)

    def batch(self) -> None:
        self.plan()
        self.run()

    def read_all(self) -> None:
        self.batch()
        while True:
            self.plan()
            if self.planned is None:
                return
            self.run()


def leave_open(bootstrap: str, topic: str, value: str) -> Transaction:
    """A record in a transaction that is not ended."""
    rows = iter([pa.record_batch({"value": pa.array([value])})])
    made = write_task(rows, Attempt(f"open-{topic}", 0, 0), SinkOptions(bootstrap, topic=topic))
    assert made is not None
    return made.transaction


def _stored(offsets: Any) -> Any:
    """As it comes back from the checkpoint."""
    return json.loads(json.dumps(offsets))


@pytest.fixture
def topic(bootstrap: str) -> Iterator[Topic]:
    made = Topic(bootstrap)
    made.make(records=10)
    yield made
    made.cluster.close()


@pytest.mark.parametrize("records", [0, 4, 10, 25])
@pytest.mark.parametrize("partitions", [1, 3])
def test_a_topic_made_again_is_data_loss(bootstrap: str, topic: Topic, records: int, partitions: int) -> None:
    query = Query(bootstrap, topic.name)
    query.batch()
    topic.make_again(partitions, records)
    for _ in range(2):
        query.start()
        with pytest.raises(DataLoss, match=rf"topic '{topic.name}' was deleted and made again.*failOnDataLoss"):
            query.batch()
    assert len(query.seen) == 10


@pytest.mark.parametrize("records", [0, 4, 10, 25])
@pytest.mark.parametrize("partitions", [1, 3])
def test_or_is_read_from_its_beginning(bootstrap: str, topic: Topic, records: int, partitions: int) -> None:
    query = Query(bootstrap, topic.name, failOnDataLoss="false")
    query.batch()
    topic.make_again(partitions, records)
    query.read_all()
    assert sorted(query.seen[10:]) == sorted(topic.written)
    topic.write(5)
    query.read_all()
    assert sorted(query.seen[10:]) == sorted(topic.written)


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_planned_batch_over_a_deleted_topic(bootstrap: str, topic: Topic, is_made_again: bool) -> None:
    strict = Query(bootstrap, topic.name)
    lenient = Query(bootstrap, topic.name, failOnDataLoss="false", commitGroup="readers")
    for query in (strict, lenient):
        query.plan()
    topic.delete()
    if is_made_again:
        topic.make(records=25)
    for query in (strict, lenient):
        query.start()
    with pytest.raises(DataLoss, match="was deleted"):
        strict.run()
    lenient.read_all()
    assert lenient.seen == (topic.written if is_made_again else [])


def test_deleted_and_never_made_again(bootstrap: str, topic: Topic) -> None:
    other = Topic(bootstrap)
    other.make(records=3)
    both = f"{topic.name},{other.name}"
    strict, lenient = Query(bootstrap, both), Query(bootstrap, both, failOnDataLoss="false", commitGroup="both")
    for query in (strict, lenient):
        query.batch()
    other.delete()
    topic.write(2)
    with pytest.raises(DataLoss, match=rf"topic '{other.name}' was deleted"):
        strict.batch()
    lenient.read_all()
    assert len(lenient.seen) == 15
    other.make(records=1)
    lenient.read_all()
    assert lenient.seen[15:] == other.written
    other.cluster.close()


def test_a_topic_that_never_was_is_a_mistake(bootstrap: str) -> None:
    with pytest.raises(UnknownTopic):
        Query(bootstrap, "never-was", failOnDataLoss="false").batch()


@pytest.mark.parametrize("strict", [True, False])
def test_made_again_between_planning_and_reading(bootstrap: str, topic: Topic, strict: bool) -> None:
    query = Query(bootstrap, topic.name, failOnDataLoss=str(strict).lower())
    query.plan()
    if strict:
        with pytest.raises(DataLoss, match="was deleted and made again"):
            query.run(between=lambda: topic.make_again(records=25))
        return
    query.run(between=lambda: topic.make_again(records=25))
    assert query.seen == []
    query.read_all()
    assert query.seen == topic.written


def test_available_now_ends_where_the_topic_ended(bootstrap: str, topic: Topic) -> None:
    query = Query(bootstrap, topic.name, failOnDataLoss="false")
    query.batch()
    topic.make_again(records=4)
    query._source.prepareForTriggerAvailableNow()
    topic.write(3)
    query.read_all()
    assert query.seen[10:] == topic.written[:4]


def test_a_checkpoint_from_before_there_were_ids(bootstrap: str, topic: Topic) -> None:
    query = Query(bootstrap, topic.name)
    query.stands = {topic.name: {"0": 6}}
    query.read_all()
    assert query.seen == topic.written[6:]
    topic.make_again(records=25)
    with pytest.raises(DataLoss, match="was deleted and made again"):
        query.batch()


def test_a_checkpoint_without_ids_beyond_the_end(bootstrap: str, topic: Topic) -> None:
    """No id tells, but the end does."""
    query = Query(bootstrap, topic.name)
    query.stands = {topic.name: {"0": 60}}
    with pytest.raises(DataLoss, match="has been read up to offset 60 and ends at 10 now"):
        query.batch()
    lenient = Query(bootstrap, topic.name, failOnDataLoss="false")
    lenient.stands = query.stands
    lenient.plan(ReadMaxRows(4))
    lenient.start()
    lenient.run()
    lenient.read_all()
    assert lenient.seen == topic.written


def test_another_isolation_is_no_loss(bootstrap: str, topic: Topic) -> None:
    """A query that read what was not committed stands behind the last stable offset."""
    query = Query(bootstrap, topic.name, isolation="read_uncommitted")
    open_ = leave_open(bootstrap, topic.name, "open")
    query.read_all()
    assert query.seen == [*topic.written, "open"]
    query._options["isolation"] = "read_committed"
    query.start()
    query.read_all()
    assert query.seen == [*topic.written, "open"]
    Transactions(topic.cluster).abort(open_)


def test_a_pattern(bootstrap: str, topic: Topic) -> None:
    query = Query(bootstrap, topic.name)
    del query._options["subscribe"]
    query._options |= {"subscribePattern": f"{topic.name}.*", "failOnDataLoss": "false"}
    query.start()
    query.read_all()
    topic.make_again(records=4)
    query.read_all()
    topic.delete()
    query.read_all()
    topic.make(records=7)
    query.read_all()
    assert query.seen[10:] == [*(f"2/{number}" for number in range(4)), *topic.written]


def test_a_job_lags_behind_a_topic_made_again_by_all_of_it(bootstrap: str, topic: Topic, tmp_path: Path) -> None:
    query = Query(bootstrap, topic.name)
    query.batch()
    for folder, text in (("offsets", f"v1\n{{}}\n{json.dumps(query.stands)}\n"), ("commits", "v1\n{}\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "0").write_text(text)
    stands = read_done(tmp_path)
    assert lag_of(topic.cluster, stands.offsets, 2_000, stands.ids) == Lag(0, 0)
    topic.make_again(records=4)
    assert lag_of(topic.cluster, stands.offsets, 2_000, stands.ids) == Lag(4, 1_000)


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_source_is_not_idle_while_records_wait_in_a_transaction(
    bootstrap: str, topic: Topic, is_committed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time that went on meanwhile would make them late once they are committed; our own sink leaves them so."""
    now = [1_000_000]
    clock = SimpleNamespace(monotonic=lambda: now[0] / 1000, time_ns=lambda: now[0] * 1_000_000)
    monkeypatch.setattr("headrace.pipelines.source.stream.time", clock)
    schema = StructType([StructField("at", TimestampType()), StructField("_idle", BooleanType())])
    given = {"bootstrap": bootstrap, "subscribe": topic.name, "format": "json", "onBadRecord": "dead-letter"}
    source = StreamReader(schema, read_options(given | {"idleTimeout": "10", "eventTimeColumn": "at"}))

    def look(after_ms: int) -> int | None:
        now[0] += after_ms
        nonlocal stands
        stands = _stored(source.latestOffset(stands, source.getDefaultReadLimit()))
        return stamp_of(stands)

    stands = _stored(source.initialOffset())
    assert look(0) is None
    open_ = leave_open(bootstrap, topic.name, '{"at": "2026-01-01T00:00:00Z"}')
    for _ in range(3):
        assert look(11_000) is None
    transactions = Transactions(topic.cluster)
    assert transactions.commit(open_) if is_committed else transactions.abort(open_)
    partition = TopicPartition(topic.name, 0)
    wait_until(lambda: bounds(topic.cluster, [partition], committed=True)[partition].end == 12, "it stays open")
    assert look(0) is None
    assert look(9_000) is None
    assert look(1_000) == now[0]


STEPS = st.one_of(
    st.tuples(st.just("write"), st.integers(1, 6)),
    st.tuples(st.just("again"), st.tuples(st.integers(1, 3), st.integers(0, 12))),
    st.tuples(st.sampled_from(["delete", "plan", "plan a few", "run", "restart"]), st.none()),
)


@examples(30)
@given(steps=st.lists(STEPS, max_size=14), strict=st.booleans())
def test_any_life(bootstrap: str, steps: list[tuple[str, Any]], strict: bool) -> None:
    """However a topic lives: its last life is read once and whole; or, if asked for, the first loss is an error."""
    topic = Topic(bootstrap)
    topic.make()
    query = Query(bootstrap, topic.name, failOnDataLoss=str(strict).lower())
    query.plan()
    was_lost = False
    try:
        for step, how in [*steps, ("run", None), ("end", None)]:
            if step == "write" and topic.is_there:
                topic.write(how)
            elif step == "again":
                was_lost = True
                topic.make_again(*how) if topic.is_there else topic.make(*how)
            elif step == "delete" and topic.is_there:
                was_lost = True
                topic.delete()
            elif step == "restart":
                query.start()
            elif step == "end":
                query.read_all()
            elif step.startswith("plan"):
                query.plan(ReadMaxRows(2) if step == "plan a few" else None)
            elif step == "run":
                query.run()
    except DataLoss:
        assert strict
        assert was_lost
    else:
        assert not (strict and was_lost)
        if topic.is_there:
            assert sorted(value for value in query.seen if value.startswith(f"{topic.life}/")) == sorted(topic.written)
        assert len(set(query.seen)) == len(query.seen)
    finally:
        topic.cluster.close()
