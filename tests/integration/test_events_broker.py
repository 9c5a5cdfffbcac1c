"""Events on our broker: check and append are one step, and an index finds what is asked for."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient

from headrace import Broker
from headrace.client import leaders
from headrace.client.address import parse_bootstrap
from headrace.client.admin import alter_configs, create_topic, delete_topics, describe_configs
from headrace.client.cluster import Cluster
from headrace.client.connection import ConnectionSettings
from headrace.client.errors import LostConnection, Refused
from headrace.client.events import append_events, select_events
from headrace.client.offsets import LATEST, list_offsets
from headrace.client.quotas import alter_quotas
from headrace.client.writer import init_producer
from headrace.delivery.events import COMMAND, TAG, TYPE, VERSION, Criterion, Selection
from headrace.eventsourcing.broker_store import BrokerEventStore
from headrace.eventsourcing.errors import BoundaryConflict, Conflict, EventSourcingError
from headrace.eventsourcing.model import ALL, Condition, NewEvent, StreamAppend
from headrace.eventsourcing.model import where as query_of
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.produce import ProduceResponse
from headrace.records import Codec, Header, Record, build_batch, headers_in, records_of
from headrace.security.quotas import Entity
from headrace.storage import event_index
from headrace.testing.contracts.event_erasure import ChainContract, RedactionContract, RefusedArchivingContract
from headrace.testing.contracts.events import EventStoreContract, made, put
from tests.reading import read_committed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_NUMBERS = count()
EVENTS = {"headrace.events": "true"}


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[Cluster]:
    with Cluster(parse_bootstrap(bootstrap)) as cluster:
        yield cluster


@pytest.fixture
def where(cluster: Cluster) -> TopicPartition:
    """The partition of a topic that keeps events."""
    topic = f"kept-{next(_NUMBERS)}"
    create_topic(cluster, topic, partitions=1, configs=EVENTS)
    return TopicPartition(topic, 0)


class TestBrokerEventStore(EventStoreContract, RedactionContract, RefusedArchivingContract, ChainContract):
    @pytest.fixture
    def open_store(self, bootstrap: str) -> Callable[[], Any]:
        topic = f"events-{next(_NUMBERS)}"
        return lambda: BrokerEventStore(lambda: Cluster(parse_bootstrap(bootstrap)), topic)


def event(stream: str, version: int, *tags: str, command: str = "", place: int = 0) -> Record:
    headers = [Header(VERSION, b"%d" % version), Header(TYPE, b"noted")]
    headers += [Header(TAG, tag.encode()) for tag in tags]
    if command:
        headers.append(Header(COMMAND, command.encode()))
    return Record(place, 1_700_000_000_000, stream.encode(), b"{}", tuple(headers))


def batch_of(*records: Record, **more: Any) -> bytes:
    return build_batch([each._replace(offset=place) for place, each in enumerate(records)], **more)


def selected(cluster: Cluster, where: TopicPartition, selection: Selection) -> list[tuple[int, bytes | None]]:
    data = memoryview(select_events(cluster, where, selection).records)
    return [
        (record.offset, record.key)
        for at, header in headers_in(data)
        for record in records_of(data[at : at + header.size])
    ]


def refused(cluster: Cluster, where: TopicPartition, batch: bytes) -> Refused:
    """Why a batch is not appended; nothing of it is."""
    before = list_offsets(cluster, {where: LATEST})[where].offset
    with pytest.raises(Refused) as refusal:
        append_events(cluster, where, batch)
    assert list_offsets(cluster, {where: LATEST})[where].offset == before
    return refusal.value


def test_a_plain_kafka_producer_appends_events_and_is_refused_a_conflict(bootstrap: str, where: TopicPartition) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": False})
    outcomes: list[KafkaError | None] = []

    def send(version: int) -> None:
        headers: list[tuple[str, Any]] = [(VERSION, str(version).encode()), (TYPE, b"noted")]
        producer.produce(
            where.topic, b"{}", b"a-1", headers=headers, on_delivery=lambda error, _: outcomes.append(error)
        )
        assert not producer.flush(60)

    for version in (1, 2, 2, 4, 3):
        send(version)
    codes = [error.code() if error else 0 for error in outcomes]
    assert codes == [0, 0, KafkaError.POLICY_VIOLATION, KafkaError.POLICY_VIOLATION, 0]
    versions = [dict(message.headers() or [])[VERSION] for message in read_committed(bootstrap, where.topic)]
    assert versions == [b"1", b"2", b"3"]


def test_an_idempotent_producer_may_send_a_batch_again(cluster: Cluster, where: TopicPartition) -> None:
    producer = init_producer(cluster)
    numbers = {"producer_id": producer.id, "producer_epoch": producer.epoch}
    batch = batch_of(event("a", 1), base_sequence=0, **numbers)
    first = append_events(cluster, where, batch)
    assert append_events(cluster, where, batch) == first
    conflicting = batch_of(event("a", 1), base_sequence=1, **numbers)
    assert refused(cluster, where, conflicting).code is ErrorCode.POLICY_VIOLATION
    assert append_events(cluster, where, batch_of(event("a", 2), base_sequence=1, **numbers)).base_offset == 1


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (Record(0, 1, None, b"", ()), "has no key"),
        (Record(0, 1, b"a", b"", ()), f"{VERSION} is missing"),
        (Record(0, 1, b"a", b"", (Header(VERSION, b"1"),)), f"{TYPE} is missing"),
        (Record(0, 1, b"a", b"", (Header(VERSION, b"0"), Header(TYPE, b"t"))), "not a number from 1 on"),
        (Record(0, 1, b"a", b"", (Header(VERSION, b"x"), Header(TYPE, b"t"))), "not a number from 1 on"),
        (Record(0, 1, b"\xff", b"", (Header(VERSION, b"1"), Header(TYPE, b"t"))), "not UTF-8"),
        (event("a", 2, "t" * 501), "has 501 bytes"),
        (event("a", 2)._replace(headers=(*event("a", 2).headers, Header("headrace-append-if", b"{"))), "valid JSON"),
    ],
)
def test_what_is_not_an_event_is_refused_with_its_whole_batch(
    cluster: Cluster, where: TopicPartition, record: Record, reason: str
) -> None:
    refusal = refused(cluster, where, batch_of(event("a", 1), record))
    assert refusal.code is ErrorCode.INVALID_RECORD
    assert "record 1 of the batch" in str(refusal)
    assert reason in str(refusal)


def test_some_commands_known_and_some_not_are_refused(cluster: Cluster, where: TopicPartition) -> None:
    assert not append_events(cluster, where, batch_of(event("a", 1, command="one"))).is_repeat
    mixed = batch_of(event("a", 2, command="one"), event("a", 3, command="two"))
    assert "batch of its own" in str(refused(cluster, where, mixed))
    assert append_events(cluster, where, batch_of(event("b", 9, command="one")))[:2] == (0, True)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_selection_is_records_of_large_batches(cluster: Cluster, where: TopicPartition, codec: Codec) -> None:
    """Batches of many streams, of which a reader of one gets its own events alone."""
    for turn in range(1, 4):
        append_events(cluster, where, batch_of(*(event(f"s-{n}", turn, f"n:{n % 3}") for n in range(300)), codec=codec))
    assert selected(cluster, where, Selection(stream="s-7")) == [(7, b"s-7"), (307, b"s-7"), (607, b"s-7")]
    assert selected(cluster, where, Selection(stream="s-7", first=2, last=2)) == [(307, b"s-7")]
    third = selected(cluster, where, Selection(query=(Criterion(tags=frozenset(["n:2"]), category="s"),), before=310))
    assert [offset for offset, _ in third] == [n for n in range(310) if n % 300 % 3 == 2]


def test_events_and_other_ways_of_a_topic_exclude_each_other(cluster: Cluster, where: TopicPartition) -> None:
    for other in (
        {"cleanup.policy": "compact"},
        {"headrace.queue": "true"},
        {"headrace.storage": "memory", "headrace.overflow": "block", "headrace.overflow.bytes": "100000"},
        {"headrace.overflow": "reject", "headrace.overflow.records": "5"},
    ):
        with pytest.raises(Refused, match="keeps every event"):
            create_topic(cluster, f"kept-{next(_NUMBERS)}", configs=EVENTS | other)
    settings = {each.name: each.value for each in describe_configs(cluster, where.topic)}
    assert (settings["retention.ms"], settings["retention.bytes"]) == ("-1", "-1")


def test_a_selection_of_a_topic_without_events_is_refused(cluster: Cluster) -> None:
    topic = f"plain-{next(_NUMBERS)}"
    create_topic(cluster, topic, partitions=1)
    with pytest.raises(Refused) as refusal:
        select_events(cluster, TopicPartition(topic, 0), Selection(stream="a"))
    assert refusal.value.code is ErrorCode.INVALID_REQUEST
    with pytest.raises(EventSourcingError, match="keeps no events"):
        BrokerEventStore(lambda: Cluster(parse_bootstrap(str(cluster))), topic)


def test_a_topic_that_begins_to_keep_events_knows_those_that_it_has(cluster: Cluster) -> None:
    """Records from before that are not events are in nobody's way."""
    where = TopicPartition(f"later-{next(_NUMBERS)}", 0)
    create_topic(cluster, where.topic, partitions=1)
    append_events(cluster, where, batch_of(Record(0, 1, None, b"plain", ()), event("a", 1), event("a", 2)))
    alter_configs(cluster, where.topic, changes=EVENTS)
    assert refused(cluster, where, batch_of(event("a", 2))).code is ErrorCode.POLICY_VIOLATION
    append_events(cluster, where, batch_of(event("a", 3)))
    assert [offset for offset, _ in selected(cluster, where, Selection(stream="a"))] == [1, 2, 3]


