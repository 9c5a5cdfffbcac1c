"""Decoders of lines whose fields are known: access logs and syslog.

The walk fills a cell for each field of each line; rows that it leaves are read by the exact reader of the form, which
says why when a line does not decode.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, tzinfo
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.errors import nearest
from headrace.log_formats import read_combined, read_common, read_syslog
from headrace.log_formats.levels import level_of_severity
from headrace.log_formats.line import InvalidLine
from headrace.log_formats.syslog import structured_data, zone_ahead_s
from headrace.pipelines.columns.arrow import MICROSECONDS_UTC, fixed, replace_rows, spans
from headrace.pipelines.columns.cells import Cells
from headrace.pipelines.columns.decoding import Decoded
from headrace.pipelines.columns.logs.access_walk import walk_access
from headrace.pipelines.columns.logs.syslog_walk import DATA, LEVEL, LOCAL, TIME, walk_syslog
from headrace.pipelines.columns.records import RecordColumns
from headrace.pipelines.columns.walk import Bytes
from headrace.pipelines.errors import PipelineError

DATA_TYPE: Final = pa.map_(pa.string(), pa.map_(pa.string(), pa.string()))
_QUARTER_MICROS: Final = 900 * 1_000_000

_ACCESS = {
    "client": pa.string(), "identity": pa.string(), "user": pa.string(), "time": MICROSECONDS_UTC,
    "request": pa.string(), "method": pa.string(), "path": pa.string(), "query": pa.string(), "protocol": pa.string(),
    "status": pa.int32(), "body_bytes": pa.int64(), "referer": pa.string(), "user_agent": pa.string(),
    "rest": pa.string(),
}  # fmt: skip
# By the name of a format its fields, in the order of the walk's cells. A common line has neither referer nor agent.
FIELDS: Final[Mapping[str, Mapping[str, pa.DataType]]] = {
    "common": _ACCESS,
    "combined": _ACCESS,
    "syslog": {
        "facility": pa.int32(), "severity": pa.int32(), "level": pa.string(), "time": MICROSECONDS_UTC,
        "host": pa.string(), "app": pa.string(), "process_id": pa.string(), "message_id": pa.string(),
        "data": DATA_TYPE, "message": pa.string(),
    },
}  # fmt: skip
_NOT_IN: Final = {"common": ("referer", "user_agent")}
_LEVELS: Final = [level_of_severity(severity) for severity in range(8)]


def line_schema(name: str) -> pa.Schema:
    """All columns that a format has."""
    return pa.schema([(field, kind) for field, kind in FIELDS[name].items() if field not in _NOT_IN.get(name, ())])


def check_line_schema(name: str, schema: pa.Schema) -> None:
    """Refuse a column that lines of this form do not have, or not as this type."""
    known = line_schema(name)
    for field in schema:
        if field.name not in known.names:
            hint = nearest(field.name, known.names, likeness=0)
            raise PipelineError(f"a line in the format {name} has no field {field.name!r}: {hint}")
        kind = known.field(field.name).type
        if not _takes(field.type, kind):
            raise PipelineError(
                f"column {field.name!r} of the format {name} is {kind}, not {field.type}: declare it so"
            )


def _takes(wanted: pa.DataType, kind: pa.DataType) -> bool:
    if pa.types.is_integer(kind):
        return bool(pa.types.is_signed_integer(wanted)) and wanted.bit_width >= 16
    if pa.types.is_timestamp(kind):
        return bool(pa.types.is_timestamp(wanted)) and wanted.unit == "us"
    if pa.types.is_map(kind):
        return bool(pa.types.is_map(wanted)) and _takes(wanted.key_type, pa.string()) and (
            _takes(wanted.item_type, kind.item_type)
        )  # fmt: skip
    return bool(pa.types.is_string(wanted))


Exact = Callable[[bytes, int], Mapping[str, Any]]
Walk = Callable[[RecordColumns, Cells], None]


class _Form(NamedTuple):
    walk: Walk
    exact: Callable[[tzinfo], Exact]


class LineDecoder:
    """Reads one line per record into the columns of a schema."""

    def __init__(self, name: str, schema: pa.Schema, zone: tzinfo = UTC) -> None:
        """`zone` is that of times which name none."""
        self._schema = schema
        self._fields = list(FIELDS[name])
        self._walk, exact = _FORMS[name]
        self._exact = exact(zone)
        self._zone = zone
        self._has_data = name == "syslog"

    def decode(self, records: RecordColumns) -> Decoded:
        """The wanted fields of every record's line."""
        cells = Cells(len(self._fields), len(records))
        self._walk(records, cells)
        if self._has_data:
            self._to_utc(cells)
            data = self._data(records.arena, cells)
        columns = []
        for field in self._schema:
            if field.name == "data":
                columns.append(data.cast(field.type))
            else:
                columns.append(self._column(records.arena, cells, self._fields.index(field.name), field))
        rows = np.flatnonzero(cells.fault)
        return self._mend(records, columns, rows) if len(rows) else Decoded(columns)

    def _column(self, arena: Bytes, cells: Cells, index: int, field: pa.Field) -> pa.Array:
        there = cells.found[index] != 0
        numbers = cells.numbers[index]
        kind = field.type
        if pa.types.is_timestamp(kind):
            return fixed(kind, numbers, there)
        if pa.types.is_integer(kind):
            values = numbers.astype(kind.to_pandas_dtype(), copy=False)
            if kind.bit_width < 64:
                cells.fault[there & (values != numbers)] = 1
            return fixed(kind, values, there)
        if self._has_data and index == LEVEL:
            return pa.array(_LEVELS).take(pa.array(np.where(there, numbers, 0), mask=~there))
        return spans(pa.string(), arena, cells.at[index], np.where(there, cells.size[index], -1))

    def _to_utc(self, cells: Cells) -> None:
        """Take the zone off times that a zone's clocks showed."""
        rows = np.flatnonzero(cells.found[TIME] == LOCAL)
        quarters, which = np.unique(cells.numbers[TIME, rows] // _QUARTER_MICROS, return_inverse=True)
        ahead = np.array([zone_ahead_s(quarter, self._zone) for quarter in quarters.tolist()], np.int64)
        if len(rows):
            cells.numbers[TIME, rows] -= ahead[which] * 1_000_000

    def _data(self, arena: Bytes, cells: Cells) -> pa.Array:
        """Structured data: few texts in many messages, each read once."""
        there = cells.found[DATA] != 0
        texts = spans(pa.binary(), arena, cells.at[DATA], np.where(there, cells.size[DATA], -1)).dictionary_encode()
        values: list[Any] = []
        broken: list[int] = []
        for number, text in enumerate(texts.dictionary.to_pylist()):
            try:
                data, end = structured_data(text, 0)
                is_whole = end == len(text)
            except InvalidLine:
                is_whole = False
            if not is_whole:
                data = {}
                broken.append(number)
            values.append(_pairs(data))
        values.append([])  # of a message without any
        places = texts.indices.fill_null(len(values) - 1).to_numpy()
        if broken:
            bad = np.isin(places, broken)
            cells.fault[bad] = 1
            cells.found[:, bad] = 0
        nothing = (cells.size[DATA] < 0) | (cells.fault != 0) | ~cells.found.any(axis=0)
        return pa.array(values, DATA_TYPE).take(pa.array(places.astype(np.int64), mask=nothing))

    def _mend(self, records: RecordColumns, columns: list[pa.Array], rows: NDArray[np.intp]) -> Decoded:
        names = self._schema.names
        values: dict[str, list[Any]] = {name: [] for name in names}
        reasons: dict[int, str] = {}
        for row in rows.tolist():
            start = records.value_at[row]
            line = records.arena[start : start + records.value_size[row]].tobytes()
            try:
                read = self._fitting(self._exact(line, int(records.timestamp[row])))
            except InvalidLine as error:
                reasons[row] = str(error)
                read = dict.fromkeys(names)
            for name in names:
                values[name].append(read[name])
        return Decoded(
            [
                replace_rows(column, rows, pa.array(values[field.name], field.type))
                for column, field in zip(columns, self._schema, strict=True)
            ],
            reasons,
        )

    def _fitting(self, read: Mapping[str, Any]) -> Mapping[str, Any]:
        for field in self._schema:
            value = read[field.name]
            if isinstance(value, int) and not -(2 ** (field.type.bit_width - 1)) <= value < 2 ** (
                field.type.bit_width - 1
            ):
                raise InvalidLine(f"field {field.name!r} is {value}, too large for {field.type}")
        return read


def _pairs(data: Mapping[str, Mapping[str, str]]) -> list[tuple[str, list[tuple[str, str]]]]:
    return [(name, list(parameters.items())) for name, parameters in data.items()]


def _access_walk(is_combined: bool) -> Walk:
    def walk(records: RecordColumns, cells: Cells) -> None:
        at, size = np.ascontiguousarray(records.value_at), np.ascontiguousarray(records.value_size)
        walk_access(records.arena, at, size, is_combined, cells.found, cells.numbers, cells.at, cells.size, cells.fault)

    return walk


def _syslog_walk(records: RecordColumns, cells: Cells) -> None:
    at, size = np.ascontiguousarray(records.value_at), np.ascontiguousarray(records.value_size)
    times = np.ascontiguousarray(records.timestamp)
    walk_syslog(records.arena, at, size, times, cells.found, cells.numbers, cells.at, cells.size, cells.fault)


def _access_exact(read: Callable[[bytes], Any]) -> Callable[[tzinfo], Exact]:
    def exact(_zone: tzinfo) -> Exact:
        def of(line: bytes, _received_ms: int) -> Mapping[str, Any]:
            found = read(line)
            return {name: getattr(found, name) for name in _ACCESS}

        return of

    return exact


def _syslog_exact(zone: tzinfo) -> Exact:
    def of(line: bytes, received_ms: int) -> Mapping[str, Any]:
        found = read_syslog(line, received_ms=received_ms, zone=zone)
        return {name: getattr(found, name) for name in FIELDS["syslog"]} | {"data": _pairs(found.data)}

    return of


_FORMS: Final = {
    "common": _Form(_access_walk(False), _access_exact(read_common)),
    "combined": _Form(_access_walk(True), _access_exact(read_combined)),
    "syslog": _Form(_syslog_walk, _syslog_exact),
}
