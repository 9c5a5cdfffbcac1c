"""Events to try a pattern or a stored query on: from a file of JSON lines or CSV, from standard input, or from a topic.

What always holds: an event knows where it stood (a line, or partition and offset), and what cannot be read is one
sentence with that place. Columns, and for CSV their types, are those of the first thousand events.
"""

import csv
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, Final

from headrace.client.cluster import Cluster
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import Start, StartKind, find_stretch
from headrace.client.reader import ReadRecord, read_records
from headrace.errors import HeadraceError

SAMPLE: Final = 1_000
_LONGEST: Final = 16 * 1024 * 1024
_MAX_WAIT_MS: Final = 1000
# Columns about the record, as the source of pipelines names them where values are decoded.
TIME_OF_RECORD: Final = "_timestamp"
OF_RECORDS: Final = ("_topic", "_partition", "_offset", "_key", TIME_OF_RECORD)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS: Final = 253_402_300_799_000  # of the year 9999


class InvalidEvents(HeadraceError):
    """Something that is not events, or holds none."""


class Row(dict[str, Any]):
    """An event's columns; `place` is where it stood."""

    __slots__ = ("place",)

    def __init__(self, values: Any, place: str) -> None:
        super().__init__(values)
        self.place = place


@dataclass
class Events:
    """Events that are read once; `skipped` counts records of a topic that are no JSON objects."""

    columns: list[str]
    rows: Iterator[Row]
    skipped: "list[int]" = field(default_factory=lambda: [0])
    place: str = "line"
    """What an event's place is: a line of a file, or partition and offset."""

    @property
    def is_topic(self) -> bool:
        return self.place != "line"


# --- files


def read_file(name: str) -> Events:
    """The events of a file, or of standard input if the name is `-`."""
    if name == "-":
        return _read(sys.stdin.buffer, "standard input", is_csv=None)
    path = Path(name)
    if not path.exists():
        raise InvalidEvents(
            f"there is no file {name}: name one with events as JSON lines or CSV, or - for standard input"
        )
    if path.is_dir():
        raise InvalidEvents(f"{name} is a folder: name a file with events as JSON lines or CSV")
    is_csv = {".csv": True, ".jsonl": False, ".json": False, ".ndjson": False}.get(path.suffix.lower())
    return _read(path.open("rb"), name, is_csv)


def _read(stream: BinaryIO, name: str, is_csv: bool | None) -> Events:
    lines = _lines(stream, name)
    first = next((each for each in lines if each[1].strip()), None)
    if first is None:
        raise InvalidEvents(f"{name} is empty: write events into it, one a line, as JSON or CSV")
    lines = chain([first], lines)
    if is_csv is None:  # by what is in it: a header of CSV does not begin like an object
        is_csv = not first[1].lstrip().startswith(("{", "["))
    rows = _csv_rows(lines, name) if is_csv else _json_rows(lines, name)
    return _sampled(rows, name)


def _sampled(rows: Iterator[Row], name: str, found: Events | None = None) -> Events:
    sample = list(islice(rows, SAMPLE))
    if not sample:
        skipped = found.skipped[0] if found is not None else 0
        what = f"no event, and {skipped:,} records that are not JSON objects" if skipped else "no event"
        raise InvalidEvents(f"{name} has {what}: give another file, or another stretch of the topic")
    columns = list(dict.fromkeys(column for row in sample for column in row))
    events = found or Events([], iter(()))
    events.columns, events.rows = columns, chain(sample, rows)
    return events


def _lines(stream: BinaryIO, name: str) -> Iterator[tuple[int, str]]:
    """Each line with its number."""
    with stream:
        number = 0
        while line := stream.readline(_LONGEST + 1):
            number += 1
            if len(line) > _LONGEST:
                raise InvalidEvents(
                    f"line {number} of {name} is longer than {_LONGEST // 2**20} MiB: write one event a line"
                )
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError:
                raise InvalidEvents(
                    f"line {number} of {name} is not text in UTF-8: events are JSON lines or CSV"
                ) from None
            if "\0" in text:
                raise InvalidEvents(f"line {number} of {name} holds binary data: events are JSON lines or CSV")
            yield number, text.rstrip("\r\n")


