"""`headrace.changes` of a topic."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

import headrace
from headrace.connect.changes import BadToken, PositionLost, changes
from headrace.connect.changes import topic as topic_reading
from headrace.connect.errors import InvalidConnectSetting, SourceRefused
from headrace.testing.contracts.changes import ChangesContract, ids, read, rest
from tests.integration.waiting import wait_until

QUIET = {"log_level": 0}


class TopicStand:
    """A compacted topic: a table whose rows are JSON."""

    def __init__(self, broker: headrace.Broker, topic: str = "t") -> None:
        servers = {"bootstrap.servers": broker.bootstrap_servers, **QUIET}
        self.topic = topic
        self.url = f"kafka://{broker.bootstrap_servers}/{topic}"
        self.tables: list[str] = []
        self.settings: dict[str, Any] = {}
        self.admin = AdminClient(servers)
        self._servers = servers | {"linger.ms": 0, "message.max.bytes": 8_000_000}
        self.make()

    def make(self, partitions: int = 1, **configs: str) -> None:
        for name in self.admin.list_topics(timeout=20).topics:
            if name == self.topic:
                self.admin.delete_topics([name])[name].result()
                wait_until(lambda: self.topic not in self.admin.list_topics(timeout=20).topics, "the topic stays")
        config = {"cleanup.policy": "compact", "max.message.bytes": "8000000", **configs}
        self.admin.create_topics([NewTopic(self.topic, partitions, 1, config=config)])[self.topic].result()
        self._producer = Producer(self._servers)  # what it knows of topics is new, too

    def grow(self, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(self.topic, partitions)])[self.topic].result()
        self._producer = Producer(self._servers)

    def send(self, key: str | None, value: bytes | str | None, partition: int = -1) -> None:
        self._producer.produce(self.topic, key=key, value=value, partition=partition)
        assert self._producer.flush(30) == 0

    def put(self, rows: dict[int, str]) -> None:
        for id_, text in rows.items():
            self._producer.produce(self.topic, key=str(id_), value=json.dumps({"id": id_, "v": text}))
        assert self._producer.flush(30) == 0

    def remove(self, id_: int) -> None:
        self.send(str(id_), None)

    def lose(self) -> None:
        self.make()


@pytest.fixture(scope="module")
def broker() -> Iterator[headrace.Broker]:
    with headrace.Broker(durability="os") as made:
        yield made


@pytest.fixture
def stand(broker: headrace.Broker) -> TopicStand:
    return TopicStand(broker)


class TestTopic(ChangesContract):
    tells_creates = False


def envelope(op: str, before: Any, after: Any, **more: Any) -> str:
    source = {"schema": "public", "table": "orders", "ts_us": 1_700_000_000_000_000, "txId": 7, "lsn": 9}
    return json.dumps({"op": op, "before": before, "after": after, "source": source, "ts_ms": 1, **more})


def test_envelopes_are_the_changes_that_they_tell(stand: TopicStand) -> None:
    row = {"id": 1, "v": "a"}
    with changes(stand.url) as stream:
        stand.send('{"id": 1}', envelope("c", None, row))
        stand.send('{"id": 1}', envelope("u", row, {**row, "v": "b"}))
        wrapped = {"schema": {"type": "struct", "fields": []}, "payload": json.loads(envelope("d", row, None))}
        stand.send('{"id": 1}', json.dumps(wrapped))
        stand.send('{"id": 1}', None)  # the tombstone of the delete
        stand.send('{"id": 1}', None)  # a delete of its own
        stand.send("all", envelope("t", None, None))
        stand.send("x", json.dumps({"op": "c", "price": 3}))  # a row that has a column `op`
        found = read(stream, 6)
    assert [change.op for change in found] == ["c", "u", "d", "d", "t", "u"]
    first = found[0]
    assert (first.table, first.key, first.after, first.transaction) == ("public.orders", {"id": 1}, row, "7")
    assert first.ts_us == 1_700_000_000_000_000
    assert found[1].before == row
    assert found[5].after == {"op": "c", "price": 3}
    assert found[5].table == "t"


def test_a_token_between_a_delete_and_its_tombstone_tells_neither_twice(stand: TopicStand) -> None:
    with changes(stand.url) as stream:
        stand.send("1", envelope("d", {"id": 1}, None))
        token = read(stream, 1)[0].position
    stand.send("1", None)
    stand.send("2", "2")
    with changes(stand.url, resume=token) as stream:
        assert [change.key for change in read(stream, 1)] == [{"key": 2}]


def test_values_of_any_form(stand: TopicStand) -> None:
    with changes(stand.url) as stream:
        stand.send("k", "text")
        stand.send("k", b"\xff\x00")
        stand.send("k", "[1, 2]")
        stand.send("k", "{" * 5000)
        found = read(stream, 4)
        for change in found:
            json.dumps(change.as_json())
    assert [change.after for change in found[:3]] == [{"value": "text"}, {"value": b"\xff\x00"}, {"value": [1, 2]}]


def test_partitions_that_are_added_are_read_from_their_beginning(stand: TopicStand) -> None:
    stand.make(2)
    with changes(stand.url) as stream:
        stand.send("1", '{"id": 1}', 0)
        stand.send("2", '{"id": 2}', 1)
        found = read(stream, 2)
        stand.grow(3)
        stand.send("3", '{"id": 3}', 2)
        found += read(stream, 1)
        token = found[-1].position
    assert sorted(ids(found)) == [1, 2, 3]
    stand.grow(4)
    stand.send("4", '{"id": 4}', 3)
    with changes(stand.url, resume=token) as stream:
        assert ids(read(stream, 1)) == [4]
        assert rest(stream) == []


def test_records_that_were_removed_are_told_as_a_gap(stand: TopicStand, broker: headrace.Broker) -> None:
    stand.make(**{"cleanup.policy": "delete"})
    with changes(stand.url) as stream:
        stand.put({1: "a"})
        token = read(stream, 1)[0].position
    stand.put({2: "b", 3: "c"})
    stand.admin.delete_records([TopicPartition(stand.topic, 0, 2)])
    wait_until(lambda: _start_of(stand) == 2, "records stay")
    with pytest.raises(PositionLost, match="begins at 2 now, behind the token's offset 1"):
        changes(stand.url, resume=token).open()


def _start_of(stand: TopicStand) -> int:
    where = TopicPartition(stand.topic, 0)
    return int(stand.admin.list_offsets({where: OffsetSpec.earliest()})[where].result().offset)


def test_deletes_that_compaction_may_have_forgotten_are_told_as_a_gap(stand: TopicStand) -> None:
    stand.make(**{"delete.retention.ms": "0"})
    with changes(stand.url) as stream:
        stand.put({1: "a"})
        token = read(stream, 1)[0].position
    with changes(stand.url, resume=token) as stream:  # nothing came since, so nothing is missing
        assert rest(stream, 0.3) == []
    stand.remove(1)
    with pytest.raises(PositionLost, match=r"delete\.retention\.ms"):
        changes(stand.url, resume=token).open()


def test_who_sleeps_for_longer_than_deletes_are_kept_is_told(
    stand: TopicStand, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = topic_reading._now_ms
    with changes(stand.url) as stream:
        stand.put({1: "a", 2: "b"})
        assert ids(read(stream, 2)) == [1, 2]
        monkeypatch.setattr(topic_reading, "_now_ms", lambda: now_ms() + 2 * 86_400_000)
        stand.remove(1)  # it may have been gone before
        with pytest.raises(PositionLost, match=r"delete\.retention\.ms"):
            read(stream, 1)


def test_mistakes_are_refused(stand: TopicStand, broker: headrace.Broker) -> None:
    with pytest.raises(SourceRefused, match="does not exist"):
        changes(f"kafka://{broker.bootstrap_servers}/nothing").open()
    for url in ("kafka://127.0.0.1:1", "kafka://127.0.0.1:1/a/b", "kafka://u:p@127.0.0.1:1/a"):
        with pytest.raises(InvalidConnectSetting):
            changes(url)
    with pytest.raises(InvalidConnectSetting, match="leave it out"):
        changes(stand.url, slot="mine")
    with pytest.raises(InvalidConnectSetting, match="no such setting"):
        changes(stand.url, nonsense=1)
    with changes(stand.url) as stream:
        token = stream.position
    with pytest.raises(BadToken, match="of topic t, and this stream is of topic other"):
        changes(stand.url.replace("/t", "/other"), resume=token)
