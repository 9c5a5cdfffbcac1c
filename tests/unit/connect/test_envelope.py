"""The envelope: records that a reader of Debezium's topics would know."""

import json
from typing import Any

import pytest

from headrace.connect.change import Change, Event, Message, Origin, SchemaChange, TransactionEnd
from headrace.connect.envelope import EVERY_PARTITION, EnvelopeSettings, EnvelopeWriter, OutRecord, TopicNames
from headrace.connect.errors import InvalidConnectSetting, SourceRefused
from headrace.connect.filters import Filters
from headrace.connect.postgres.types import TypeModes, codec_of
from headrace.connect.table import Column, Table, to_wire

NOW_US = 1_700_000_000_123_456
ORIGIN = Origin("77", 1_600_000_000_000_001, "false", {"txId": 77}, ("lsn",))
PLACE = 42


def column(name: str, type_id: int, *, optional: bool = True) -> Column:
    return Column(name, *codec_of(type_id, -1, TypeModes(), lambda _: None), optional, type_id)


TABLE = Table("public", "people", (column("id", 23, optional=False), column("name", 25), column("secret", 25)), (0,))
KEYLESS = Table("public", "lines", (column("text", 25),), ())


def write(*events: Event, filters: Filters | None = None, **settings: Any) -> list[OutRecord]:
    chosen = EnvelopeSettings("postgresql", "shop", "1.0", TopicNames("srv"), **settings)
    return list(EnvelopeWriter(chosen, filters or Filters()).write(events, NOW_US))


def change(op: str, before: Any = None, after: Any = None, table: Table = TABLE) -> Change:
    return Change(table, op, before, after, ORIGIN, PLACE)


def value_of(record: OutRecord) -> Any:
    assert record.value is not None
    return json.loads(record.value)


def test_a_create() -> None:
    (record,) = write(change("c", None, ("1", to_wire('é"\n'), None)))
    assert (record.topic, record.key, record.timestamp_ms) == ("srv.public.people", b'{"id":1}', 1_600_000_000_000)
    assert value_of(record) == {
        "before": None,
        "after": {"id": 1, "name": 'é"\n', "secret": None},
        "source": {
            "version": "1.0",
            "connector": "postgresql",
            "name": "srv",
            "db": "shop",
            "schema": "public",
            "table": "people",
            "ts_ms": 1600000000000,
            "ts_us": 1600000000000001,
            "ts_ns": 1600000000000001000,
            "snapshot": "false",
            "txId": 77,
            "lsn": 42,
        },
        "op": "c",
        "transaction": None,
        "ts_ms": NOW_US // 1000,
        "ts_us": NOW_US,
        "ts_ns": NOW_US * 1000,
    }


def test_a_delete_and_its_tombstone() -> None:
    deleted, tombstone = write(change("d", ("1", None, None)))
    assert value_of(deleted)["op"] == "d"
    assert value_of(deleted)["after"] is None
    assert (tombstone.key, tombstone.value) == (deleted.key, None)
    assert len(write(change("d", ("1", None, None)), tombstones=False)) == 1


def test_an_update_of_the_key_is_a_delete_and_a_create_that_name_each_other() -> None:
    deleted, tombstone, created = write(change("u", ("1", None, None), ("2", "x", "y")))
    assert (value_of(deleted)["op"], tombstone.value, value_of(created)["op"]) == ("d", None, "c")
    assert deleted.headers == (("__debezium.newkey", b'{"id":2}'),)
    assert created.headers == (("__debezium.oldkey", b'{"id":1}'),)


def test_an_update_that_tells_the_old_row() -> None:
    (record,) = write(change("u", ("1", "a", "b"), ("1", "c", "b")))
    assert value_of(record)["before"] == {"id": 1, "name": "a", "secret": "b"}