def test_a_condition_that_nobody_can_see_is_a_conflict_all_the_same(bootstrap: str, cluster: Cluster) -> None:
    """What is in its way was deleted, or is not an event: an append was sent again and again, for ever."""
    topic = f"hidden-{next(_NUMBERS)}"
    create_topic(cluster, topic, partitions=1)
    append_events(cluster, TopicPartition(topic, 0), batch_of(Record(0, 1, None, b"plain", ())))
    alter_configs(cluster, topic, changes=EVENTS)
    store = BrokerEventStore(lambda: Cluster(parse_bootstrap(bootstrap)), topic)
    with pytest.raises(BoundaryConflict):
        put(store, "a", condition=Condition(ALL, 0))
    put(store, "a", made("x", b"", "t"), command_id="c-1")
    put(store, "b", made("x", b"", "t"))
    _delete_before(bootstrap, topic, 2)
    with pytest.raises(BoundaryConflict):
        put(store, "c", condition=Condition(query_of(tags=["t"]), 0))
    again = put(store, "a", command_id="c-1")
    assert (again.is_repeat, again.versions) == (True, {})
    assert [each.stream for each in store.read()] == [each.stream for each in store.read(backward=True)] == ["b"]
    _delete_before(bootstrap, topic, 3)
    assert (list(store.read()), list(store.list_streams())) == ([], [])
    assert put(store, "b", expected=1).versions == {"b": 2}
    store.close()


