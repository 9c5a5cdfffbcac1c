"""The audit log: who did what, a JSON object a line, in a file that nobody but its owner can read; or elsewhere too.

Whoever records an event does so before the client is answered, so what was answered is in the file even if the process
is killed then; it is not synced to the disk.

What always holds:
- an event never holds a secret: whoever records names what was changed, and leaves out values that may be secret;
- what others can cause without end (denials, failed logins) gets few lines: one for each that differs, the rest of them
  counted, and so many in all; so a flood neither fills the disk nor pushes the changes out of the files that are kept;
- a place that cannot be written stops nobody: the log says so, and how many events were lost is the next line.
"""

import json
import os
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from headrace.clock import Clock, SystemClock
from headrace.errors import HeadraceError
from headrace.telemetry.logs import RareLines, get_logger

CHANGE, DENIAL, LOGIN, HTTP, LOST = "change", "denial", "login", "http", "lost"
OK, DENIED, FAILED, UNKNOWN = "ok", "denied", "failed", "unknown"

# What can be asked for, by the setting `audit.events`; and what of it is recorded if nothing is said.
CHANGES, DENIALS, FAILED_LOGINS, LOGINS = "changes", "denials", "failed-logins", "logins"
EVERY_EVENT: Final = (CHANGES, DENIALS, FAILED_LOGINS, LOGINS)
USUAL_EVENTS: Final = (CHANGES, DENIALS, FAILED_LOGINS)

AUDIT_BYTES: Final = 10 * 1024 * 1024  # of a file, by default
AUDIT_FILES: Final = 10  # that are kept, by default
MAX_TEXT: Final = 256  # characters of a name: clients choose them
RESOURCES_A_LINE: Final = 100
_QUIET_S: Final = 30.0


class AuditUnwritable(HeadraceError):
    """A file for the audit log that cannot be written."""


class Caller(NamedTuple):
    """Who wants something, and from where."""

    principal: str
    client: str  # HOST:PORT
    client_id: str | None = None
    listener: str = ""


class Repeats:
    """Which events get a line of those that somebody can cause without end. Pure: the time is an argument.

    Of those that are alike, one gets a line and the rest of a window are counted; of those that differ, `burst` do at
    once, and one more each second.
    """

    WINDOW_MS: Final = 60_000
    BURST: Final = 100
    MOST: Final = 1_000  # that are told apart

    def __init__(self) -> None:
        self._counted: OrderedDict[object, tuple[int, int, dict[str, Any]]] = (
            OrderedDict()
        )  # window's end, count, facts
        self._left_out = 0
        self._left_out_since_ms = 0
        self._tokens = float(self.BURST)
        self._at_ms = 0

    def admit(self, key: object, facts: dict[str, Any], now_ms: int) -> bool:
        """Whether this one gets a line; if not it is counted."""
        known = self._counted.get(key)
        if known is not None:
            self._counted[key] = (known[0], known[1] + 1, facts)
            return False
        self._tokens = min(self.BURST, self._tokens + max(0, now_ms - self._at_ms) / 1000)
        self._at_ms = now_ms
        if self._tokens < 1 or len(self._counted) >= self.MOST:
            self._left_out_since_ms = self._left_out_since_ms if self._left_out else now_ms
            self._left_out += 1
            return False
        self._tokens -= 1
        self._counted[key] = (now_ms + self.WINDOW_MS, 0, facts)
        return True

    def take_due(self, now_ms: float) -> Iterator[tuple[dict[str, Any] | None, int]]:
        """The facts and the number of those that were counted in windows that are over; None for any that were not told
        apart."""
        while self._counted:
            key, (end_ms, count, facts) = next(iter(self._counted.items()))
            if now_ms < end_ms <= now_ms + self.WINDOW_MS:  # else it is over, or the clock was set back
                break
            del self._counted[key]
            if count:
                yield facts, count
        if self._left_out and not 0 <= now_ms - self._left_out_since_ms < self.WINDOW_MS:
            count, self._left_out = self._left_out, 0
            yield None, count