def test_a_truncate_goes_to_every_partition_under_a_key_that_no_row_has() -> None:
    (record,) = write(change("t"))
    assert (record.key, record.partition, value_of(record)["op"]) == (b'{"id":null}', EVERY_PARTITION, "t")


def test_a_table_without_a_key_has_records_without_one() -> None:
    created, deleted = write(change("c", None, ("a",), KEYLESS), change("d", ("a",), None, KEYLESS))
    assert created.key is None
    assert deleted.key is None  # and no tombstone, which nobody could match


def test_skipped_operations() -> None:
    assert write(change("t"), change("d", ("1", None, None)), skipped_operations=frozenset("td")) == []
    with pytest.raises(InvalidConnectSetting, match="choose among"):
        write(skipped_operations=frozenset("x"))


def test_unwrapped_rows() -> None:
    events = [change("c", None, ("1", "a", None)), change("d", ("1", None, None)), change("t")]
    created, tombstone = write(*events, unwrap="drop")
    assert value_of(created) == {"id": 1, "name": "a", "secret": None}
    assert tombstone.value is None
    created, deleted, tombstone = write(*events, unwrap="rewrite")
    assert value_of(created)["__deleted"] == "false"
    assert value_of(deleted) == {"id": 1, "name": None, "secret": None, "__deleted": "true"}
    assert tombstone.value is None


def test_unwrapped_updates_of_the_key_leave_nothing_under_the_old_one() -> None:
    tombstone, created = write(change("u", ("1", None, None), ("2", "x", "y")), unwrap="drop")
    assert (tombstone.key, tombstone.value, created.key) == (b'{"id":1}', None, b'{"id":2}')


def test_schemas_describe_the_payload() -> None:
    (record,) = write(change("c", None, ("1", "a", None)), schemas=True)
    value = value_of(record)
    assert set(value) == {"schema", "payload"}
    fields = {field["field"]: field for field in value["schema"]["fields"]}
    assert set(fields) == set(value["payload"])
    assert {field["field"] for field in fields["after"]["fields"]} == {"id", "name", "secret"}
    assert record.key is not None
    assert json.loads(record.key)["payload"] == {"id": 1}
    (flat,) = write(change("c", None, ("1", "a", None)), schemas=True, unwrap="drop")
    assert value_of(flat)["payload"] == {"id": 1, "name": "a", "secret": None}


def test_columns_are_left_out_masked_hashed_and_truncated() -> None:
    row = ("1", to_wire("żółwik"), "1234")
    shown = Filters(exclude_columns=[r".*\.secret"], truncate_columns={r".*\.name": 3})
    assert value_of(write(change("c", None, row), filters=shown)[0])["after"] == {"id": 1, "name": "żół"}
    masked = Filters(mask_columns=[r"public\.people\.secret"])
    assert value_of(write(change("c", None, row), filters=masked)[0])["after"]["secret"] == "********"
    hashed = Filters(hash_columns=[r".*\.secret"], hash_salt="pepper")
    one = value_of(write(change("c", None, row), filters=hashed)[0])["after"]["secret"]
    same = value_of(write(change("c", None, ("2", None, "1234")), filters=hashed)[0])["after"]["secret"]
    assert one == same
    assert len(one) == 64
    assert value_of(write(change("c", None, ("2", None, None)), filters=hashed)[0])["after"]["secret"] is None


def test_settings_that_cannot_be_meant() -> None:
    with pytest.raises(InvalidConnectSetting, match="without a salt"):
        Filters(hash_columns=["x"])
    with pytest.raises(InvalidConnectSetting, match="one of them is enough"):
        Filters(include_tables=["a"], exclude_tables=["b"])
    with pytest.raises(InvalidConnectSetting, match="not a valid regular expression"):
        Filters(include_tables=["("])
    with pytest.raises(InvalidConnectSetting, match="letters, digits"):
        TopicNames("a b")
    with pytest.raises(InvalidConnectSetting, match="it may hold"):
        TopicNames("a", "{nothing}")


