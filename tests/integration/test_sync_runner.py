"""The runtime around sinks, with a real broker: keeping in step, poison, truncates, status, verify, rebuild."""

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from headrace import Broker
from headrace.client.admin import add_partitions
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.client.writer import NewRecord
from headrace.connect.errors import TakenOver
from headrace.connect.sync.decoding import RecordFormat
from headrace.connect.sync.feed import BatchLimits, Feed
from headrace.connect.sync.rebuilding import rebuild
from headrace.connect.sync.registry import make_sink
from headrace.connect.sync.runner import Runner, connector, run_all
from headrace.connect.sync.settings import SyncSettings
from headrace.connect.sync.status import SyncStatus, status_of
from headrace.connect.sync.verification import Kind, verify
from headrace.status import FAILED
from headrace.stores.derived import Place
from headrace.stores.errors import SinkRefused
from headrace.testing.clock import FakeClock
from tests.integration.sync_topics import connect, delete, envelope, key_of, make_topic, truncate, upsert, write
from tests.integration.waiting import wait_until

NOW_MS = 1_700_000_060_000


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(bootstrap: str, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("[", "-").replace("]", "")
    make_topic(bootstrap, name)
    return str(name)


class Derived:
    """A derived system in a SQLite file, and everything one can do with it."""

    def __init__(self, bootstrap: str, topic: str, folder: Path, **settings: Any) -> None:
        self.bootstrap, self.topic = bootstrap, topic
        self.path = folder / "target.sqlite"
        name = f"sink-of-{topic}"
        self.settings = SyncSettings(
            name, topic, "sqlite", {"path": str(self.path), "table": "orders"}, first_pause_s=0.05, **settings
        )
        self.connect = connector(bootstrap, name)

    def sink(self) -> Any:
        return make_sink(self.settings, self.bootstrap)

    def runner(self) -> Runner:
        return Runner(self.settings, self.sink(), self.connect)

    def catch_up(self) -> Place:
        return self.runner().catch_up()

    def rows(self, columns: str = "id, n") -> list[tuple[Any, ...]]:
        with suppress(sqlite3.OperationalError):
            db = sqlite3.connect(self.path)
            try:
                return sorted(db.execute(f"SELECT {columns} FROM orders").fetchall())
            finally:
                db.close()
        return []

    def status(self) -> SyncStatus:
        with connect(self.bootstrap) as cluster:
            return status_of(cluster, self.settings, NOW_MS)

    @contextmanager
    def running(self) -> Iterator[threading.Event]:
        stop = threading.Event()
        thread = threading.Thread(target=self.runner().run, args=(stop,))
        thread.start()
        try:
            yield stop
        finally:
            stop.set()
            thread.join(30)
            assert not thread.is_alive()


@pytest.fixture
def derived(bootstrap: str, topic: str, tmp_path: Path) -> Derived:
    return Derived(bootstrap, topic, tmp_path)


def test_a_target_follows_the_log(derived: Derived) -> None:
    with derived.running():
        write(derived.bootstrap, derived.topic, (upsert(key, {"n": 1}) for key in range(100)))
        wait_until(lambda: len(derived.rows()) == 100, "the rows did not come")
        write(derived.bootstrap, derived.topic, [upsert(1, {"n": 2}), *delete(2), upsert(200, {"n": 1})])
        wait_until(lambda: (1, 2) in derived.rows() and (200, 1) in derived.rows(), "the changes did not come")
    expected = sorted([(key, 1) for key in range(100) if key not in (1, 2)] + [(1, 2), (200, 1)])
    assert derived.rows() == expected


def test_it_goes_on_where_it_was(derived: Derived) -> None:
    write(derived.bootstrap, derived.topic, [upsert(key, {"n": 1}) for key in range(10)])
    derived.catch_up()
    db = sqlite3.connect(derived.path)
    db.execute("UPDATE orders SET n = 99")  # who read from the beginning would undo this
    db.commit()
    db.close()
    write(derived.bootstrap, derived.topic, [upsert(3, {"n": 3})])
    derived.catch_up()
    assert derived.rows() == [(key, 3 if key == 3 else 99) for key in range(10)]


@pytest.mark.parametrize("records", [1, 7, 1000])
def test_batches_of_any_size_come_to_the_same(bootstrap: str, topic: str, tmp_path: Path, records: int) -> None:
    derived = Derived(bootstrap, topic, tmp_path, limits=BatchLimits(records=records))
    changes: list[NewRecord] = []
    for turn in range(5):
        changes += [upsert(key, {"n": turn}) for key in range(turn, 20)]
        changes += delete(turn + 10)
    write(bootstrap, topic, changes)
    derived.catch_up()
    expected = {}
    for turn in range(5):
        expected |= dict.fromkeys(range(turn, 20), turn)
        expected.pop(turn + 10, None)
    assert derived.rows() == sorted(expected.items())


def test_a_truncate_empties_the_target_once_all_partitions_are_there(derived: Derived) -> None:
    write(derived.bootstrap, derived.topic, [upsert(key, {"n": 1}) for key in range(50)])
    write(derived.bootstrap, derived.topic, truncate(2, ts_us=10))
    write(derived.bootstrap, derived.topic, [upsert(key, {"n": 2}) for key in range(40, 60)])
    write(derived.bootstrap, derived.topic, truncate(2, ts_us=20))
    write(derived.bootstrap, derived.topic, [upsert(key, {"n": 3}) for key in range(55, 65)])
    derived.catch_up()
    assert derived.rows() == [(key, 3) for key in range(55, 65)]


SECOND_US = 1_700_000_000_000_000


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"ts_us": SECOND_US, "gtid": "0-1-5"}, {"ts_us": SECOND_US, "gtid": "0-1-6"}),
        ({"ts_us": SECOND_US, "pos": 700}, {"ts_us": SECOND_US, "pos": 800}),
        ({"ts_us": SECOND_US, "lsn": 900}, {"ts_us": SECOND_US + 1, "lsn": 50}),
        ({"ts_us": SECOND_US, "lsn": 900}, {"ts_us": SECOND_US - 5, "lsn": 950}),
    ],
    ids=["of-one-second", "of-one-second-without-gtid", "after-a-restore", "after-the-clock-went-back"],
)
def test_every_truncate_counts(derived: Derived, first: dict[str, Any], second: dict[str, Any]) -> None:
    for number, source in enumerate((first, second)):
        write(derived.bootstrap, derived.topic, [upsert(10 * number + key, {"n": 1}) for key in range(10)])
        value = json.dumps({"before": None, "after": None, "source": source, "op": "t"}).encode()
        all_of_it = [NewRecord(b'{"id":null}', value, NOW_MS, partition=partition) for partition in range(2)]
        write(derived.bootstrap, derived.topic, all_of_it)
    write(derived.bootstrap, derived.topic, [upsert(99, {"n": 2})])
    derived.catch_up()
    assert derived.rows() == [(99, 2)]