class Place(Protocol):
    """Where lines go."""

    def write(self, lines: Sequence[str]) -> None:
        """Raises `OSError`; then nothing of it counts as written."""

    def close(self) -> None: ...


class AuditFile:
    """A file of lines that is set aside when it is full: `audit.log`, then `audit.log.1` and so on, the oldest last."""

    def __init__(self, path: str | os.PathLike[str], max_bytes: int, files: int) -> None:
        """Raises `AuditUnwritable`."""
        self._path = Path(path)
        self._max_bytes = max_bytes
        self._files = files
        self._fd = -1
        self._size = 0
        self._is_torn = False  # the last write ended within a line
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._open()
        except OSError as error:
            raise AuditUnwritable(
                f"the audit log {self._path} cannot be written ({error.strerror}): name another file"
            ) from None

    def _open(self) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(self._path, flags, 0o600)
        os.fchmod(self._fd, 0o600)
        self._size = os.fstat(self._fd).st_size
        self._is_torn = self._size > 0 and os.pread(self._fd, 1, self._size - 1) != b"\n"

    def write(self, lines: Sequence[str]) -> None:
        if self._fd >= 0 and not self._is_in_place():
            self.close()
        if self._fd < 0:
            self._open()
        data = "".join(f"{line}\n" for line in lines).encode()
        if self._size and self._size + len(data) > self._max_bytes:
            self._set_aside()
        data = b"\n" + data if self._is_torn else data
        written = os.write(self._fd, data)
        self._size += written
        self._is_torn = written < len(data)
        if self._is_torn:
            raise OSError(28, "it was written in part")

    def _is_in_place(self) -> bool:
        """Whether the name is still that of the file: somebody may have moved it away, or removed it."""
        try:
            return os.path.samestat(os.stat(self._path, follow_symlinks=False), os.fstat(self._fd))
        except FileNotFoundError:
            return False

    def _set_aside(self) -> None:
        os.close(self._fd)
        self._fd = -1
        for number in range(self._files - 1, 0, -1):
            older = self._path.with_name(f"{self._path.name}.{number - 1}") if number > 1 else self._path
            if older.exists():
                older.replace(self._path.with_name(f"{self._path.name}.{number}"))
        if self._files == 1:
            self._path.unlink(missing_ok=True)
        self._open()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class AuditLog:
    """Records events; without a place for them it counts them and nothing else."""

    def __init__(
        self, place: Place | None = None, events: tuple[str, ...] = USUAL_EVENTS, clock: Clock | None = None
    ) -> None:
        self._lost: dict[Place, int] = {place: 0} if place is not None else {}  # events, by the place that lacks them
        self._events = frozenset(events)
        self._clock = clock or SystemClock()
        self._repeats = {kind: Repeats() for kind in events}
        self._rare = RareLines(get_logger(__name__), _QUIET_S)
        self.counts: Counter[tuple[str, str]] = Counter()  # by event and outcome, whether it is written or not

    def add(self, place: Place) -> None:
        """Write to this place too, from now on."""
        self._lost[place] = 0

    def wants(self, kind: str) -> bool:
        """Whether events of this kind, one of `EVERY_EVENT`, are written."""
        return bool(self._lost) and kind in self._events

    def record(self, event: str, outcome: str, caller: Caller, **facts: Any) -> None:
        """Write an event, whatever `wants` says."""
        self.counts[event, outcome] += 1
        if self._lost:
            self._write([_line(self._clock.now_ms(), event, outcome, caller, facts)])

    def record_resources(
        self, event: str, outcome: str, caller: Caller, resources: list[dict[str, Any]], **facts: Any
    ) -> None:
        """Write an event of many resources, in lines that are not too long."""
        self.counts[event, outcome] += 1
        if self._lost:
            now_ms = self._clock.now_ms()
            parts = [resources[at : at + RESOURCES_A_LINE] for at in range(0, len(resources), RESOURCES_A_LINE)]
            self._write([_line(now_ms, event, outcome, caller, {**facts, "resources": part}) for part in parts])

    def record_often(self, kind: str, event: str, outcome: str, caller: Caller, key: object, **facts: Any) -> None:
        """Write an event that others can cause without end, unless one with the same key was written a moment ago."""
        self.counts[event, outcome] += 1
        if not self.wants(kind):
            return
        now_ms = self._clock.now_ms()
        whole = {"event": event, "outcome": outcome, "caller": caller, **facts}
        repeats = self._repeats[kind]
        lines = [_repeated(now_ms, kind, *due) for due in repeats.take_due(now_ms)]
        if repeats.admit((event, outcome, key), whole, now_ms):
            lines.append(_line(now_ms, event, outcome, caller, facts))
        if lines:
            self._write(lines)

    def flush(self, *, is_end: bool = False) -> None:
        """Write how often what was counted came, once its time is over; at the end in any case."""
        now_ms = self._clock.now_ms()
        until_ms = float("inf") if is_end else now_ms
        lines = [
            _repeated(now_ms, kind, *due)
            for kind, repeats in self._repeats.items()
            for due in repeats.take_due(until_ms)
        ]
        if lines:
            self._write(lines)

    def _write(self, lines: list[str]) -> None:
        for place, lost in self._lost.items():
            before = [_line(self._clock.now_ms(), LOST, UNKNOWN, None, {"count": lost})] if lost else []
            try:
                place.write(before + lines)
            except OSError as error:
                self._lost[place] = lost + len(lines)
                self._rare.warning("audit log not written", reason=error.strerror or str(error), lost=lost + len(lines))
            else:
                self._lost[place] = 0

    def close(self) -> None:
        self.flush(is_end=True)
        for place in self._lost:
            place.close()
        self._lost = {}


