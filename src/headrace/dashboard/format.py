"""Numbers, sizes and times as a person reads them at a glance, in pages and in terminals. Pure."""

import json
import re
from datetime import UTC, datetime

NOTHING = "–"
_SECRET = ("password", "secret", "credential", "jaas", "token", "private")
HIDDEN = "hidden"


def count(number: float | None) -> str:
    """A whole number with its thousands told apart."""
    return NOTHING if number is None else f"{number:,.0f}"


def short(number: float | None) -> str:
    """A number in three figures: 1.24 M."""
    if number is None:
        return NOTHING
    size = abs(number)
    for limit, unit in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if size >= limit:
            scaled = number / (limit if unit != " k" else 1e3)
            return f"{scaled:.{2 if abs(scaled) < 10 else 1 if abs(scaled) < 100 else 0}f}{unit}"
    if size >= 100 or number == int(number):
        return f"{number:,.0f}"
    return f"{number:.1f}" if size >= 1 else f"{number:.2f}"


def size(number: float | None) -> str:
    """Bytes: 1.5 MiB."""
    if number is None:
        return NOTHING
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(number) < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def duration(ms: float | None) -> str:
    """A length of time in its two largest units: 2 d 3 h."""
    if ms is None:
        return NOTHING
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 10_000:
        return f"{ms / 1000:.1f} s"
    return "years" if ms >= 3 * 365 * 86_400_000 else whole_duration(ms)


def whole_duration(ms: float | None) -> str:
    """The same in whole seconds, and however long it is."""
    if ms is None:
        return NOTHING
    if ms < 1000:
        return f"{ms:.0f} ms"
    seconds = int(ms // 1000)
    parts = [(seconds // 86400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "min"), (seconds % 60, "s")]
    first = next(place for place, (number, _) in enumerate(parts) if number)
    return " ".join(f"{number} {unit}" for number, unit in parts[first : first + 2] if number)


def brief(ms: float | None) -> str:
    """A length of time in its largest unit: 2 d."""
    text = duration(ms) if ms else "0 s"
    return " ".join(text.split()[:2])


def words(name: str) -> list[str]:
    """A name in pieces, between which a line may be broken: after what separates its words."""
    return [piece for piece in re.split(r"(?<=[./:_@-])(?=[^./:_@-])", name) if piece]


def moment(at_ms: float | None) -> str:
    """A time in UTC, to the millisecond."""
    if at_ms is None or at_ms < 0:
        return NOTHING
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except (ValueError, OverflowError, OSError):
        return str(at_ms)


def clock_time(at_ms: float) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%H:%M:%S")


def sentence(said: str) -> str:
    """What an error says, as a sentence of its own on a page."""
    return said[:1].upper() + said[1:] + ("" if said.endswith((".", "!", "?", "^")) else ".")


def text(data: bytes | None) -> str | None:
    """Bytes as text where they are text, else in hexadecimal."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "0x" + data.hex()


def pretty(shown: str) -> str:
    """JSON in lines, anything else as it is."""
    if shown[:1] not in ("{", "["):
        return shown
    try:
        return json.dumps(json.loads(shown), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return shown


def setting(name: str, value: str | None) -> str:
    """The value of a setting; what may be a secret is not told."""
    if value is None or any(word in name.lower() for word in _SECRET):
        return HIDDEN
    return value


def setting_meaning(name: str, value: str | None) -> str:
    """What a setting's number means, where that is not plain."""
    if value is None or not value.lstrip("-").isdecimal():
        return ""
    number = int(value)
    if number == -1 and name.endswith((".ms", ".bytes")):
        return "no limit"
    if name.endswith(".ms"):
        return "" if number < 1000 else "for ever" if number >= 2**62 else duration(number)
    return "" if number < 1024 or not name.endswith(".bytes") or number >= 2**62 else size(number)