def test_a_truncate_in_partitions_that_are_new(derived: Derived) -> None:
    """They were added, filled and emptied before anybody looked for new ones."""
    clock = FakeClock()
    stop = threading.Event()
    write(derived.bootstrap, derived.topic, [upsert(key, {"n": 1}) for key in range(10)])
    runner = Runner(derived.settings, derived.sink(), derived.connect, clock=clock)
    thread = threading.Thread(target=runner.run, args=(stop,))
    thread.start()
    try:
        wait_until(lambda: len(derived.rows()) == 10, "the rows did not come")
        with connect(derived.bootstrap) as cluster:
            add_partitions(cluster, derived.topic, 5)
        grown = [upsert(key, {"n": 2}) for key in range(100, 140)]
        write(derived.bootstrap, derived.topic, [*grown, *truncate(5, ts_us=10), upsert(7, {"n": 3})])
        clock.advance(60_000)
        wait_until(lambda: len(derived.sink().place().offsets) == 5, "the new partitions are not read")
    finally:
        stop.set()
        thread.join(30)
    derived.catch_up()
    assert derived.rows() == [(7, 3)]


def test_a_truncate_behind_the_end_that_was_asked_for(derived: Derived) -> None:
    """Two partitions, and only one of them has come to its truncate when the end is looked up."""
    write(derived.bootstrap, derived.topic, [upsert(key, {"n": 1}) for key in range(50)])
    first, second = truncate(2, ts_us=10)
    write(derived.bootstrap, derived.topic, [first])
    with connect(derived.bootstrap) as cluster:
        ends = {where.partition: held.end for where, held in bounds(cluster, cluster.partitions(derived.topic)).items()}
        write(derived.bootstrap, derived.topic, [second, *(upsert(key, {"n": 2}) for key in range(5))])
        starts = dict.fromkeys(ends, 0)
        settings = derived.settings
        feed = Feed(cluster, derived.topic, starts, settings.form, settings.limits, until=ends)
        cleared = 0
        while not feed.is_at_end:
            gathered = feed.next()
            cleared += gathered is not None and gathered.clears
        assert cleared == 1
        assert feed.offsets[second.partition or 0] > ends[second.partition or 0]
    derived.catch_up()
    assert derived.rows() == [(key, 2) for key in range(5)]
    assert verify(derived.settings, derived.sink(), derived.connect).is_equal