def _repeated(now_ms: int, kind: str, facts: dict[str, Any] | None, count: int) -> str:
    if facts is None:
        return _line(now_ms, LOST, UNKNOWN, None, {"count": count, "reason": f"too many {kind} to tell apart"})
    rest = {name: value for name, value in facts.items() if name not in ("event", "outcome", "caller")}
    return _line(now_ms, facts["event"], facts["outcome"], facts["caller"], {**rest, "repeated": count})


def format_time(at_ms: int) -> str:
    """As events have it: texts compare as their times do."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _line(now_ms: int, event: str, outcome: str, caller: Caller | None, facts: Mapping[str, Any]) -> str:
    who = {name: value for name, value in caller._asdict().items() if value} if caller else {}
    return json.dumps(_cut({"time": format_time(now_ms), "event": event, "outcome": outcome, **who, **facts}))


def _cut(value: Any) -> Any:
    """The same, with no text longer than `MAX_TEXT`."""
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT else value[:MAX_TEXT] + "…"
    if isinstance(value, dict):
        return {_cut(name): _cut(each) for name, each in value.items()}
    return [_cut(each) for each in value] if isinstance(value, list) else value


# --- reading


def read_events(path: Path, wanted: Callable[[dict[str, Any]], bool] = lambda _: True) -> Iterator[dict[str, Any]]:
    """The events of a file and of those that were set aside, the oldest first; a line that is torn is left out."""
    aside = [found for found in path.parent.glob(f"{path.name}.*") if found.name[len(path.name) + 1 :].isdecimal()]
    aside.sort(key=lambda found: -int(found.name[len(path.name) + 1 :]))
    for each in [*aside, *([path] if path.exists() else [])]:
        with each.open(encoding="utf-8", errors="replace") as lines:
            yield from parse_events(lines, wanted)


def parse_events(lines: Iterable[str | bytes], wanted: Callable[[dict[str, Any]], bool]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and wanted(event):
            yield event
