"""Avro records: what Debezium's readers expect, byte for byte readable by another library."""

import json
from decimal import Decimal

import pytest

from headrace.connect.avro.places import schemas_at
from headrace.connect.capture.settings import from_section
from headrace.connect.change import Message, SchemaChange, TransactionEnd
from headrace.connect.envelope import EVERY_PARTITION
from headrace.connect.errors import InvalidConnectSetting, SourceRefused
from headrace.connect.filters import Filters
from headrace.connect.mysql.settings import TypeModes as MysqlModes
from headrace.connect.mysql.shape import ShapeColumn
from headrace.connect.mysql.types import codec_of as mysql_codec
from headrace.connect.sqlite.values import codec_of as sqlite_codec
from headrace.connect.sync.settings import from_section as sync_section
from headrace.connect.table import UNAVAILABLE_TEXT, UNCHANGED, Column, Table, to_wire
from tests.unit.connect.avro.avro_records import NOW_US, ORIGIN, TABLE, Schemas, change, column, write

SOURCE = {
    "version": "1.0", "connector": "postgresql", "name": "srv", "db": "shop", "schema": "public", "table": "people",
    "ts_ms": 1600000000000, "ts_us": 1600000000000001, "ts_ns": 1600000000000001000, "snapshot": "false",
    "sequence": '["41","42"]', "txId": 77, "lsn": 42, "xmin": None, "position": None,
}  # fmt: skip


def test_a_create() -> None:
    schemas = Schemas()
    (record,) = write(schemas, change("c", None, ("1", to_wire('é"\n'), None)))
    assert schemas.read(record.key) == {"id": 1}
    assert schemas.read(record.value) == {
        "before": None,
        "after": {"id": 1, "name": 'é"\n', "secret": None},
        "source": SOURCE,
        "op": "c",
        "transaction": None,
        "ts_ms": NOW_US // 1000,
        "ts_us": NOW_US,
        "ts_ns": NOW_US * 1000,
    }
    assert set(schemas.subjects.values()) == {f"srv.public.people-{part}" for part in ("key", "value", "truncate-key")}


def test_names_and_annotations_are_those_of_confluents_converter() -> None:
    schemas = Schemas()
    table = Table(
        "public",
        "odd-name",
        (column("id", 21, optional=False), column("at", 1114), column("a-b", 25), column("n", 1700, modifier=655366,
         decimal="precise")),
        (0,),
    )  # fmt: skip
    (record,) = write(schemas, change("c", None, ("1", None, "x", "12.50"), table))
    assert record.key is not None
    assert record.value is not None
    assert json.loads(schemas.text(int.from_bytes(record.key[1:5]))) == {
        "type": "record",
        "name": "Key",
        "namespace": "srv.public.odd_name",
        "fields": [{"name": "id", "type": {"type": "int", "connect.type": "int16"}}],
        "connect.name": "srv.public.odd_name.Key",
    }
    described = json.loads(schemas.text(int.from_bytes(record.value[1:5])))
    before, after, source, *_ = described["fields"]
    assert (described["name"], described["connect.name"]) == ("Envelope", "srv.public.odd_name.Envelope")
    assert after["type"] == ["null", "srv.public.odd_name.Value"]
    assert source["type"]["connect.name"] == "io.debezium.connector.postgresql.Source"
    _, at, renamed, number = before["type"][1]["fields"]
    timestamp = {"type": "long", "connect.version": 1, "connect.name": "io.debezium.time.MicroTimestamp"}
    assert at == {"name": "at", "type": ["null", timestamp], "default": None}
    assert (renamed["name"], renamed["headrace.column"]) == ("a_b", "a-b")
    assert number["type"][1] == {
        "type": "bytes",
        "scale": 2,
        "precision": 10,
        "logicalType": "decimal",
        "connect.version": 1,
        "connect.parameters": {"scale": "2", "connect.decimal.precision": "10"},
        "connect.name": "org.apache.kafka.connect.data.Decimal",
    }
    assert schemas.read(record.value)["after"] == {"id": 1, "at": None, "a_b": "x", "n": Decimal("12.50")}


def test_deletes_updates_of_the_key_and_truncates() -> None:
    schemas = Schemas()
    deleted, tombstone = write(schemas, change("d", ("1", None, None)))
    assert (schemas.read(deleted.value)["before"]["id"], tombstone.key, tombstone.value) == (1, deleted.key, None)
    gone, _, came = write(schemas, change("u", ("1", "a", None), ("2", "x", "y")))
    assert (schemas.read(gone.value)["op"], schemas.read(came.value)["after"]["id"]) == ("d", 2)
    assert gone.headers == (("__debezium.newkey", came.key),)
    (truncated,) = write(schemas, change("t"))
    assert (schemas.read(truncated.key), truncated.partition) == ({"id": None}, EVERY_PARTITION)
    assert schemas.read(truncated.value)["op"] == "t"