def test_only_what_was_committed_counts(derived: Derived) -> None:
    producer = Producer(
        {"bootstrap.servers": derived.bootstrap, "transactional.id": derived.topic, "log_level": 0}
    )  # fmt: skip
    producer.init_transactions(30)
    for turn, is_kept in enumerate([True, False, True, False]):
        producer.begin_transaction()
        for key in range(10 * turn, 10 * turn + 15):
            record = upsert(key, {"n": turn})
            producer.produce(derived.topic, key=record.key, value=record.value)
        producer.commit_transaction(30) if is_kept else producer.abort_transaction(30)
    derived.catch_up()
    expected = dict.fromkeys(range(15), 0) | dict.fromkeys(range(20, 35), 2)
    assert derived.rows() == sorted(expected.items())

    # The markers of transactions are behind it too; Kafka writes them after it has answered.
    def is_behind() -> bool:
        derived.catch_up()
        return derived.status().lag_records == 0

    wait_until(is_behind, "the last markers are never read")


def test_a_topic_that_grows(derived: Derived) -> None:
    write(derived.bootstrap, derived.topic, [upsert(key, {"n": 1}) for key in range(10)])
    clock = FakeClock()
    stop = threading.Event()
    thread = threading.Thread(
        target=Runner(derived.settings, derived.sink(), derived.connect, clock=clock).run, args=(stop,)
    )
    thread.start()
    try:
        wait_until(lambda: len(derived.rows()) == 10, "the rows did not come")
        with connect(derived.bootstrap) as cluster:
            add_partitions(cluster, derived.topic, 4)
        write(derived.bootstrap, derived.topic, [upsert(key, {"n": 2}) for key in range(100, 140)])
        clock.advance(60_000)
        wait_until(lambda: len(derived.rows()) == 50, "the new partitions are not read")
    finally:
        stop.set()
        thread.join(30)
    assert set(derived.sink().place().offsets) == {0, 1, 2, 3}


@pytest.mark.parametrize("records", [3, 1000])
def test_a_topic_that_grew_is_read_in_the_order_of_the_source(
    bootstrap: str, topic: str, tmp_path: Path, records: int
) -> None:
    """The old changes of a key are in one partition, the new ones in another, with lower offsets."""
    derived = Derived(bootstrap, topic, tmp_path, limits=BatchLimits(records=records))
    expected: dict[int, int] = {}
    lsn = 0
    for partitions in (2, 3, 4, 7):
        if partitions > 2:
            with connect(bootstrap) as cluster:
                add_partitions(cluster, topic, partitions)
        changes = []
        for key in range(100):
            if (key + partitions) % 4:
                expected[key] = lsn = lsn + 1
                row = {"id": key, "n": lsn}
                # The clock of whoever wrote goes backwards; the place in the log does not.
                changes.append(NewRecord(key_of(key), envelope("u", None, row, ts_us=lsn), NOW_MS - lsn))
        write(bootstrap, topic, changes)
    derived.catch_up()
    assert derived.rows() == sorted(expected.items())
    assert verify(derived.settings, derived.sink(), derived.connect).is_equal


def test_a_row_that_was_read_is_older_than_what_an_open_transaction_commits(derived: Derived) -> None:
    """The change stood in the log before the row was read, and the topic grew before it was committed."""

    def change(op: str, n: int, committed: str, lsn: int) -> bytes:
        source = {"sequence": f'[{committed},"{lsn}"]', "lsn": lsn}
        after = {"id": 1, "n": n}
        return json.dumps({"before": None, "after": after, "source": source, "op": op}, separators=(",", ":")).encode()

    read, update = change("r", 0, "null", 300), change("u", 7, '"300"', 100)
    write(derived.bootstrap, derived.topic, [NewRecord(key_of(1), read, NOW_MS, partition=0)])
    write(derived.bootstrap, derived.topic, [NewRecord(key_of(1), update, NOW_MS, partition=1)])
    derived.catch_up()
    assert derived.rows() == [(1, 7)]


