"""Requests that carry an Idempotency-Key: the second of one key is answered as the first one was, and writes nothing.

A key is remembered in a compacted topic, in one transaction with the records; where they are is added to it afterwards.
What always holds: of two requests of one key the records of one are written, whatever dies in between; other records
under a known key are refused; and keys are forgotten after a while, so that what is remembered has an upper bound.
"""

import asyncio
import json
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from headrace.client.address import Address
from headrace.client.cluster import Cluster
from headrace.connect.delivery import Entry, read_committed
from headrace.errors import HeadraceError
from headrace.gateways.gateway import Progress
from headrace.gateways.http.producing import Away, Outcome, Producing, lots_of
from headrace.gateways.http.record_form import Given
from headrace.gateways.inlet import Inlet
from headrace.gateways.writing import Lot, Placed, Remembering
from headrace.serving.asking import InvalidRequest

HEADER: Final = "idempotency-key"
REPLAYED: Final = "idempotency-replayed"
MEMORY: Final = "__headrace_gateway_requests"
MOST_REMEMBERED: Final = 200_000
_LONGEST: Final = 255  # characters of a key
_FORGET_AT_ONCE: Final = 20  # expired keys, with each request


@dataclass(slots=True)
class _Known:
    digest: str
    at_ms: int
    placed: list[list[int]] | None  # None while it is not known where the records are


class _Writing(Remembering):
    """Reads what is remembered once nobody else can write under the gateway's name any more."""

    def __init__(self, of: "Idempotency") -> None:
        super().__init__(of.name, MEMORY, of.producing.settings.codec)
        self._of = of

    def reconnect(self, cluster: Cluster) -> None:
        super().reconnect(cluster)
        if not self._of.loaded.done():
            self._of.loaded.set_result(self._of.read(cluster))


