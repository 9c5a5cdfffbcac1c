"""When Spark is to wake a bucket: the one timer that stands for all timers of its keys.

Spark knows milliseconds and, in a query, one clock: an alarm goes off as soon as the watermark (or the wall clock, as a
micro-batch begins) has reached it. Spark takes an alarm away after it has gone off; a bucket that asked for the same
millisecond again while it is being woken would never be woken, so that is never asked for. As long as there is no
watermark Spark has it stand at 0, so no alarm is set for then or before: it would go off at once, and for nothing.
"""

from typing import Final

from headrace.pipelines.keyed.operator import NEVER, NO_WATERMARK, Clock, Times

_FIRST_MS: Final = 1
"""The earliest watermark that Spark can have."""


def alarm_ms(
    clock: Clock, event_us: int, wall_us: int, times: Times, expiring_ms: int | None, behind_us: int = 0
) -> int | None:
    """The alarm for a bucket that must look at its event timers and wall timers at these times; None for none.

    The operator's watermark, in `times` too, is `behind_us` before Spark's.
    """
    if clock is Clock.EVENT and event_us != NEVER:
        return _event(event_us, times, expiring_ms, behind_us)
    if clock is Clock.WALL and (event_us != NEVER or wall_us != NEVER):
        now = times.wall_us // 1000
        # Spark wakes nobody for the watermark here, so the bucket looks with every micro-batch.
        chosen = _reaching(wall_us) if event_us == NEVER else min(_reaching(wall_us), now)
        # While it is being woken, what is due comes with the next micro-batch.
        return chosen if expiring_ms is None else max(chosen, now + 1)
    return None


def _event(at_us: int, times: Times, expiring_ms: int | None, behind_us: int) -> int:
    if times.watermark_us == NO_WATERMARK or at_us > times.watermark_us:
        return max(_reaching(at_us + behind_us), _FIRST_MS)
    now = (times.watermark_us + behind_us) // 1000
    return now - 1 if expiring_ms == now else now


def _reaching(at_us: int) -> int:
    """The first millisecond that is not before a time."""
    return -(-at_us // 1000)
