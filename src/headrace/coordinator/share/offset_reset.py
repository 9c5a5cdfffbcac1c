"""Where a share group begins in a partition that it has no state of: `share.auto.offset.reset`."""

import re
from typing import Final

EARLIEST, LATEST = "earliest", "latest"
_BY_DURATION = "by_duration:"
_DURATION = re.compile(
    r"P(?=.)(?:(?P<days>\d+)D)?(?:T(?=.)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE,
)
_UNITS_MS: Final = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}


def is_offset_reset(text: str) -> bool:
    return text in (EARLIEST, LATEST) or read_duration_ms(text) is not None


def read_duration_ms(text: str) -> int | None:
    """How long ago a group begins by `by_duration:` and a duration such as P1DT12H; None if it is nothing like that."""
    match = _DURATION.fullmatch(text.removeprefix(_BY_DURATION)) if text.startswith(_BY_DURATION) else None
    if match is None:
        return None
    return int(sum(float(match[unit] or 0) * size_ms for unit, size_ms in _UNITS_MS.items()))