def _json_rows(lines: Iterable[tuple[int, str]], name: str) -> Iterator[Row]:
    for number, line in lines:
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            what = error.msg if isinstance(error, json.JSONDecodeError) else "a number in it is too long"
            what = "it is nested too deep" if isinstance(error, RecursionError) else what
            raise InvalidEvents(f"line {number} of {name} is not JSON ({what}): write one object a line") from None
        if not isinstance(found, dict):
            raise InvalidEvents(f"line {number} of {name} is not a JSON object: write one object a line")
        yield Row(found, str(number))


def _csv_rows(lines: Iterable[tuple[int, str]], name: str) -> Iterator[Row]:
    numbers: list[int] = []

    def texts() -> Iterator[str]:
        for number, line in lines:
            numbers[:] = [number]
            yield line + "\n"

    reader = csv.reader(texts(), strict=True)
    try:
        header = next(reader)
        if len(set(header)) < len(header) or not all(column.strip() for column in header):
            raise InvalidEvents(f"the first line of {name} is not a header of CSV: it names each column once")
        cells = _checked(reader, header, numbers, name)
        sample = list(islice(cells, SAMPLE))
        readers = [_reader_of([row[place] for _, row in sample]) for place in range(len(header))]
        for number, row in chain(sample, cells):
            values = {}
            for column, read, cell in zip(header, readers, row, strict=True):
                try:
                    values[column] = None if cell == "" else read(cell)
                except ValueError:
                    raise InvalidEvents(
                        f"line {number} of {name}: {column} is {cell[:40]!r}, and was a number before in the first "
                        f"{SAMPLE} events"
                    ) from None
            yield Row(values, str(number))
    except csv.Error as error:
        at = numbers[0] if numbers else 1
        raise InvalidEvents(f"line {at} of {name} is not CSV ({error})") from None


def _checked(
    reader: Iterator[list[str]], header: list[str], numbers: list[int], name: str
) -> Iterator[tuple[int, list[str]]]:
    for row in reader:
        if not row:  # a blank line
            continue
        if len(row) != len(header):
            raise InvalidEvents(
                f"line {numbers[0]} of {name} has {len(row)} fields, and the header names {len(header)} columns"
            )
        yield numbers[0], row


_WHOLE: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


def _reader_of(cells: list[str]) -> Callable[[str], Any]:
    """What a column's cells are: numbers, true and false, or texts; `007` is a text."""
    given = [cell for cell in cells if cell != ""]
    if given and all(_WHOLE.fullmatch(cell) for cell in given):
        return lambda cell: int(cell) if _WHOLE.fullmatch(cell) else float(cell)
    if given and all(_NUMBER.fullmatch(cell) for cell in given):
        return float
    if given and all(cell.lower() in ("true", "false") for cell in given):
        return lambda cell: cell.lower() == "true"
    return str


# --- topics


@contextmanager
def read_topic(cluster: Cluster, topic: str, start: Start | None, end: Start | None) -> Iterator[Events]:
    """The events of a topic from a place to another, by default all that are there now."""
    partitions = cluster.partitions(topic)
    stretch = find_stretch(cluster, partitions, start or Start(StartKind.EARLIEST), committed=True)
    ends = stretch.ends if end is None else find_stretch(cluster, partitions, end, committed=True).starts
    starts = {where: offset for where, offset in stretch.starts.items() if offset < ends[where]}
    events = Events([], iter(()), place="offset")
    groups = read_records(cluster, starts, until=ends, options=FetchOptions(max_wait_ms=_MAX_WAIT_MS, committed=True))
    rows = _topic_rows((record for group in groups for record in group), events.skipped)
    yield _sampled(rows, f"this stretch of {topic}", events)


def _topic_rows(records: Iterable[ReadRecord], skipped: list[int]) -> Iterator[Row]:
    for partition, record in records:
        try:
            value = None if record.value is None else json.loads(record.value)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            skipped[0] += 1
            continue
        key = None if record.key is None else record.key.decode(errors="backslashreplace")
        about = {
            "_topic": partition.topic, "_partition": partition.partition, "_offset": record.offset, "_key": key,
            TIME_OF_RECORD: _EPOCH + timedelta(milliseconds=min(max(record.timestamp, 0), _LAST_MS)),
        }  # fmt: skip
        yield Row({**about, **value}, f"{partition.partition}:{record.offset}")


def columns_of_text(text: str) -> list[str]:
    """`a, b, c` as names; also a schema as Spark writes it: `a bigint, b string`."""
    columns = [part.split()[0] for part in re.split(r",(?![^(<]*[)>])", text) if part.strip()]
    if not columns:
        raise InvalidEvents("--columns names no column: write them with commas, as in card, amount, at")
    return columns
