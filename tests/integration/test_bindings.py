"""Bindings, as clients see them: other topics get copies of a topic's records, by key, header and filter."""

import json
import time
from collections.abc import Iterator

import pytest

from headrace.broker.embedded import Broker
from headrace.delivery.headers import DELAY_MS, ORIGIN
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from headrace.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from headrace.records import Header, Record, headers_in, records_of
from headrace.records.partitioning import partition_of_key
from headrace.security.acl import Operation, PatternType, Permission, ResourceType
from tests.conformance.clients.wire import Wire
from tests.integration.test_queue_delivery import HOUR_MS, PATIENCE_S, batch, header_of, message, now_ms, set_topic

BINDINGS = "headrace.bindings"


def bind(*bindings: dict[str, object]) -> dict[str, str]:
    return {BINDINGS: json.dumps(bindings)}


def read_log(wire: Wire, topic: str, partition: int = 0) -> list[Record]:
    """Everything up to the high watermark."""
    records: list[Record] = []
    offset = 0
    while True:
        answer = wire.fetch(topic, offset, partition=partition)
        assert not answer.error_code, answer
        data = answer.records or b""
        for position, header in headers_in(data):
            records += records_of(data[position : position + header.size])
            offset = header.next_offset
        if offset >= answer.high_watermark:
            return records


