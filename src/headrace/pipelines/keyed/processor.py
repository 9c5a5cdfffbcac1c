"""The bridge to Spark: a bucket is a key of Spark's state, which has a map; runs and the manifest are its entries.

A bucket has one timer of Spark's, its alarm, which stands for all timers of its keys (`alarm_ms`). Spark knows
milliseconds and, in a query, one clock: an alarm goes off as soon as the watermark (or the wall clock, as a micro-batch
begins) has reached it. Spark takes an alarm away after it has gone off; a bucket that asked for the same millisecond
again while it is being woken would never be woken, so that is never asked for. As long as there is no watermark Spark
has it stand at 0, so no alarm is set for then or before: it would go off at once, and for nothing.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from headrace.pipelines.keyed import settings as stored_settings
from headrace.pipelines.keyed.bucket import Bucket, RunCache
from headrace.pipelines.keyed.manifest import Manifest, from_text, to_text
from headrace.pipelines.keyed.operator import (
    FINAL_WATERMARK,
    NEVER,
    NO_WATERMARK,
    Clock,
    Longs,
    Operator,
    Plan,
    Times,
)
from headrace.pipelines.keyed.packing import emit_cells, first_for_all, open_cells
from headrace.pipelines.keyed.settings import SETTINGS_BUCKET, Settings
from headrace.pipelines.keyed.shelf import put_shelf_before

MANIFEST = "manifest"
"""The id of the entry that is no run."""
WATERMARK = "watermark"
"""The id of an entry beside the settings."""
CACHE_BYTES = 128 << 20
# A call's rows; more of one micro-batch and bucket come in further calls, so that memory is bounded.
CALL_ROWS = 1 << 20

_cache = RunCache(CACHE_BYTES)


@dataclass(frozen=True)
class _Stored:
    """What is stored of the bucket that Spark is at."""

    state: Any

    def get(self, identity: str) -> bytes:
        return bytes(self.state.getValue((identity,))[0])

    def manifest(self) -> str | None:
        held = self.state.getValue((MANIFEST,))
        return None if held is None else bytes(held[0]).decode()

    def put_manifest(self, text: str) -> None:
        self.put(MANIFEST, text.encode())

    def put(self, identity: str, data: bytes) -> None:
        self.state.updateValue((identity,), (data,))

    def remove(self, identity: str) -> None:
        self.state.removeKey((identity,))


class Serving:
    """Serves the buckets of one partition, one after the other; made for each partition in each micro-batch."""

    def __init__(
        self,
        handle: Any,
        state: Any,
        operator: Operator,
        plan: Plan,
        keys: pa.Schema,
        buckets: int,
        is_bounded: bool = False,
    ) -> None:
        self._before_us: int | None = None
        self.operator = operator
        self.plan = plan
        self.keys = keys
        self.buckets = buckets
        self._is_bounded = is_bounded and plan.clock is not Clock.NONE
        self._handle = handle
        self._stored = _Stored(state)
        self._runs = put_shelf_before(self._stored)

    def rows(self, number: int, rows: Iterator[Any], values: Any) -> Iterator[Any]:
        """New rows of a bucket."""
        # Of what does not stream nothing is late, by neither clock.
        times = Times() if self._is_bounded else self._times(values)
        known = times if self._before_us is None else replace(times, watermark_us=self._before_us)
        bucket = self._open(number)
        for hashes, batch in self._calls(bytes(cell) for frame in rows for cell in frame["packed"]):
            for part in bucket.parts(hashes, batch, known):
                yield from _frames(part)
        if self._is_bounded:
            # What does not stream comes once, and Spark wakes nobody behind it.
            yield from _frames(bucket.timers(replace(times, watermark_us=FINAL_WATERMARK)))
        elif self.plan.ordered is not None:
            # The bucket is open, and what the watermark has passed need not be opened again for its alarm.
            yield from _frames(bucket.timers(times))
        self._close(bucket, times, None)

    def _calls(self, cells: Iterator[bytes]) -> Iterator[tuple[Longs, pa.RecordBatch]]:
        """The rows of a micro-batch, cut into calls."""
        plan = self.plan
        if plan.to_all is None or not plan.first:
            yield from open_cells(cells, CALL_ROWS, plan.call_rows)
            return
        for part in first_for_all(cells, plan.to_all, plan.first):
            if isinstance(part, tuple):
                yield part
            else:
                yield from open_cells(part, CALL_ROWS, plan.call_rows)

    def alarm(self, number: int, values: Any, expiring_ms: int) -> Iterator[Any]:
        """The bucket's alarm."""
        times = self._times(values)
        bucket = self._open(number)
        yield from _frames(bucket.timers(times))
        self._close(bucket, times, expiring_ms)

    def _open(self, number: int) -> Bucket:
        held = self._stored.manifest()
        manifest = Manifest(self.buckets) if held is None else from_text(held)
        return Bucket(
            self.operator, self.plan, self.keys, manifest=manifest, store=self._runs, cache=_cache, number=number
        )

    def _close(self, bucket: Bucket, times: Times, expiring: int | None) -> None:
        bucket.flush()
        manifest = bucket.manifest
        clock = self.plan.clock
        if clock is not Clock.NONE:
            wanted = alarm_ms(
                clock, bucket.wake_us(Clock.EVENT), bucket.wake_us(Clock.WALL), times, expiring, self.plan.behind_us
            )
            if wanted != manifest.alarm_ms:
                if manifest.alarm_ms is not None and manifest.alarm_ms != expiring:
                    self._handle.deleteTimer(manifest.alarm_ms)
                if wanted is not None:
                    self._handle.registerTimer(wanted)
                manifest = replace(manifest, alarm_ms=wanted)
        self._stored.put_manifest(to_text(manifest))

    def begin(self, client: Any) -> None:
        """Before any bucket: what holds for all of them."""
        client.set_implicit_key((SETTINGS_BUCKET,))
        is_new = self._check_settings()
        if self.plan.clock is not Clock.NONE:
            self._before_us = self._watermark_before(client, is_new=is_new)
        client.remove_implicit_key()

    def _watermark_before(self, client: Any, *, is_new: bool) -> int:
        """The watermark of the micro-batch before, and this one's is put down for the next.

        Rows are judged by the one before, as Spark's own operators judge them: the windows that this watermark closes
        are still there until the rows are in. And an operator before us emits in this micro-batch what its watermark
        has just passed, which is ours as well. State from before it was put down has closed what the present one has
        passed.
        """
        held = self._stored.state.getValue((WATERMARK,))
        _, now_ms = client.get_timestamps(self.plan.clock.value)
        self._stored.put(WATERMARK, str(now_ms).encode())
        if held is None:
            return NO_WATERMARK if is_new else self._watermark(now_ms)
        return self._watermark(int(bytes(held[0])))

    def _times(self, values: Any) -> Times:
        return Times(self._watermark(values.getCurrentWatermarkInMs()), _micros(values.getCurrentProcessingTimeInMs()))

    def _watermark(self, clock_ms: int) -> int:
        """The watermark as it is for rows that were held up before they came here."""
        found = _micros(clock_ms)
        return found if found == NO_WATERMARK else found - self.plan.behind_us

    def _check_settings(self) -> bool:
        """Refuse a state that was made otherwise, before any partition goes on with it; whether there was none."""
        now = Settings.of(self.plan, self.keys, self.buckets)
        held = self._stored.manifest()
        text = stored_settings.to_text(now)
        if held is not None:
            stored_settings.check_same(stored_settings.from_text(held), now)
        if held != text:
            self._stored.put_manifest(text)
        return held is None


def _micros(clock_ms: int) -> int:
    # Spark says 0 as long as there is no watermark.
    return clock_ms * 1000 if clock_ms > 0 else NO_WATERMARK


def _frames(rows: pa.RecordBatch | None) -> Iterable[Any]:
    import pandas as pd  # type: ignore[import-untyped]

    return () if rows is None else (pd.DataFrame({"packed": [cell]}) for cell in emit_cells(rows))


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
