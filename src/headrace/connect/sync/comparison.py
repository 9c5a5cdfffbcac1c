"""One derived system compared, whatever becomes of it: with the log, with the database behind it, and what it could not
use. What is found is written down beside its status.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from headrace.client.cluster import Cluster
from headrace.client.offsets import bounds
from headrace.connect.capture.settings import CaptureSettings
from headrace.connect.capture.verification import TableReport, verify_topic
from headrace.connect.sync.registry import make_sink
from headrace.connect.sync.runner import connector
from headrace.connect.sync.settings import SyncSettings
from headrace.connect.sync.verification import Report, verify
from headrace.dead_letters import LetterBox
from headrace.errors import HeadraceError
from headrace.status import DERIVED, RUNNING, WAITING, StatusWriter, read_statuses
from headrace.stores.derived import ReadableSink, Sink

_LOOK_EVERY_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was found; what was not compared is None, and `error` says why."""

    name: str
    report: Report | None = None
    table: TableReport | None = None
    error: str = ""
    dead_letters: int = 0
    dead_letter_reasons: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_equal(self) -> bool:
        """Whether all that was to be compared was, and agrees, and nothing was set aside."""
        is_same = self.report is not None and self.report.is_equal and (self.table is None or self.table.is_equal)
        return is_same and not self.error and not self.dead_letters

    @property
    def remedy(self) -> str:
        """The command that makes the log equal to its table."""
        if self.table is None or self.table.report is None or self.table.is_equal:
            return ""
        return f"headrace cdc snapshot {self.table.capture} {self.table.table} reads the table again"


def compare(
    settings: SyncSettings,
    bootstrap: str,
    captures: Sequence[CaptureSettings] | None = None,
    *,
    patience_s: float = 60.0,
) -> Comparison:
    """Compare a target with its topic and, given captures, the topic with its table; errors are part of the result.

    The table comes first: the target is then compared with a log that has come at least as far, and one that does not
    come so far is not equal to the table.
    """
    connect, sink = connector(bootstrap, settings.name), make_sink(settings, bootstrap)
    errors: list[str] = []
    table, report = None, None
    if captures is not None:
        try:
            table = verify_topic(captures, settings.topic, connect, patience_s=patience_s)
            if behind := _records_behind(settings, sink, connect, patience_s):
                errors.append(f"its target is {behind:,} records behind the log that was compared with the table")
        except HeadraceError as error:
            errors.append(str(error))
    try:
        report = verify(settings, sink, connect)
    except HeadraceError as error:
        errors.append(str(error))
    box = LetterBox(settings.dead_letters_topic, settings.topic, settings.name)
    try:
        with connect() as cluster:
            box.look(cluster)
            found = Comparison(settings.name, report, table, "; ".join(errors), box.count, box.reasons)
            if report is not None:
                facts = {"verified_ms": time.time_ns() // 1_000_000, "differences": _differences(found)}
                StatusWriter(cluster, DERIVED).write_about(settings.name, facts)
    except HeadraceError as error:
        return Comparison(settings.name, report, table, "; ".join([*errors, str(error)]))
    return found


def _records_behind(
    settings: SyncSettings, sink: Sink, connect: Callable[[], Cluster], patience_s: float
) -> int:  # fmt: skip
    """How many records a target still lacks of the log as it is now, waited for while somebody keeps it in step."""
    if not isinstance(sink, ReadableSink):
        return 0
    until_s = time.monotonic() + patience_s
    with connect() as cluster:
        held = bounds(cluster, cluster.partitions(settings.topic), committed=True)
        while (place := sink.place()) is not None:
            behind = sum(max(bound.end - place.offsets.get(where.partition, 0), 0) for where, bound in held.items())
            said = read_statuses(cluster, DERIVED).get(settings.name)
            is_kept = said is not None and said.state_at(time.time_ns() // 1_000_000) in (RUNNING, WAITING)
            if not behind or not is_kept or time.monotonic() > until_s:
                return behind
            time.sleep(_LOOK_EVERY_S)
    return 0


def _differences(found: Comparison) -> int:
    reports = [found.report, None if found.table is None else found.table.report]
    return sum(len(report.differences) for report in reports if report is not None)
