"""A long poll: what came behind a place, or what comes within a while, and the next place. Nothing is remembered of it.

What always holds: whoever asks with the next place of each answer gets each record once; a wait holds no thread.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Final, NamedTuple

from headrace.gateways.http.listening import LiveRecord
from headrace.serving.record_feed import Found, Kept, Listener, Live, Missed, Problem

_SCAN_S: Final = 2.0  # of the log, however short the wait: the next place is further on then


class Polled(NamedTuple):
    """What a poll brought; `place` is where the next one begins."""

    records: list[str]
    place: str
    missed: int
    problem: str


async def poll(
    listener: Listener[LiveRecord],
    shown: Callable[[Kept[LiveRecord]], str],
    *,
    max_wait_s: float,
    max_bytes: int,
    max_records: int,
) -> Polled:
    """At least one record if there is one, however large; then as many as there are at once."""
    records: list[str] = []
    size = missed = 0
    problem = place = ""
    ends_at = asyncio.get_running_loop().time() + max_wait_s
    try:
        async with asyncio.timeout(max(max_wait_s, _SCAN_S)) as limit, aclosing(listener.events()) as pages:
            async for page in pages:
                for event in page:
                    match event:
                        case Found(kept, behind):
                            text = shown(kept)
                            if records and (size + len(text) > max_bytes or len(records) >= max_records):
                                return Polled(records, place, missed, problem)
                            records.append(text)
                            size += len(text)
                            place = behind
                        case Missed(count, at):
                            missed += count
                            place = at
                        case Problem(reason):
                            problem = reason
                        case Live(at):
                            place = at
                            if records or not max_wait_s:
                                return Polled(records, place, missed, problem)
                            limit.reschedule(ends_at)
                        case _:
                            place = event.place
                if listener.is_live and records:
                    return Polled(records, listener.place, missed, problem)
    except TimeoutError:
        pass
    return Polled(records, listener.place or place, missed, problem)
