"""What each source's records look like, byte for byte, in both forms: readers of the topics rely on it."""

import hashlib
import json
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.connect.change import READ, Change, Event, SchemaChange
from headrace.connect.envelope import EnvelopeSettings, EnvelopeWriter, TopicNames
from headrace.connect.filters import Filters
from headrace.connect.postgres.relation import LogPosition
from headrace.connect.postgres.settings import PostgresSettings
from headrace.connect.postgres.source import PostgresSource
from headrace.connect.sqlite import SqliteSettings, SqliteSource
from headrace.connect.table import Table
from headrace.connect.triggers.settings import TriggerSettings
from headrace.connect.triggers.shapes import Found
from headrace.connect.triggers.source import TriggerSource
from tests.unit.connect import pgoutput_messages as pg
from tests.unit.connect.avro.avro_records import NOW_US, TABLE, Schemas
from tests.unit.connect.mysql import test_mysql_decode as mysql

TIME_NS = 1_700_000_000_987_654_321
EXPECTED = json.loads((Path(__file__).parent / "source_blocks.json").read_text())


def _postgres(_folder: Path) -> list[Event]:
    found: list[Event] = pg.decoded(
        [
            pg.message("note", b"before", lsn=990, transactional=False),
            pg.begin(2000, xid=77, time=5),
            pg.relation([("id", pg.INT4, True), ("v", pg.TEXT, False)]),
            pg.insert(["1", 'ä"\\']),
            pg.update(["2", "b"], key=["1", None]),
            pg.delete(["2", None]),
            pg.truncate(1),
            pg.message("note", b"inside"),
            pg.commit(2000, 2008),
        ],
        LogPosition(900),
    ).events
    table = next(event.table for event in found if isinstance(event, Change))
    source = PostgresSource(PostgresSettings("postgresql://nowhere/shop"))
    source._position = LogPosition(4711)
    found += [
        Change(table, READ, None, ("3", None), *source._snapshot_origin(kind)) for kind in ("true", "incremental")
    ]
    change = next(event for event in found if isinstance(event, Change))
    return [*found, SchemaChange(table, table, "column v became text", change.origin, change.place)]


def _mysql(_folder: Path) -> list[Event]:
    from headrace.connect.mysql.source import _read_origin

    decoder = mysql._decoder()
    decoder.progress.file = "binlog.000001"
    alter = [mysql._gtid(6), mysql._query("ALTER TABLE t DROP doc")]
    found: list[Event] = mysql._feed(decoder, [*mysql._transaction(5), *alter])
    table = next(event.table for event in found if isinstance(event, Change))
    origin = _read_origin("true", decoder.progress.state, ("row",))
    found = [event for event in found if not type(event).__name__.startswith("Unseen")]
    return [*found, Change(table, READ, None, (1, None, None), origin, 4)]


def _sqlite(folder: Path) -> list[Event]:
    db = sqlite3.connect(folder / "shop.db", isolation_level=None)
    db.executescript("CREATE TABLE t (id INTEGER PRIMARY KEY, v); INSERT INTO t VALUES (1, 'a')")
    source = SqliteSource(SqliteSettings(folder / "shop.db"))
    source.open(None)
    found: list[Event] = []
    while (batch := source.next_batch(0.0)) is not None:
        found += batch.events
    db.executescript("UPDATE t SET v = 'b'; DELETE FROM t; ALTER TABLE t ADD COLUMN w")
    db.execute("UPDATE headrace_changes SET at_ms = 1700000000001")
    source._has_news()
    db.execute("UPDATE headrace_changes SET at_ms = 1700000000001")
    while (batch := source.next_batch(0.0)) is not None:
        found += batch.events
    source.close()
    db.close()
    return found


class _Shapes:
    def of(self, *_: object) -> Found:
        return Found(Table("public", "people", TABLE.columns, TABLE.key))


def _triggers(_folder: Path) -> list[Event]:
    source: Any = TriggerSource(TriggerSettings("postgresql://nowhere/shop"))
    source._shapes = _Shapes()
    rows = [(9, "77", NOW_US, 1, "c", None, "(1,a,)"), (10, "77", NOW_US, 1, "t", None, None)]
    return list(source._events(rows, is_whole=True))


def _written(connector: str, events: Sequence[Event], form: str, unwrap: str = "") -> list[str]:
    settings = EnvelopeSettings(
        connector, "shop", "1.0", TopicNames("p"), format=form, unwrap=unwrap, transaction_metadata=not unwrap
    )
    writer = EnvelopeWriter(settings, Filters(), Schemas() if form == "avro" else None)
    return [
        f"{record.topic} {_shown(record.key)} {_shown(record.value)}" for record in writer.write(list(events), NOW_US)
    ]


def _shown(data: bytes | None) -> str:
    return "-" if data is None else data.hex() if data[:1] == b"\0" else data.decode()


@pytest.mark.parametrize("kind", ["postgres", "mysql", "sqlite", "triggers"])
def test_records_stay_as_they_are(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connector = "postgresql" if kind in ("postgres", "triggers") else kind
    monkeypatch.setattr(time, "time_ns", lambda: TIME_NS)
    events = {"postgres": _postgres, "mysql": _mysql, "sqlite": _sqlite, "triggers": _triggers}[kind](tmp_path)
    found = {
        "json": _written(connector, events, "json"),
        "avro": _written(connector, events, "avro"),
        "schemas": hashlib.sha256(repr(_schemas(connector, events)).encode()).hexdigest(),
    }
    assert found == EXPECTED[kind]


def _schemas(connector: str, events: Sequence[Event]) -> list[str]:
    schemas = Schemas()
    settings = EnvelopeSettings(connector, "shop", "1.0", TopicNames("p"), format="avro")
    list(EnvelopeWriter(settings, Filters(), schemas).write(list(events), NOW_US))
    return list(schemas.ids)
