"""When Spark is to wake a bucket: the one timer that stands for all timers of its keys.

Spark knows milliseconds and, in a query, one clock: an alarm goes off when the watermark (or the wall clock, as a
micro-batch begins) is past it, not yet when it is reached, so it is set a millisecond before. Spark takes an alarm away
after it has gone off; a bucket that asked for the same millisecond again while it is being woken would never be woken,
so that is never asked for.
"""

from headrace.pipelines.keyed.operator import NEVER, NO_WATERMARK, Clock, Times


def alarm_ms(clock: Clock, event_us: int, wall_us: int, times: Times, expiring_ms: int | None) -> int | None:
    """The alarm for a bucket that must look at its event timers and wall timers at these times; None for none."""
    if clock is Clock.EVENT and event_us != NEVER:
        return _event(event_us, times, expiring_ms)
    if clock is Clock.WALL and (event_us != NEVER or wall_us != NEVER):
        now = times.wall_us // 1000
        # Spark wakes nobody for the watermark here, so the bucket looks with every micro-batch.
        chosen = _before(wall_us) if event_us == NEVER else min(_before(wall_us), now - 1)
        # While it is being woken, what is due comes with the next micro-batch.
        return chosen if expiring_ms is None else max(chosen, now)
    return None


def _event(at_us: int, times: Times, expiring_ms: int | None) -> int:
    if times.watermark_us == NO_WATERMARK or at_us > times.watermark_us:
        return _before(at_us)
    now = times.watermark_us // 1000
    return now - 2 if expiring_ms == now - 1 else now - 1


def _before(at_us: int) -> int:
    return max(-(-at_us // 1000) - 1, 0)