@dataclass(slots=True)
class Idempotency:
    """What is remembered; for the event loop. Its inlet writes transactions, under the gateway's name."""

    name: str
    producing: Producing
    bootstrap: Sequence[Address]
    keep_ms: int
    progress: Progress
    loaded: Future[dict[str, _Known]] = field(default_factory=Future)
    _inlet: Inlet | None = None
    _under_way: set[str] = field(default_factory=set)

    @property
    def failure(self) -> HeadraceError | None:
        """Why no more is written under a key: another gateway has begun under this name."""
        return self._inlet.failure if self._inlet is not None else None

    def close(self, timeout_s: float) -> None:
        if self._inlet is not None:
            self._inlet.close(timeout_s)

    async def write(self, key: str, user: str, topic: str, given: Sequence[Given]) -> tuple[list[Outcome], bool]:
        """What became of the records, and whether that was known already; a key of one user is not that of another."""
        check_key(key)
        inlet, known = await self._load()
        # Of the records and not of the body: attributes of an event may stand in headers, a key in the address.
        name, digest = _name(self.name, topic, user, key), sha256(repr(list(given)).encode()).hexdigest()
        now_ms = time.time_ns() // 1_000_000
        before = known.get(name)
        if before is not None and before.at_ms + self.keep_ms > now_ms:
            if before.digest != digest:
                raise InvalidRequest("this Idempotency-Key came with another request before: use a new one", 422)
            return [Placed(*each) for each in before.placed or [[0, -1]] * len(given)], True
        if name in self._under_way:
            raise InvalidRequest("a request with this Idempotency-Key is under way: try again in a moment", 409)
        lots = lots_of(topic, given, now_ms)
        if len(lots) > 1:
            raise InvalidRequest(
                "records of several partitions cannot have an Idempotency-Key together: send a request for each"
            )
        forgotten = [each for each in self._forgotten(known, now_ms) if each[0] != name.encode()]
        if len(known) >= MOST_REMEMBERED:
            raise Crowded("too many Idempotency-Keys are remembered: set idempotency_hours lower, or try again later")
        made = _Known(digest, now_ms, None)
        loop = asyncio.get_running_loop()
        until = loop.time() + self.producing.settings.timeout_s
        self._under_way.add(name)
        lot = lots[0][0]._replace(kept=[_entry(name, made), *forgotten])
        try:
            future = await self.producing.offer(inlet, lot, until)
        except HeadraceError as error:
            self._under_way.discard(name)
            return [error] * len(given), False
        # Also when nobody waits for it any more: until it is decided, no other request of this key writes anything.
        future.add_done_callback(lambda done: loop.call_soon_threadsafe(self._settle, topic, name, made, done))
        return list(await self.producing.outcome(inlet, future, len(given), until)), False

    def _settle(self, topic: str, name: str, made: _Known, done: Future[list[Placed]]) -> None:
        self._under_way.discard(name)
        if done.exception() is None:
            made.placed = [list(each) for each in done.result()]
            known = self.loaded.result()
            known.pop(name, None)  # of an earlier time: it belongs behind those that came since
            known[name] = made
            self.progress.records += len(made.placed)
            if all(offset >= 0 for _, offset in made.placed):
                self._remember_places(topic, name, made)

    def _remember_places(self, topic: str, name: str, made: _Known) -> None:
        """Nobody waits for it: without, the answer after a restart does not say where the records are."""
        try:
            assert self._inlet is not None
            self._inlet.offer(Lot(topic, (), None, (_entry(name, made),)))
        except HeadraceError:
            return

    def _forgotten(self, known: dict[str, _Known], now_ms: int) -> list[Entry]:
        """Some of the keys whose time is over, with what makes the topic forget them."""
        expired: list[str] = []
        ahead: list[str] = []  # the clock was put back: nothing behind them would ever be over
        for name, each in known.items():  # in the order of their times
            if len(expired) + len(ahead) == _FORGET_AT_ONCE:
                break
            if each.at_ms > now_ms:
                ahead.append(name)
            elif each.at_ms + self.keep_ms > now_ms:
                break
            elif name not in self._under_way:  # it is being written anew: this would take that away
                expired.append(name)
        for name in ahead:
            moved = known.pop(name)
            moved.at_ms = now_ms
            known[name] = moved
        for name in expired:
            del known[name]
        return [(name.encode(), None, now_ms, ()) for name in expired]

    async def _load(self) -> tuple[Inlet, dict[str, _Known]]:
        settings = self.producing.settings
        if self._inlet is None:  # only now: whoever begins under this name takes over from another
            self._inlet = Inlet(
                self.bootstrap,
                self.name,
                Progress(),
                settings.limit_bytes,
                settings.overload,
                open_writing=lambda _: _Writing(self),
            )
            self._inlet.start()
        inlet = self._inlet
        try:
            async with asyncio.timeout(settings.timeout_s):
                return inlet, await asyncio.shield(asyncio.wrap_future(self.loaded))
        except TimeoutError:
            raise inlet.failure or Away(f"nothing was written: {inlet.progress.problem or 'no answer yet'}") from None

    def read(self, cluster: Cluster) -> dict[str, _Known]:
        """What is remembered, in the order of the times."""
        found: list[tuple[int, str, _Known]] = []
        for key, value in read_committed(cluster, MEMORY, lambda key: _is_of(self.name, key)).items():
            try:
                said = json.loads(value)
                found.append((said["at"], key.decode(), _Known(said["digest"], said["at"], said.get("placed"))))
            except (ValueError, KeyError, TypeError):
                continue
        return {name: known for _, name, known in sorted(found, key=lambda each: each[0])}


class Crowded(HeadraceError):
    """There is no room for more keys."""


def check_key(key: str) -> None:
    if not 1 <= len(key) <= _LONGEST or not key.isprintable():
        raise InvalidRequest(f"an Idempotency-Key has 1 to {_LONGEST} printable characters")


def _name(gateway: str, topic: str, user: str, key: str) -> str:
    return json.dumps([gateway, topic, user, key], ensure_ascii=True, separators=(",", ":"))


def _is_of(gateway: str, key: bytes) -> bool:
    return key.startswith(json.dumps([gateway], separators=(",", ":"))[:-1].encode() + b",")


def _entry(name: str, made: _Known) -> Entry:
    said: dict[str, Any] = {"digest": made.digest, "at": made.at_ms}
    if made.placed is not None:
        said["placed"] = made.placed
    return name.encode(), json.dumps(said, separators=(",", ":")).encode(), made.at_ms, ()


__all__ = ["HEADER", "MEMORY", "REPLAYED", "Crowded", "Idempotency", "check_key"]
