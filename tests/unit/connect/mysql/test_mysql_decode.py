"""The log of a MySQL 8, event by event; the bytes are laid out as MySQL's documentation of the binary log says."""

import struct
import zlib
from typing import Any

import pytest

from headrace.connect.change import Change, SchemaChange, TransactionEnd, UnseenChange
from headrace.connect.errors import SchemaChangeBlocked, SourceRefused
from headrace.connect.mysql.connection import Server
from headrace.connect.mysql.ddl import Name
from headrace.connect.mysql.decode import Decoder, Progress
from headrace.connect.mysql.events import CorruptLog, Kind
from headrace.connect.mysql.foreign_keys import ForeignKey
from headrace.connect.mysql.gtid import MysqlState
from headrace.connect.mysql.settings import Address, TypeModes
from headrace.connect.mysql.shape import Shape, ShapeColumn
from headrace.connect.mysql.stream import BinlogStream

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
T = ("shop", "t")
LONG, VARCHAR, JSON = 3, 15, 245


def _shape(*names: str) -> Shape:
    kinds = {
        "id": ("int", None),
        "name": ("varchar(20)", "utf8mb4"),
        "doc": ("json", "utf8mb4"),
        "n": ("int unsigned", None),
    }
    columns = tuple(ShapeColumn(name, *kinds[name], optional=name != "id") for name in names)
    return Shape("shop", "t", columns, ("id",))


class _Memory:
    def __init__(self) -> None:
        self.remembered: list[str] = []
        self.live: dict[Name, Shape] = {}

    def charset_of(self, _database: str) -> str:
        return "utf8mb4"

    def foreign_keys(self) -> list[ForeignKey]:
        return []

    def has_triggers(self, _tables: object) -> bool:
        return False

    def live_shapes(self) -> dict[Name, Shape]:
        return self.live

    def remember(self, _gtid: str, statement: str, _shapes: dict[Name, Shape | None]) -> None:
        self.remembered.append(statement)


def _decoder(memory: _Memory | None = None, **more: Any) -> Decoder:
    given: dict[str, Any] = {"has_checksum": True, "policy": "evolve", "modes": TypeModes(), "left_out": set()}
    progress = more.pop("progress", None) or Progress(MysqlState.parse(f"{UUID}:1-4"))
    shapes = {T: _shape("id", "name", "doc")}
    return Decoder(progress, shapes, lambda name: name == T, memory or _Memory(), **{**given, **more})


def _event(kind: int, body: bytes) -> bytes:
    data = struct.pack("<IBIIIH", 1_700_000_000, kind, 1, 23 + len(body), 1000, 0) + body
    return data + zlib.crc32(data).to_bytes(4, "little")


def _gtid(number: int) -> bytes:
    return _event(Kind.MYSQL_GTID, b"\0" + bytes.fromhex(UUID.replace("-", "")) + number.to_bytes(8, "little"))


def _query(text: str) -> bytes:
    return _event(Kind.QUERY, struct.pack("<IIBHH", 1, 0, 4, 0, 0) + b"shop\0" + text.encode())


def _table_map(*types: int) -> bytes:
    metadata = b"".join({LONG: b"", VARCHAR: struct.pack("<H", 80), JSON: b"\4"}[kind] for kind in types)
    body = (
        (7).to_bytes(6, "little")
        + b"\1\0\4shop\0\1t\0"
        + bytes([len(types), *types, len(metadata)])
        + metadata
        + b"\xff"
    )
    return _event(Kind.TABLE_MAP, body)


def _rows(kind: int, columns: int, *rows: bytes) -> bytes:
    bitmaps = bytes([(1 << columns) - 1]) * (2 if kind == Kind.UPDATE else 1)
    return _event(kind, (7).to_bytes(6, "little") + b"\1\0\2\0" + bytes([columns]) + bitmaps + b"".join(rows))


def _row(number: int, name: str | None, document: bytes | None) -> bytes:
    nulls = (name is None) << 1 | (document is None) << 2
    data = bytes([nulls]) + struct.pack("<i", number)
    if name is not None:
        data += bytes([len(name.encode())]) + name.encode()
    if document is not None:
        data += struct.pack("<I", len(document)) + document
    return data


def _xid() -> bytes:
    return _event(Kind.XID, bytes(8))


def _transaction(number: int) -> list[bytes]:
    return [
        _gtid(number),
        _query("BEGIN"),
        _table_map(LONG, VARCHAR, JSON),
        _rows(Kind.WRITE, 3, _row(-1, "ä", b"\x0c\x01x"), _row(2, None, None)),
        _rows(Kind.UPDATE, 3, _row(2, None, None), _row(3, "", b"\x04\x01")),
        _rows(Kind.DELETE, 3, _row(3, "", b"\x04\x01")),
        _xid(),
    ]


def _feed(decoder: Decoder, events: list[bytes]) -> list[Any]:
    for event in events:
        decoder.feed(event)
    found, decoder.events = decoder.events, []
    return found


def test_a_transaction() -> None:
    decoder = _decoder()
    found = _feed(decoder, _transaction(5))
    assert [(event.op, event.before, event.after) for event in found if isinstance(event, Change)] == [
        ("c", None, (-1, "Ã¤", '"x"')),
        ("c", None, (2, None, None)),
        ("u", (2, None, None), (3, "", "true")),
        ("d", (3, "", "true"), None),
    ]
    assert isinstance(found[-1], TransactionEnd)
    assert found[0].origin.transaction_id == f"{UUID}:5"
    assert str(decoder.progress.state) == f"{UUID}:1-5"


