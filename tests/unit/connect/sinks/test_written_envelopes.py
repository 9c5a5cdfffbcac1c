"""What the sources write is what the sinks read."""

from headrace.connect.change import CREATE, DELETE, READ, TRUNCATE, UPDATE, Change, Origin
from headrace.connect.envelope import EVERY_PARTITION, EnvelopeSettings, EnvelopeWriter, OutRecord, TopicNames
from headrace.connect.filters import Filters
from headrace.connect.sync.decoding import RecordFormat, read_value
from headrace.connect.sync.reduction import LogRecord, reduce_records
from headrace.connect.table import UNCHANGED, VERBATIM, Codec, Column, Table, text_codec, to_wire
from headrace.records import Record

_NUMBER = Codec(VERBATIM, str, int, {"type": "int64"})
TABLE = Table(
    "public",
    "orders",
    (
        Column("id", "bigint", _NUMBER, optional=False),
        Column("item", "text", text_codec()),
        Column("n", "int", _NUMBER),
    ),
    (0,),
)


def _written(
    *changes: tuple[str, tuple[object, ...] | None, tuple[object, ...] | None], **more: object
) -> list[OutRecord]:
    settings = EnvelopeSettings("postgresql", "shop", "1", TopicNames("shop"), **more)
    events = [
        Change(TABLE, op, before, after, Origin("7", 1_000_000 + at, "false", {"txId": 7}, ("lsn",)), at + 1)
        for at, (op, before, after) in enumerate(changes)
    ]
    return list(EnvelopeWriter(settings, Filters()).write(events, 5_000_000))


def _rows(written: list[OutRecord], form: RecordFormat) -> dict[object, dict[str, object] | None]:
    records = [LogRecord(0, Record(at, out.timestamp_ms, out.key, out.value)) for at, out in enumerate(written)]
    reduced = reduce_records(records, form)
    assert not reduced.broken
    return {change.key["id"]: None if change.row is None else dict(change.row) for change in reduced.changes}


CHANGES = (
    (READ, None, ("1", to_wire("flät white"), "1")),
    (CREATE, None, ("2", 'it\'s "hot"', None)),
    (UPDATE, None, ("1", UNCHANGED, "2")),
    (CREATE, None, ("3", "gone", "1")),
    (DELETE, ("3", "gone", "1"), None),
    (UPDATE, ("2", 'it\'s "hot"', None), ("4", "moved", "4")),
)
EXPECTED = {
    1: {"id": 1, "item": "flät white", "n": 2},
    2: None,
    3: None,
    4: {"id": 4, "item": "moved", "n": 4},
}


def test_envelopes() -> None:
    assert _rows(_written(*CHANGES), RecordFormat()) == EXPECTED


def test_envelopes_with_schemas() -> None:
    assert _rows(_written(*CHANGES, schemas=True), RecordFormat()) == EXPECTED


def test_rows_alone() -> None:
    for unwrap in ("drop", "rewrite"):
        assert _rows(_written(*CHANGES, unwrap=unwrap), RecordFormat(value="plain")) == EXPECTED


def test_truncates_have_a_moment_that_grows() -> None:
    written = _written((TRUNCATE, None, None), (TRUNCATE, None, None))
    assert {out.partition for out in written} == {EVERY_PARTITION}
    first, second = (read_value(out.value, RecordFormat()).truncates for out in written)
    assert first is not None
    assert second is not None
    assert first < second
