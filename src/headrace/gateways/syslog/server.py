"""Messages of syslog from sockets into a topic.

Streams are read on an event loop, datagrams by a thread for each socket. What always holds: while there is no room, no
stream is read from, so its sender waits; a sender of datagrams never waits, and what the kernel then drops is counted.
"""

import asyncio
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Final

import uvloop

from headrace.connect.delivery import Entry
from headrace.gateways.bad_input import BadInput
from headrace.gateways.datagrams import BATCH, Datagrams
from headrace.gateways.framing import Frames, OctetFramer
from headrace.gateways.gateway import Progress
from headrace.gateways.inlet import Inlet, Overloaded, Stopped
from headrace.gateways.inward import Handing, close, count_unwritten, stopped
from headrace.gateways.streams import Connection, Streams, read_frames
from headrace.gateways.syslog.settings import SyslogSettings

_ENDING_S: Final = 0.3
_LAST_BATCHES: Final = 64  # of datagrams that are with the kernel when it is time to end


class SyslogGateway:
    """Listens for messages; takes its ports when it is made."""

    def __init__(self, settings: SyslogSettings, inlet: Inlet, stopping: Event) -> None:
        self.name = settings.name
        self.target = settings.topic
        self.progress: Progress = inlet.progress
        self._settings = settings
        self._inlet = inlet
        self._stopping = stopping
        self._bad_input = BadInput(settings.name, self.progress)
        self._streams = Streams(settings.streams, self._serve, self.progress)
        self._datagrams: list[Datagrams] = []
        try:
            if settings.udp_port is not None:
                self._datagrams.append(Datagrams.udp(settings.streams.host, settings.udp_port, self.progress))
            if settings.unix:
                self._datagrams.append(Datagrams.unix(settings.unix, self.progress))
        except BaseException:
            self._release()
            raise

    @property
    def source(self) -> str:
        return ", ".join([*(each.source for each in self._datagrams), *self._streams.sources])

    @property
    def port(self) -> int | None:
        """The TCP port that was taken."""
        return self._streams.port

    @property
    def udp_port(self) -> int | None:
        """The UDP port that was taken."""
        return next((each.port for each in self._datagrams if each.port is not None), None)

    def run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._run())

    async def _run(self) -> None:
        self._inlet.start()
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(len(self._datagrams) + 1, f"headrace-{self.name}") as threads:
            receiving = [loop.run_in_executor(threads, self._receive, each) for each in self._datagrams]
            try:
                await self._streams.open()
                await stopped(self._stopping)
            finally:
                if not self.progress.waiting:
                    await self._streams.read_rest()
                self._streams.stop_reading()
                if receiving and not self.progress.waiting:
                    await asyncio.wait(receiving, timeout=_ENDING_S)
                await close(self._inlet, self.progress)
                await self._streams.end(_ENDING_S)
                await asyncio.gather(*receiving)
                self._release()

    def _release(self) -> None:
        self._streams.release()
        for each in self._datagrams:
            each.close()

    def _entries(self, messages: Iterable[tuple[bytes, str]]) -> list[Entry]:
        now_ms = time.time_ns() // 1_000_000
        recording = self._settings.recording
        found: list[Entry] = []
        for data, client in messages:
            if not data:
                continue
            entry = recording.entry(data, client, now_ms, self._bad_input.refuse)
            if entry is not None:
                found.append(entry)
        return found

    # --- streams

    async def _serve(self, connection: Connection) -> None:
        handing = Handing(self._inlet, self.target)

        async def take(found: Frames, _: bool) -> None:
            client = connection.client
            await handing.hand_over_silently(self._entries((frame, client) for frame in found.frames))

        framer = OctetFramer(self._settings.message_bytes, also_lines=True)
        await read_frames(connection, framer, take, self._bad_input, lambda: handing.is_settled)
        await handing.settled()

    # --- datagrams

    def _receive(self, datagrams: Datagrams) -> None:
        try:
            while not self._stopping.is_set():
                self._take(datagrams.receive())
            for _ in range(_LAST_BATCHES):
                if len(last := datagrams.receive(wait=False)):
                    self._take(last)
                if len(last) < BATCH:
                    break
        except Stopped:
            pass

    def _take(self, messages: list[tuple[bytes, str]]) -> None:
        limit, progress = self._settings.message_bytes, self.progress
        progress.received += len(messages)
        cut = sum(len(data) > limit for data, _ in messages)
        if cut:
            progress.more["cut"] = progress.more.get("cut", 0) + cut
        # Some senders end a datagram as they end a line.
        entries = self._entries((data[:limit].rstrip(b"\r\n\0"), client) for data, client in messages)
        if not entries:
            return
        try:
            count_unwritten(self._inlet.put(self.target, entries), len(entries), progress)
        except Overloaded:
            progress.dropped += len(entries)