def test_topic_names() -> None:
    assert TopicNames("p", "{database}.{table}").table("d", "s", "t") == "d.t"
    assert TopicNames("p").table("d", "s", "größe x") == "p.s.gr__e_x"


def test_transaction_metadata() -> None:
    events: list[Event] = [change("c", None, ("1", "a", None)), change("c", None, ("a",), KEYLESS)]
    begun, first, second, ended = write(*events, TransactionEnd(ORIGIN), transaction_metadata=True)
    assert begun.topic == ended.topic == "srv.transaction"
    assert (value_of(begun)["status"], value_of(begun)["event_count"]) == ("BEGIN", None)
    assert value_of(first)["transaction"] == {"id": "77", "total_order": 1, "data_collection_order": 1}
    assert value_of(second)["transaction"] == {"id": "77", "total_order": 2, "data_collection_order": 1}
    assert value_of(ended)["data_collections"] == [
        {"data_collection": "public.people", "event_count": 1},
        {"data_collection": "public.lines", "event_count": 1},
    ]
    assert write(TransactionEnd(ORIGIN), transaction_metadata=True) == []


def test_messages_and_the_outbox() -> None:
    (plain,) = write(Message("note", b"\x00\x01", True, ORIGIN, PLACE))
    assert plain.topic == "srv.message"
    assert value_of(plain)["message"] == {"prefix": "note", "content": "AAE="}
    event = {"id": "e1", "aggregatetype": "order", "aggregateid": 42, "type": "Paid", "payload": {"sum": 1}}
    (routed,) = write(Message("outbox", json.dumps(event).encode(), True, ORIGIN, PLACE))
    assert (routed.topic, routed.key, value_of(routed)) == ("outbox.event.order", b"42", {"sum": 1})
    assert routed.headers == (("id", b"e1"), ("eventType", b"Paid"))
    (broken,) = write(Message("outbox", b"no json", True, ORIGIN, PLACE))
    assert broken.topic == "srv.message"  # seen by somebody, and not dropped


def test_a_change_of_shape_is_an_event() -> None:
    (record,) = write(SchemaChange(TABLE, None, "column name was added", ORIGIN, PLACE))
    assert record.topic == "srv.schema-changes"
    (described,) = value_of(record)["tableChanges"]
    assert (described["id"], described["change"]) == ("shop.public.people", "column name was added")


def test_topics_are_known_before_their_first_record() -> None:
    names = [table.as_name for table in (TABLE, KEYLESS)]
    chosen = EnvelopeSettings("postgresql", "shop", "1.0", TopicNames("srv"))
    writer = EnvelopeWriter(chosen, Filters())
    assert writer.topics_of(names) == {"srv.public.people": True, "srv.public.lines": False}
    keyed = EnvelopeWriter(chosen, Filters(key_columns={"public.lines": ["text"]}))
    assert keyed.topics_of(names) == {"srv.public.people": True, "srv.public.lines": True}
    one = EnvelopeSettings("postgresql", "shop", "1.0", TopicNames("srv", "{prefix}.all"))
    assert EnvelopeWriter(one, Filters()).topics_of(names) == {"srv.all": False}


def test_two_tables_never_share_a_topic_by_accident() -> None:
    first, second = (Table("public", name, TABLE.columns, (0,)) for name in ("a b", "a_b"))
    with pytest.raises(
        SourceRefused, match=r"public\.a b and public\.a_b would both be written to topic srv\.public\.a_b"
    ):
        write(change("c", None, ("1", None, None), first), change("c", None, ("1", None, None), second))
    together = EnvelopeSettings("postgresql", "shop", "1.0", TopicNames("srv", "{prefix}.all"))
    events: list[Event] = [change("c", None, ("1", None, None), table) for table in (first, second)]
    assert {record.topic for record in EnvelopeWriter(together, Filters()).write(events, NOW_US)} == {"srv.all"}
