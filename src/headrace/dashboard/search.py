"""Records of a topic, found on the server: what is wanted, and the reading that looks for it.

`Query` and `matcher` are pure; `scan` reads and blocks, and belongs in a thread. It tells how far it is while it
looks, and ends where the log ended when it began, or never if it follows.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from headrace.client.cluster import Cluster
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import Start, StartKind, find_stretch, list_offsets
from headrace.client.reader import ReadRecord, read_records
from headrace.dashboard.errors import BadForm
from headrace.dashboard.settings import Language
from headrace.records import Record

DEFAULT_LIMIT, MAX_LIMIT = 200, 1000
_TELL_EVERY_S = 0.2
_OPTIONS = FetchOptions(max_wait_ms=300)  # a quiet broker keeps somebody who wants to stop waiting no longer


@dataclass(frozen=True, slots=True)
class Query:
    topic: str
    start: Start
    follow: bool = False
    partitions: tuple[int, ...] = ()
    key: bytes | None = None
    text: str | None = None
    condition: Callable[[object], bool] | None = None
    until_ms: int | None = None
    limit: int = DEFAULT_LIMIT


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a search is: offsets looked at, of how many, and how many records were found."""

    read: int
    total: int
    found: int


@dataclass(frozen=True, slots=True)
class Step:
    records: list[ReadRecord]
    progress: Progress


def read_query(topic: str, given: Mapping[str, str], language: Language, now_ms: int) -> Query:
    """A query from the fields of a form; an empty field asks for nothing."""
    fields = {name: value.strip() for name, value in given.items() if value.strip()}
    follow = fields.get("follow", "") in ("1", "true", "on")
    begin = fields.get("from")
    return Query(
        topic,
        language.start(begin, now_ms) if begin else Start(StartKind.LATEST if follow else StartKind.EARLIEST),
        follow,
        (_number("partition", fields["partition"]),) if "partition" in fields else (),
        fields["key"].encode() if "key" in fields else None,
        fields.get("text"),
        language.condition(fields["where"]) if "where" in fields else None,
        language.time(fields["until"], now_ms) if "until" in fields else None,
        min(max(_number("limit", fields["limit"]), 1), MAX_LIMIT) if "limit" in fields else DEFAULT_LIMIT,
    )


def _number(name: str, text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise BadForm(f"{name} {text!r} is not a whole number: write for example 0")
    return int(text)


def matcher(query: Query) -> Callable[[Record], bool]:
    """Whether a record is wanted; text is looked for in keys and values, without regard to case."""
    wanted = query.text.casefold() if query.text else None

    def is_wanted(record: Record) -> bool:
        if query.key is not None and record.key != query.key:
            return False
        if query.until_ms is not None and record.timestamp > query.until_ms:
            return False
        if wanted is not None and not any(
            wanted in part.decode(errors="replace").casefold() for part in (record.value, record.key) if part
        ):
            return False
        return query.condition is None or _holds(query.condition, record.value)

    return is_wanted


def _holds(condition: Callable[[object], bool], value: bytes | None) -> bool:
    if value is None:
        return False
    try:
        return condition(json.loads(value))
    except (ValueError, RecursionError):
        return False


def scan(cluster: Cluster, query: Query, is_stopped: Callable[[], bool]) -> Iterator[Step]:
    """Look for the wanted records; a step for each find, and often enough to see that it goes on."""
    partitions = cluster.partitions(query.topic, query.partitions)
    stretch = find_stretch(cluster, partitions, query.start)
    ends = dict(stretch.ends)
    if query.until_ms is not None and not query.follow:
        later = list_offsets(cluster, dict.fromkeys(partitions, query.until_ms + 1))
        ends |= {where: max(at.offset, stretch.starts[where]) for where, at in later.items() if at.offset >= 0}
    total = sum(max(ends[where] - stretch.starts[where], 0) for where in partitions)
    is_wanted, places, found, told_s = matcher(query), dict(stretch.starts), 0, 0.0
    yield Step([], Progress(0, total, 0))
    for group in read_records(cluster, stretch.starts, until=None if query.follow else ends, options=_OPTIONS):
        if is_stopped():
            return
        wanted = []
        for read in group:
            places[read.partition] = read.record.offset + 1
            if is_wanted(read.record):
                wanted.append(read)
        if not query.follow:
            wanted = wanted[: query.limit - found]
        found += len(wanted)
        done = sum(places[where] - stretch.starts[where] for where in partitions)
        if wanted or time.monotonic() - told_s > _TELL_EVERY_S:
            told_s = time.monotonic()
            yield Step(wanted, Progress(done, max(total, done), found))
        if not query.follow and found >= query.limit:
            return
    yield Step([], Progress(total, total, found))
