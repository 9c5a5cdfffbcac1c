"""How the tables' shapes changed, kept as records: so that after a restart the log is read with the shapes of its time.

Records are numbered, and a position names the number up to which they count. What a crash left beyond it is forgotten
at the start, and comes again from the log.
"""

import contextlib
import json
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, Self

import pymysql

from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.client.writer import NewRecord, Writer
from headrace.connect.change import Position
from headrace.connect.mysql.catalog import CatalogTable, database_charset, read_tables
from headrace.connect.mysql.connection import Connection, Server, connect, current_state, examine, translated
from headrace.connect.mysql.ddl import Name
from headrace.connect.mysql.foreign_keys import ForeignKey, any_trigger, read_foreign_keys
from headrace.connect.mysql.gtid import GtidState
from headrace.connect.mysql.settings import Address, MysqlSettings, parse_url
from headrace.connect.mysql.shape import Shape
from headrace.model import TopicPartition


@dataclass(frozen=True, slots=True)
class HistoryRecord:
    """One change: the shapes of some tables from here on (None: gone), or of all if `is_whole`."""

    number: int
    gtid: str
    statement: str
    shapes: dict[str, Shape | None]
    is_whole: bool = False

    def as_json(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "gtid": self.gtid,
            "statement": self.statement,
            "shapes": {name: None if shape is None else shape.as_json() for name, shape in self.shapes.items()},
            "is_whole": self.is_whole,
        }

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Self:
        shapes = {name: None if one is None else Shape.from_json(one) for name, one in stored["shapes"].items()}
        return cls(stored["number"], stored["gtid"], stored["statement"], shapes, stored["is_whole"])


class SchemaHistory(Protocol):
    """Where records are kept."""

    def load(self) -> list[HistoryRecord]:
        """Every record, ordered by number."""
        ...

    def append(self, record: HistoryRecord) -> None:
        """Keep a record, durably; one of the same number is replaced."""
        ...

    def forget(self, numbers: list[int]) -> None:
        """Drop records."""
        ...


def shapes_at(records: list[HistoryRecord], number: int) -> dict[str, Shape] | None:
    """The shapes behind the record of this number; None if records are missing."""
    found: dict[str, Shape] | None = None
    for record in records:
        if record.number > number:
            break
        if record.is_whole:
            found = {}
        if found is None:
            continue
        for name, shape in record.shapes.items():
            if shape is None:
                found.pop(name, None)
            else:
                found[name] = shape
    is_there = any(record.number == number for record in records)
    return found if is_there else None


class MemoryHistory:
    """For who reads changes once, and begins with a snapshot every time."""

    def __init__(self) -> None:
        self._records: dict[int, HistoryRecord] = {}

    def load(self) -> list[HistoryRecord]:
        return [record for _, record in sorted(self._records.items())]

    def append(self, record: HistoryRecord) -> None:
        self._records[record.number] = record

    def forget(self, numbers: list[int]) -> None:
        for number in numbers:
            self._records.pop(number, None)


class TokenHistory(MemoryHistory):
    """For who keeps the history with the position: the shapes of what is captured stand in it."""

    def __init__(self) -> None:
        super().__init__()
        self._told: tuple[int, list[dict[str, Any]]] | None = None

    def take(self, position: Position) -> None:
        """Begin with the shapes that stand in a position."""
        shapes = [Shape.from_json(one) for one in position["shapes"]]
        named: dict[str, Shape | None] = {shape.full_name: shape for shape in shapes}
        self.forget([record.number for record in self.load()])
        self.append(HistoryRecord(int(position["history"]), position["gtid"], "(as stored)", named, is_whole=True))

    def shapes_of(self, position: Position, captures: Callable[[Name], bool]) -> list[dict[str, Any]]:
        """What `take` needs: the shapes at a position of what is captured."""
        number = int(position["history"])
        if self._told is None or self._told[0] != number:
            known = (shapes_at(self.load(), number) or {}).values()
            found = [shape.as_json() for shape in known if captures((shape.database, shape.table))]
            self._told = number, found
        return self._told[1]