def _delete_before(bootstrap: str, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.delete_records([ConfluentPartition(topic, 0, offset)]).values():
        done.result()


def test_an_append_whose_answer_was_lost_is_not_a_repeat(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = BrokerEventStore(lambda: Cluster(parse_bootstrap(bootstrap)), f"lost-{next(_NUMBERS)}")

    ask_once, lost = leaders._ask_once, list[object]()

    def lose_first(cluster: Cluster, partitions: list[TopicPartition], question: Any) -> Any:
        for where, outcome in ask_once(cluster, partitions, question):
            is_first = question.response is ProduceResponse and question not in lost
            lost.append(question)
            yield where, LostConnection("lost") if is_first else outcome

    monkeypatch.setattr(leaders, "_ask_once", lose_first)
    for command in ("", "c-1"):
        done = put(store, "a", made(), made(), command_id=command)
        assert (done.is_repeat, done.position) == (False, done.versions["a"])
    assert put(store, "a", command_id="c-1").is_repeat
    assert len(lost) > 3
    assert [each.version for each in store.read()] == [1, 2, 3, 4]
    store.close()


def test_a_client_that_is_throttled_gets_all_of_its_events(bootstrap: str, cluster: Cluster) -> None:
    """An answer without events would say that there are none, and a decision be made without them."""
    settings = ConnectionSettings(client_id="slow")
    store = BrokerEventStore(lambda: Cluster(parse_bootstrap(bootstrap), settings), f"slow-{next(_NUMBERS)}")
    put(store, "a", *(made("x", b"x" * 10_000, "t") for _ in range(4)), command_id="c-1")
    slow = Entity(client_id="slow")
    alter_quotas(cluster, slow, {"consumer_byte_rate": 40_000})
    assert len(list(store.read(query_of(tags=["t"])))) == 4
    alter_quotas(cluster, slow, {"consumer_byte_rate": 100_000})
    assert len(list(store.read(query_of(tags=["t"])))) == 4
    assert store.find_command("c-1") is not None
    alter_quotas(cluster, slow, {"consumer_byte_rate": None})
    store.close()


def test_no_transactions(bootstrap: str, where: TopicPartition) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": where.topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    errors: list[Any] = []
    producer.produce(
        where.topic,
        b"",
        b"a",
        headers=[(VERSION, b"1"), (TYPE, b"noted")],
        on_delivery=lambda error, _: errors.append(error),
    )
    producer.flush(60)
    assert errors[0] is not None
    with pytest.raises(KafkaException):
        producer.commit_transaction(60)


def test_events_are_known_after_a_restart_with_the_index_or_without_it(tmp_path: Path) -> None:
    """And the index of a topic that was deleted goes with it."""

    def indexes() -> list[Path]:
        return list((tmp_path / "topics").glob("*.events"))

    for life in range(3):
        with Broker(data_dir=tmp_path) as broker:
            store = BrokerEventStore(lambda servers=broker.bootstrap_servers: Cluster(parse_bootstrap(servers)), "kept")
            for stream in ("a", "b"):
                events = [NewEvent("noted", b"%d" % life, ("t",)) for _ in range(100)]
                store.append([StreamAppend(stream, events, life * 100)])
            assert [each.version for each in store.read_stream("b")] == list(range(1, life * 100 + 101))
            assert len(indexes()) == 1
            store.close()
        if life == 1:
            for path in (tmp_path / "topics").glob("*.events*"):
                path.unlink()
    with Broker(data_dir=tmp_path) as broker, Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
        delete_topics(cluster, ["kept"])
    with Broker(data_dir=tmp_path):
        pass
    assert indexes() == []


def test_an_index_that_is_damaged_while_it_is_used_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every look-up failed from then on, and after a restart, too."""
    monkeypatch.setattr(event_index, "PORTION", 50)
    with Broker(tmp_path) as broker:
        store = BrokerEventStore(lambda: Cluster(parse_bootstrap(broker.bootstrap_servers)), "damaged")
        for number in range(60):
            put(store, f"s-{number}", made("x", b"", "t"), command_id=f"c-{number}")
        [index] = tmp_path.rglob("*.events")
        for path in (index, Path(f"{index}-wal")):
            size = path.stat().st_size
            with path.open("r+b") as file:
                file.seek(min(4096, size // 2))
                file.write(b"\xff" * (size - min(4096, size // 2)))
        with pytest.raises(Conflict) as conflict:
            put(store, "s-7", expected=0)
        assert conflict.value.actual == 1
        assert put(store, "s-1", command_id="c-1").is_repeat
        assert len(list(store.read(query_of(tags=["t"])))) == 60
        store.close()
