"""One change as programs see it, whatever it came from, and its form in JSON. Pure."""

import base64
import datetime as dt
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final

from headrace.connect.changes.token import Base, Token
from headrace.connect.errors import InvalidConnectSetting
from headrace.connect.table import UNAVAILABLE_TEXT, UNCHANGED

HEARTBEAT: Final = "h"
OPERATIONS: Final = ("c", "u", "d", "r", "t", "m", "s")
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Marks:
    """What the places of one stream share: the secret, and the last one that somebody asked for."""

    def __init__(self, secret: str = "") -> None:
        self.secret = secret
        self.asked: Base | None = None


class Mark:
    """The place behind a change; its text is made when it is asked for."""

    __slots__ = ("_marks", "_tail", "base")

    def __init__(self, marks: Marks, base: Base, tail: list[Any] | Callable[[], list[Any]]) -> None:
        """`tail` is how far behind the base it is, or a function that tells it."""
        self._marks = marks
        self.base = base
        self._tail = tail

    @property
    def text(self) -> str:
        tail = self._tail if isinstance(self._tail, list) else self._tail()
        self._marks.asked = self.base
        return Token(self.base, tail).as_text(self._marks.secret)


@dataclass(frozen=True, slots=True)
class RowChange:
    """One change.

    `op` is c(reate), u(pdate), d(elete), r(ead, of a snapshot), t(runcate: every row of the table is gone), m(essage
    that an application wrote into the database's log), s(chema: the table has another shape) or h(eartbeat: nothing
    came for a while). `after` holds `headrace.connect.table.UNCHANGED` for a large value that the database did not send
    again.
    """

    op: str
    table: str
    key: dict[str, Any] | None
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    transaction: str | None
    ts_us: int
    mark: Mark | None = field(default=None, repr=False, compare=False)

    @property
    def time(self) -> dt.datetime:
        """When it was committed, or read."""
        return _EPOCH + dt.timedelta(microseconds=self.ts_us)

    @property
    def position(self) -> str:
        """The token with which a stream goes on behind this change."""
        return "" if self.mark is None else self.mark.text

    def as_json(self) -> dict[str, Any]:
        """What `json.dumps` takes as it is: decimals and times as text, binary as `{"base64": …}`."""
        return {
            "op": self.op,
            "table": plain(self.table),
            "key": plain(self.key),
            "before": plain(self.before),
            "after": plain(self.after),
            "transaction": plain(self.transaction),
            "ts_us": self.ts_us,
            "position": self.position,
        }


def plain(value: Any) -> Any:
    """A value of a row in JSON's own types."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return value if value.isascii() else _writable(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Decimal):
        return f"{value:f}" if value.is_finite() else str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return _duration(value)
    if isinstance(value, Mapping):
        return {plain(str(name)): plain(each) for name, each in value.items()}
    if isinstance(value, Sequence | set | frozenset):
        return [plain(each) for each in value]
    return UNAVAILABLE_TEXT if value is UNCHANGED else str(value)


def _writable(text: str) -> str:
    """As it is, but for what UTF-8 cannot write: bytes that are no text, and halves of letters in JSON."""
    try:
        return text.encode(errors="surrogateescape").decode(errors="replace")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _duration(value: dt.timedelta) -> str:
    """As MySQL writes a TIME, which may be negative and longer than a day."""
    micros = abs(value) // dt.timedelta(microseconds=1)
    seconds, micros = divmod(micros, 1_000_000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}" + (f".{micros:06}" if micros else "")
    return f"-{text}" if value < dt.timedelta() else text


@dataclass(frozen=True, slots=True)
class Choice:
    """Which changes a reader wants, and how much of their rows."""

    operations: frozenset[str] = frozenset()
    columns: frozenset[str] = frozenset()
    where: Callable[[RowChange], bool] | None = None

    @classmethod
    def of(
        cls, operations: Sequence[str], columns: Sequence[str], where: Callable[[RowChange], bool] | None
    ) -> "Choice":
        """As it is asked for; an operation that does not exist is refused."""
        for name, given in (("operations", operations), ("columns", columns)):
            if isinstance(given, str):
                raise InvalidConnectSetting(name, given, f"it is a list: write [{given!r}]")
        for operation in operations:
            if operation not in OPERATIONS:
                raise InvalidConnectSetting("operations", operation, f"choose among {', '.join(OPERATIONS)}")
        if where is not None and not callable(where):
            raise InvalidConnectSetting("where", where, "it is a function of a change")
        return cls(frozenset(operations), frozenset(columns), where)

    def chosen(self, changes: Sequence[RowChange]) -> list[RowChange]:
        """The wanted ones; `where` sees whole rows."""
        found = [
            change
            for change in changes
            if (not self.operations or change.op in self.operations) and (self.where is None or self.where(change))
        ]
        return [self._narrowed(change) for change in found] if self.columns else found

    def _narrowed(self, change: RowChange) -> RowChange:
        if change.op in ("m", "s", "t"):
            return change
        before, after = self._part(change.before), self._part(change.after)
        return replace(change, before=before, after=after)

    def _part(self, row: dict[str, Any] | None) -> dict[str, Any] | None:
        return None if row is None else {name: value for name, value in row.items() if name in self.columns}