class TopicHistory:
    """A compacted topic of one partition; the key is the connector's name and the record's number."""

    def __init__(self, cluster: Cluster, connector: str, topic: str = "__headrace_connect_schemas") -> None:
        self._cluster = cluster
        self._connector = connector
        self._topic = topic
        ensure_topic(cluster, topic, partitions=1, configs={"cleanup.policy": "compact"})
        self._writer = Writer(cluster, topic)

    def load(self) -> list[HistoryRecord]:
        partition = TopicPartition(self._topic, 0)
        held = bounds(self._cluster, [partition])[partition]
        found: dict[int, HistoryRecord] = {}
        if held.end == held.start:
            return []
        for records in read_records(self._cluster, {partition: held.start}, until={partition: held.end}):
            for read in records:
                key = json.loads(bytes(read.record.key or b"{}"))
                if key.get("connector") != self._connector:
                    continue
                if read.record.value is None:
                    found.pop(key["number"], None)
                else:
                    found[key["number"]] = HistoryRecord.from_json(json.loads(bytes(read.record.value)))
        return [record for _, record in sorted(found.items())]

    def append(self, record: HistoryRecord) -> None:
        self._write(record.number, json.dumps(record.as_json(), ensure_ascii=False).encode())

    def forget(self, numbers: list[int]) -> None:
        for number in numbers:
            self._write(number, None)

    def _write(self, number: int, value: bytes | None) -> None:
        key = json.dumps({"connector": self._connector, "number": number}).encode()
        self._writer.add(NewRecord(key, value, time.time_ns() // 1_000_000))
        self._writer.flush()


_SHAPES_A_RECORD = 200


class DatabaseMemory:
    """Asks the database over a connection of its own, and writes the history."""

    def __init__(self, address: Address, server: Server, side: Connection, history: SchemaHistory, number: int) -> None:
        self.address = address
        self._server = server
        self._connection = side
        self._history = history
        self.number = number

    def side(self) -> Connection:
        """The connection for questions; the server may have ended it for being silent."""
        try:
            self._connection.ping(reconnect=False)
        except (pymysql.err.MySQLError, OSError):
            self._connection = connect(self.address)
        return self._connection

    @contextlib.contextmanager
    def _asking(self) -> Iterator[Connection]:
        side = self.side()
        with translated(self.address):
            yield side

    def charset_of(self, database: str) -> str:
        with self._asking() as side:
            return database_charset(side)(database)

    def live_tables(self) -> dict[Name, CatalogTable]:
        with self._asking() as side:
            return read_tables(side, is_mariadb=self._server.is_mariadb)

    def current_state(self) -> GtidState:
        with self._asking() as side:
            return current_state(side, self._server)

    def close(self) -> None:
        with contextlib.suppress(pymysql.err.MySQLError, OSError):
            self._connection.close()

    def live_shapes(self) -> dict[Name, Shape]:
        return {name: table.shape for name, table in self.live_tables().items()}

    def foreign_keys(self) -> list[ForeignKey]:
        with self._asking() as side:
            return read_foreign_keys(side)

    def has_triggers(self, tables: Collection[Name]) -> bool:
        with self._asking() as side:
            return any_trigger(side, tables)

    def remember(self, gtid: str, statement: str, shapes: dict[Name, Shape | None]) -> None:
        self.number += 1
        named = {f"{database}.{table}": shape for (database, table), shape in shapes.items()}
        self._history.append(HistoryRecord(self.number, gtid, statement, named))

    def begin(self, gtid: str, shapes: dict[Name, Shape]) -> None:
        """Begin the history anew with every table."""
        old = [record.number for record in self._history.load()]
        names = list(shapes)
        self.number = max([self.number, *old])
        for first in range(0, max(len(names), 1), _SHAPES_A_RECORD):
            self.number += 1
            some = {f"{n[0]}.{n[1]}": shapes[n] for n in names[first : first + _SHAPES_A_RECORD]}
            self._history.append(HistoryRecord(self.number, gtid, "(as the database has it)", dict(some), first == 0))
        self._history.forget(old)


def rebuild_history(settings: MysqlSettings, history: SchemaHistory, position: Position) -> Position:
    """Begin the history anew with the tables as they are now; answers the position to store.

    It is right if no table changed its shape behind the position; what does not fit is refused when its rows come.
    """
    address = parse_url(settings.url)
    with translated(address), contextlib.closing(connect(address)) as side:
        memory = DatabaseMemory(address, examine(side), side, history, int(position["history"]))
        shapes = memory.live_shapes()
    memory.begin(position["gtid"], shapes)
    return {**position, "history": memory.number}