def test_what_cannot_be_used_goes_to_the_dead_letters(derived: Derived) -> None:
    db = sqlite3.connect(derived.path)
    db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, n INTEGER)")  # somebody chose the types
    db.close()
    write(
        derived.bootstrap,
        derived.topic,
        [
            upsert(1, {"n": 1}),
            NewRecord(key_of(2), b"no json", 1, partition=0),
            NewRecord(b"\xff\xfe", envelope("c", None, {"n": 5}), 2, partition=0),
            upsert(3, {"n": 3}),
        ],
    )
    derived.catch_up()
    write(derived.bootstrap, derived.topic, [upsert(4, {"n": "no number"}), upsert(5, {"n": 5})])
    derived.catch_up()
    assert derived.rows() == [(1, 1), (3, 3), (5, 5)]
    letters = _letters(derived)
    assert sorted(bytes(letter["error"]).decode().split(":")[0] for letter in letters) == [
        "column 'n' of SQLite table orders",
        "the key is not valid JSON",
        "the value is not valid JSON",
    ]
    for letter in letters:
        assert letter["topic"] == derived.topic.encode()
        assert letter["job"] == derived.settings.name.encode()
        assert {"partition", "offset", "timestamp", "key", "format"} < set(letter)


def _letters(derived: Derived) -> list[dict[str, Any]]:
    topic = derived.settings.dead_letters_topic
    with connect(derived.bootstrap) as cluster:
        partitions = cluster.partitions(topic)
        found = []
        for records in read_records(cluster, dict.fromkeys(partitions, 0)):
            if not records:
                return found
            found += [{header.key: header.value for header in read.record.headers} for read in records]
    return found


def test_plain_rows_without_an_envelope(bootstrap: str, topic: str, tmp_path: Path) -> None:
    derived = Derived(bootstrap, topic, tmp_path, form=RecordFormat(value="plain", key="text", key_column="id"))
    rows = [
        NewRecord(key, None if row is None else json.dumps(row).encode(), 1)
        for key, row in [(b"a", {"n": 1}), (b"b", {"n": 2}), (b"a", None), (b"c", {"n": 3, "__deleted": "true"})]
    ]
    write(bootstrap, topic, rows)
    derived.catch_up()
    assert derived.rows() == [("b", 2)]


def test_a_target_that_is_down_is_waited_for(derived: Derived) -> None:
    derived.catch_up()
    write(derived.bootstrap, derived.topic, [upsert(1, {"n": 1})])
    derived.path.rename(derived.path.with_suffix(".away"))
    derived.path.mkdir()  # nothing can be opened under its name now
    with derived.running():
        wait_until(lambda: derived.status().state == "waiting", "it did not say that it waits")
        assert "unable to open" in derived.status().error
        assert derived.status().waiting == "for its target"
        assert derived.status().lag_records == 1
        derived.path.rmdir()
        derived.path.with_suffix(".away").rename(derived.path)
        wait_until(lambda: derived.rows() == [(1, 1)], "the row did not come after the target was back")


def test_a_mistake_of_ours_is_a_failure_in_the_status(derived: Derived, monkeypatch: pytest.MonkeyPatch) -> None:
    write(derived.bootstrap, derived.topic, [upsert(1, {"n": 1})])
    runner = derived.runner()
    monkeypatch.setattr(runner, "_take", lambda *_: [][0])
    with pytest.raises(IndexError):
        runner.run(threading.Event())
    status = derived.status()
    assert (status.state, status.error) == (FAILED, "unexpected IndexError: list index out of range")


def test_several_sinks_of_one_topic_each_at_its_own_place(bootstrap: str, topic: str, tmp_path: Path) -> None:
    write(bootstrap, topic, [upsert(key, {"n": key}) for key in range(20)])
    good = SyncSettings("good-" + topic, topic, "sqlite", {"path": str(tmp_path / "a"), "table": "orders"})
    bad = SyncSettings("bad-" + topic, topic, "sqlite", {"path": str(tmp_path), "table": "orders"}, first_pause_s=0.05)
    stop = threading.Event()
    failures: dict[str, Any] = {}
    thread = threading.Thread(target=lambda: failures.update(run_all([good, bad], bootstrap, stop)))
    thread.start()
    reading = make_sink(good, bootstrap)
    with connect(bootstrap) as cluster:
        wait_until(
            lambda: (p := reading.place()) is not None and sum(p.offsets.values()) == 20,  # type: ignore[attr-defined]
            "the good sink was held up",
        )
        wait_until(lambda: status_of(cluster, good, NOW_MS).lag_records == 0, "its place was not told")
        wait_until(lambda: status_of(cluster, bad, NOW_MS).state == "waiting", "the bad one did not say so")
        assert status_of(cluster, bad, NOW_MS).lag_records == 20
    stop.set()
    thread.join(30)
    assert not thread.is_alive()
    assert not failures  # it would still be trying