def read_until(wire: Wire, topic: str, value: bytes, partition: int = 0) -> list[Record]:
    """Everything once a record has come; copies of a partition's records come in their order."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        records = read_log(wire, topic, partition)
        if value in [record.value for record in records]:
            return records
        assert time.monotonic() < deadline, f"{topic} has {len(records)} records, and {value!r} is not one of them"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = {"auto.create.topics.enable": "false"}
    with Broker(tmp_path_factory.mktemp("bindings"), settings=settings) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def wire(servers: str) -> Iterator[Wire]:
    with Wire(servers) as wire:
        yield wire


def test_copies_go_by_key_header_and_filter_and_are_as_the_record_was(wire: Wire):
    wire.create("eu", partitions=3)
    wire.create("big")
    wire.create("sales")
    wire.create(
        "orders",
        configs=bind(
            {"to": "eu", "key": "orders.eu.*"},
            {"to": "big", "where": "value.amount > 100"},
            {"to": "sales", "header": {"kind": "sale.#"}},
            {"to": "sales", "key": "#.sale"},
        ),
    )
    sold_ms = now_ms() - HOUR_MS
    sold = message(b'{"amount": 7}', key=b"orders.eu.sale", at_ms=sold_ms)
    sold = sold._replace(headers=(Header("kind", b"sale.web"), Header(ORIGIN, b"forged/0/0")))
    sent = (message(b'{"amount": 101}', key=b"orders.us.ny"), sold, message(b"end", key=b"none"))
    assert not wire.produce("orders", batch(*sent)).error_code
    (big,) = read_until(wire, "big", b'{"amount": 101}')
    (sale,) = read_until(wire, "sales", b'{"amount": 7}')
    (eu,) = read_until(wire, "eu", b'{"amount": 7}', partition_of_key(b"orders.eu.sale", 3))
    assert header_of(big, ORIGIN) == b"orders/0/0"
    for copy in (sale, eu):
        assert (copy.key, copy.timestamp) == (b"orders.eu.sale", sold_ms)
        assert copy.headers == (Header("kind", b"sale.web"), Header(ORIGIN, b"orders/0/1"))
    assert [record.value for record in read_log(wire, "orders")] == [record.value for record in sent]


def test_copies_wait_for_a_topic_that_is_made_later_and_the_topics_own_readers_do_not(wire: Wire):
    wire.create("early", configs=bind({"to": "later", "key": "late"}))
    wire.produce("early", batch(message(b"1", key=b"late"), message(b"2", key=b"none"), message(b"3", key=b"late")))
    assert len(read_log(wire, "early")) == 3
    wire.create("later")
    assert [record.value for record in read_until(wire, "later", b"3")] == [b"1", b"3"]


def test_a_topic_is_bound_from_then_on_until_it_is_not_any_more(wire: Wire):
    wire.create("changed")
    wire.create("first")
    wire.create("second")
    wire.produce("changed", batch(message(b"before")))
    assert not set_topic(wire, "changed", headrace_bindings='[{"to": "first"}]').error_code
    wire.produce("changed", batch(message(b"bound")))
    read_until(wire, "first", b"bound")
    assert not set_topic(wire, "changed", headrace_bindings="").error_code
    wire.produce("changed", batch(message(b"unbound")))
    assert not set_topic(wire, "changed", headrace_bindings='[{"to": "first"}, {"to": "second"}]').error_code
    wire.produce("changed", batch(message(b"again")))
    assert [record.value for record in read_until(wire, "first", b"again")] == [b"bound", b"again"]
    assert [record.value for record in read_until(wire, "second", b"again")] == [b"again"]


def test_of_a_queue_what_is_delivered_is_copied_and_copies_of_copies_go_on(wire: Wire):
    wire.create("third")
    wire.create("between", configs=bind({"to": "third"}))
    wire.create("queue", configs={"headrace.queue": "true"} | bind({"to": "between"}))
    asked = (message(b"late", delay_ms="400"), message(b"once", dedup_id="x"), message(b"twice", dedup_id="x"))
    wire.produce("queue", batch(*asked))
    copies = read_until(wire, "third", b"late")
    assert [copy.value for copy in copies] == [b"once", b"late"]
    assert [header_of(copy, ORIGIN) for copy in copies] == [b"between/0/0", b"between/0/1"]
    assert header_of(copies[1], DELAY_MS) is None


def test_copies_wait_for_room_in_a_full_topic(wire: Wire):
    wire.create("narrow", configs={"headrace.overflow": "block", "headrace.overflow.records": "2"})
    wire.create("wide", configs=bind({"to": "narrow"}))
    wire.produce("wide", batch(*(message(b"%d" % number) for number in range(3))))
    assert [record.value for record in read_until(wire, "narrow", b"1")] == [b"0", b"1"]
    assert not set_topic(wire, "narrow", headrace_overflow_records="3").error_code
    assert [record.value for record in read_until(wire, "narrow", b"2")] == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    ("bindings", "words"),
    [
        ("eu", "not JSON"),
        ('[{"to": "x", "key": "a..b"}]', "empty word"),
        ('[{"to": "x", "where": "a ="}]', "character"),
        ('[{"to": "refused"}]', "refused → refused"),
        ('[{"to": "__consumer_offsets"}]', "__consumer_offsets"),
    ],
)
def test_bindings_that_are_malformed_or_lead_back_are_refused(wire: Wire, bindings: str, words: str):
    config = CreatableTopicConfig(name=BINDINGS, value=bindings)
    topic = CreatableTopic(name="refused", num_partitions=1, replication_factor=1, configs=[config])
    (made,) = wire.ask(CreateTopicsRequest(topics=[topic])).topics
    assert made.error_code == ErrorCode.INVALID_CONFIG
    assert words in made.error_message
    assert made.error_message.startswith("headrace.bindings is invalid: ")


def test_whoever_binds_may_read_the_topic_and_write_to_the_others(tmp_path_factory: pytest.TempPathFactory):
    settings = {"authorization": "on", "allow.everyone.if.no.acl.found": "true", "super.users": "User:root"}
    # A topic that has ACLs is nobody's but theirs: all else has to be allowed.
    acls = [
        AclCreation(
            resource_type=ResourceType.TOPIC,
            resource_name=topic,
            resource_pattern_type=PatternType.LITERAL,
            principal="User:ANONYMOUS",
            host="127.0.0.1",
            operation=operation,
            permission_type=permission,
        )
        for topic, denied in (("shut", Operation.WRITE), ("secret", Operation.READ))
        for operation, permission in ((Operation.ALL, Permission.ALLOW), (denied, Permission.DENY))
    ]
    with Broker(tmp_path_factory.mktemp("access"), settings=settings) as broker, Wire(broker.bootstrap_servers) as wire:
        for name in ("shut", "open", "secret", "known"):
            wire.create(name)
        results = wire.ask(CreateAclsRequest(creations=acls)).results
        assert not [each for each in results if each.error_code]
        for topic, target, is_allowed in (
            ("known", "shut", False),
            ("secret", "open", False),
            ("known", "open", True),
        ):
            answer = set_topic(wire, topic, headrace_bindings=json.dumps([{"to": target}]))
            expected = ErrorCode.NONE if is_allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert answer.error_code == expected, (topic, target, answer)
        config = CreatableTopicConfig(name=BINDINGS, value='[{"to": "shut"}]')
        topic = CreatableTopic(name="new", num_partitions=1, replication_factor=1, configs=[config])
        (made,) = wire.ask(CreateTopicsRequest(topics=[topic])).topics
        assert made.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert not set_topic(wire, "known", retention_ms="1000").error_code, "other settings need no more than before"