def test_it_goes_on_inside_a_transaction() -> None:
    whole = _feed(_decoder(), _transaction(5))
    for seen in range(4):
        progress = Progress(MysqlState.parse(f"{UUID}:1-4"), f"{UUID}:5", seen)
        found = _feed(_decoder(progress=progress), _transaction(5))
        assert len(found) == len(whole) - {0: 0, 1: 2, 2: 3, 3: 4}[seen] - (seen == 3)


def test_a_statement_is_a_transaction_of_its_own() -> None:
    memory = _Memory()
    decoder = _decoder(memory)
    statement = "ALTER TABLE t DROP doc, CHANGE name n INT UNSIGNED"
    found = _feed(decoder, [_gtid(5), _query(statement), _gtid(6), _query("BEGIN"), _table_map(LONG, LONG)])
    assert [event.what for event in found if isinstance(event, SchemaChange)] == [
        "column n was added; column name was dropped; column doc was dropped"
    ]
    assert memory.remembered == [statement]
    assert str(decoder.progress.state) == f"{UUID}:1-5"
    [change] = _feed(decoder, [_rows(Kind.WRITE, 2, b"\0" + struct.pack("<iI", 1, 2**32 - 1))])
    assert change.after == (1, 2**32 - 1)


def test_a_change_of_shape_that_is_not_understood_is_asked_of_the_database() -> None:
    memory = _Memory()
    memory.live = {T: _shape("id", "n")}
    decoder = _decoder(memory)
    found = _feed(decoder, [_gtid(5), _query("ALTER TABLE t ADD n SOMETHING NEW"), _gtid(6), _query("BEGIN")])
    assert isinstance(found[0], SchemaChange)
    assert decoder.table_of(memory.live[T]).columns[1].name == "n"


def test_a_table_that_does_not_fit_is_refused_unless_the_database_knows_it() -> None:
    events = [_gtid(5), _query("BEGIN"), _table_map(LONG, LONG), _rows(Kind.WRITE, 2, b"\0" + struct.pack("<iI", 1, 2))]
    with pytest.raises(SourceRefused, match=r"shop\.t had at this place .*2 columns in the log, 3 known"):
        _feed(_decoder(), events)
    memory = _Memory()
    memory.live = {T: _shape("id", "n")}
    assert _feed(_decoder(memory), events)[-1].after == (1, 2)


def test_policies() -> None:
    events = [_gtid(5), _query("ALTER TABLE t DROP doc")]
    with pytest.raises(SchemaChangeBlocked, match="column doc was dropped"):
        _feed(_decoder(policy="block"), events)
    decoder = _decoder(policy="skip")
    assert len(_feed(decoder, events)) == 1
    assert decoder.left_out == {T}


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (_event(Kind.PARTIAL_UPDATE, b""), "binlog_row_value_options"),
        (_event(Kind.PAYLOAD, b""), "binlog_transaction_compression"),
        (_event(Kind.TAGGED_GTID, b""), "gtid_next"),
        (_event(Kind.ANONYMOUS_GTID, b""), "gtid_mode"),
        (_event(Kind.INCIDENT, b""), "changes are missing"),
    ],
)
def test_what_the_log_does_not_hold_in_full_is_refused(event: bytes, said: str) -> None:
    with pytest.raises(SourceRefused, match=said):
        _feed(_decoder(), [_gtid(5), event])


@pytest.mark.parametrize(
    "event",
    [
        _query("UPDATE t SET name = 'x'"), _query("/* why */ DELETE FROM shop.t"), _query("SELECT f()"),
        _query("ALTER TABLE t TRUNCATE PARTITION p"), _event(172, b""),
    ],
)  # fmt: skip
def test_what_may_have_changed_rows_unseen_is_told(event: bytes) -> None:
    events = _feed(_decoder(), [_gtid(5), event])
    assert [(type(found), found.table.full_name) for found in events] == [(UnseenChange, "shop.t")]


def test_what_concerns_no_captured_table_is_passed_over() -> None:
    quiet = [_event(Kind.ROWS_QUERY, b"UPDATE t"), _event(Kind.PREVIOUS_GTIDS, b""), _query("FLUSH TABLES")]
    assert _feed(_decoder(), [_gtid(5), *quiet]) == []


def test_a_prepared_transaction_of_a_captured_table_is_refused() -> None:
    with pytest.raises(SourceRefused, match="XA"):
        _feed(_decoder(), [*_transaction(5)[:-1], _event(Kind.XA_PREPARE, b"")])


def test_a_broken_checksum_is_told() -> None:
    broken = bytearray(_xid())
    broken[20] ^= 1
    with pytest.raises(CorruptLog, match="checksum"):
        _decoder().feed(bytes(broken))


def test_an_event_above_sixteen_megabytes_comes_in_several_packets() -> None:
    stream = BinlogStream(Address("h", 1, "u", "", ""), Server("mysql", "8.0", True), 1, 1.0)
    first, rest = b"\0" + b"x" * 0xFFFFFE, b"y" * 10
    for number, part in enumerate((first, rest, b"\0next")):
        stream._buffer += len(part).to_bytes(3, "little") + bytes([number]) + part
    assert stream.next_event(0) == (first + rest)[1:]
    assert stream.next_event(0) == b"next"