def test_status_tells_the_lag_in_records_and_seconds(derived: Derived) -> None:
    assert derived.status().state == "never ran"
    write(derived.bootstrap, derived.topic, [upsert(key, {"n": 1}) for key in range(10)])
    assert derived.status().lag_records == 10
    derived.catch_up()
    status = derived.status()
    assert (status.lag_records, status.lag_s, status.state) == (0, 0.0, "stopped")
    write(derived.bootstrap, derived.topic, [upsert(1, {"n": 2}, NOW_MS - 30_000), upsert(1, {"n": 3}, NOW_MS)])
    status = derived.status()
    assert (status.lag_records, status.lag_s) == (2, 30.0)


def test_verify_names_what_differs(derived: Derived) -> None:
    write(derived.bootstrap, derived.topic, [upsert(key, {"n": key, "t": "x"}) for key in range(30)])
    derived.catch_up()
    equal = verify(derived.settings, derived.sink(), derived.connect)
    assert equal.is_equal
    assert (equal.source_rows, equal.target_rows) == (30, 30)
    assert equal.source_checksum == equal.target_checksum
    write(derived.bootstrap, derived.topic, [upsert(5, {"n": 500})])  # not applied yet, so no difference
    db = sqlite3.connect(derived.path)
    db.execute("UPDATE orders SET n = -1 WHERE id = 3")
    db.execute("DELETE FROM orders WHERE id = 4")
    db.execute("INSERT INTO orders (id, n) VALUES (77, 1)")
    db.commit()
    db.close()
    report = verify(derived.settings, derived.sink(), derived.connect)
    assert {(found.key, found.kind, found.columns) for found in report.differences} == {
        ("3", Kind.DIFFERENT, ("n",)),
        ("4", Kind.MISSING, ()),
        ("77", Kind.EXTRA, ()),
    }
    assert report.source_checksum != report.target_checksum


def test_verify_while_the_target_moves(derived: Derived) -> None:
    write(derived.bootstrap, derived.topic, [upsert(key, {"n": 0}) for key in range(200)])
    derived.catch_up()
    done = threading.Event()

    def go_on() -> None:
        for turn in range(1, 8):
            write(derived.bootstrap, derived.topic, [upsert(key, {"n": turn}) for key in range(200)])
        done.set()

    with derived.running():
        thread = threading.Thread(target=go_on)
        thread.start()
        while not done.is_set():
            assert verify(derived.settings, derived.sink(), derived.connect).is_equal
        thread.join()


def test_a_rebuild_mends_the_target_while_it_is_kept_in_step(derived: Derived) -> None:
    write(derived.bootstrap, derived.topic, [upsert(key, {"n": key}) for key in range(100)])
    with derived.running():
        wait_until(lambda: len(derived.rows()) == 100, "the rows did not come")
        db = sqlite3.connect(derived.path, timeout=30)
        db.execute("CREATE INDEX by_n ON orders (n)")
        db.execute("DELETE FROM orders WHERE id < 50")
        db.commit()
        rebuild(derived.settings, derived.sink(), derived.connect)
        assert len(derived.rows()) == 100
        assert db.execute("SELECT tbl_name FROM sqlite_master WHERE name = 'by_n'").fetchall() == [("orders",)]
        db.close()
        write(derived.bootstrap, derived.topic, [upsert(1, {"n": -1})])
        wait_until(lambda: (1, -1) in derived.rows(), "it does not go on with the rebuilt target")
    assert verify(derived.settings, derived.sink(), derived.connect).is_equal


def test_the_second_instance_takes_over(derived: Derived) -> None:
    write(derived.bootstrap, derived.topic, [upsert(1, {"n": 1})])
    first = derived.runner()
    caught: list[BaseException] = []

    def run() -> None:
        try:
            first.run(threading.Event())
        except TakenOver as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: derived.rows() == [(1, 1)], "the row did not come")
    with derived.running():
        write(derived.bootstrap, derived.topic, [upsert(2, {"n": 2})])
        wait_until(lambda: derived.rows() == [(1, 1), (2, 2)], "the second does not go on")
        thread.join(30)
    assert len(caught) == 1


def test_another_topic_is_refused(derived: Derived, bootstrap: str, tmp_path: Path) -> None:
    write(derived.bootstrap, derived.topic, [upsert(1, {"n": 1})])
    derived.catch_up()
    make_topic(bootstrap, derived.topic + "-other")
    other = Derived(bootstrap, derived.topic + "-other", tmp_path)
    with pytest.raises(SinkRefused, match="was filled from topic"):
        other.catch_up()