def test_rows_alone_and_columns_that_are_hidden() -> None:
    schemas = Schemas()
    events = [change("c", None, ("1", "alice", "abcdef")), change("d", ("1", None, None))]
    created, deleted, tombstone = write(schemas, *events, unwrap="rewrite")
    assert schemas.read(created.value) == {"id": 1, "name": "alice", "secret": "abcdef", "__deleted": "false"}
    assert (schemas.read(deleted.value)["__deleted"], tombstone.value) == ("true", None)
    hidden = Filters(mask_columns=["public.people.secret"], truncate_columns={"public.people.name": 2})
    (shown,) = write(schemas, events[0], filters=hidden, unwrap="drop")
    assert schemas.read(shown.value) == {"id": 1, "name": "al", "secret": "********"}


def test_what_stands_beside_rows() -> None:
    schemas = Schemas()
    events = [
        change("c", None, ("1", None, None)),
        TransactionEnd(ORIGIN),
        Message("greeting", b"\x00hello", True, ORIGIN, 43),
        SchemaChange(TABLE, None, "column name was added", ORIGIN, 44),
    ]
    begun, row, ended, message, changed = write(schemas, *events, transaction_metadata=True)
    assert schemas.read(begun.value)["status"] == "BEGIN"
    block = {"id": "77", "total_order": 1, "data_collection_order": 1}
    assert schemas.read(row.value)["transaction"] == block
    assert schemas.read(ended.value)["data_collections"] == [{"data_collection": "public.people", "event_count": 1}]
    assert schemas.read(message.value)["message"] == {"prefix": "greeting", "content": b"\x00hello"}
    assert schemas.read(changed.value)["tableChanges"][0]["primaryKeyColumnNames"] == ["id"]
    assert schemas.read(changed.value)["source"]["lsn"] == 44


def test_values_that_were_not_sent_again() -> None:
    schemas = Schemas()
    columns = [column("id", 23), *(column(f"c{one}", one) for one in (25, 17, 1009, 1007, 1022))]
    table = Table("public", "large", tuple(columns), (0,))
    (record,) = write(schemas, change("u", None, ("1", *[UNCHANGED] * 5), table))
    mark = UNAVAILABLE_TEXT.encode()
    expected = [1, UNAVAILABLE_TEXT, mark, [UNAVAILABLE_TEXT], list(mark), [float(code) for code in mark]]
    assert list(schemas.read(record.value)["after"].values()) == expected


def test_types_that_reach_further_than_their_column_says() -> None:
    schemas = Schemas()
    big = ShapeColumn("big", "bigint(20) unsigned", None, False, False)
    day = ShapeColumn("day", "date", None, True, False)
    columns = tuple(Column(one.name, one.type, mysql_codec(one, MysqlModes())) for one in (big, day))
    (record,) = write(schemas, change("c", None, (2**64 - 1, "0000-00-00"), Table("shop", "t", columns, (0,))))
    assert schemas.read(record.key) == {"big": Decimal(2**64 - 1)}
    assert schemas.read(record.value)["after"] == {"big": Decimal(2**64 - 1), "day": None}
    anything = Table("main", "t", tuple(Column(name, "int", sqlite_codec("int")) for name in "abcdef"), (0,))
    row = (-(2**63), 1.5, to_wire("é"), b"\xff", "\xff", None)
    (record,) = write(schemas, change("c", None, row, anything))
    assert list(schemas.read(record.value)["after"].values()) == [-(2**63), 1.5, "é", b"\xff", b"\xff", None]


def test_what_cannot_be_is_refused_in_a_sentence() -> None:
    twins = Table("public", "t", (column("id", 23), column("a-b", 25), column("a_b", 25)), (0,))
    with pytest.raises(SourceRefused, match=r"'a-b' and 'a_b' of public\.t have the same name in Avro"):
        write(Schemas(), change("c", None, ("1", "x", "y"), twins))
    with pytest.raises(InvalidConnectSetting, match="schemas cannot be True"):
        write(Schemas(), schemas=True)


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"format": "xml"}, "format cannot be 'xml': choose json or avro"),
        ({"registry": "http://127.0.0.1:8081"}, 'only Avro has one: add format = "avro"'),
    ],
)
def test_sections_say_what_is_wrong(section: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidConnectSetting, match=said):
        from_section("shop", {"url": "sqlite:///shop.db", **section})
    with pytest.raises(InvalidConnectSetting, match=said.replace("json or avro", "'json' or 'avro'")):
        sync_section("copy", {"topic": "t", "sink": "sqlite", **section})


def test_a_registry_that_cannot_be_is_told_without_its_password() -> None:
    with pytest.raises(InvalidConnectSetting, match="must begin with http") as told:
        schemas_at("ftp://me:secret@host", pytest.fail)
    assert "secret" not in str(told.value)
