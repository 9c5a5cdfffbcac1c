"""A follower at work: files in, one transaction of lines and positions after another out.

What always holds: a position is committed with the lines before it, or not at all; whoever begins under the same name
fences the one before, then reads the positions; and after any error everything since the last commit is forgotten and
read again from the files.
"""

import contextlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Final

from headrace.client.address import Address
from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.connection import ConnectionSettings
from headrace.client.errors import ClientError, Refused
from headrace.connect.delivery import Entry, Sender, read_committed
from headrace.connect.envelope import Headers
from headrace.connect.keep_running import KeepRunning
from headrace.gateways.errors import GatewayError
from headrace.gateways.files.following import HEAD_BYTES, LINE_BYTES, Identity, Seen, Tracked, cut_lines, look
from headrace.gateways.files.reading import Files
from headrace.gateways.gateway import Progress
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.records import Codec
from headrace.records.partitioning import partition_of_key
from headrace.retry import Backoff

POSITIONS: Final = "__headrace_gateway_positions"
_LOOK_EVERY_S: Final = 0.2
_PIECE_BYTES: Final = 4 * 1024 * 1024  # of a file, at a time
_STEP_BYTES: Final = 8 * 1024 * 1024  # of all files, in one transaction
_STEP_LINES: Final = 200_000  # likewise: what a record takes here is more than a short line
_SETTLED_S: Final = 5.0  # a rotated file that nobody wrote to for so long has ended, also within a line
_MISSES: Final = 10  # looks in which a file is in no folder before it is believed to be gone
_MOST_AWAY: Final = 1_000  # files whose folders are away, and which may come back with them


@dataclass(frozen=True, slots=True)
class FollowSettings:
    """What one follower reads, and where to."""

    name: str
    patterns: tuple[str, ...]
    topic: str
    from_end: bool = False
    with_path: bool = False  # a record's key is the path that is followed
    header: str | None = None  # of this name, with the path
    line_bytes: int = LINE_BYTES
    codec: Codec = Codec.NONE


@dataclass(slots=True)
class FollowProgress(Progress):
    """How far it has come, for whoever watches."""

    too_long: int = 0
    emptied: int = 0
    files: int = 0
    lag_bytes: int = 0


@dataclass(slots=True)
class Follower:
    settings: FollowSettings
    bootstrap: Sequence[Address]
    backoff: Backoff = field(default_factory=Backoff)
    progress: FollowProgress = field(default_factory=FollowProgress)
    stopping: Event = field(default_factory=Event)

    until_idle: bool = False
    """Whether it ends when there is nothing more."""

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def source(self) -> str:
        return ", ".join(self.settings.patterns)

    @property
    def target(self) -> str:
        return self.settings.topic

    def run(self) -> None:
        """Follow until it is told to stop; raises what waiting does not mend."""
        loop = KeepRunning(
            self.name,
            self.progress,
            self.stopping,
            lambda: self.progress.records,
            lambda refusal: _lasting(refusal, self.settings),
            self.backoff,
        )
        loop.run(lambda: self._run_once(self.until_idle))

    def _run_once(self, until_idle: bool) -> None:
        client = ConnectionSettings(client_id=f"headrace-follow-{self.settings.name}")
        with Cluster(self.bootstrap, client) as cluster:
            ensure_topic(cluster, POSITIONS, partitions=1, configs={"cleanup.policy": "compact"})
            ensure_topic(cluster, self.settings.topic)
            owner = f"headrace-follow-{self.settings.name}"
            sender = Sender(cluster, owner, self.settings.name, codec=self.settings.codec)
            sender.begin()
            files = Files(self.settings.patterns)
            work = _Work(
                self.settings, files, sender, len(cluster.topic(self.settings.topic).partitions), self.progress
            )
            try:
                work.resume(read_committed(cluster, POSITIONS, work.is_own))
                while not self.stopping.is_set():
                    is_idle = work.step()
                    self.progress.waiting = ""
                    if is_idle and until_idle and not work.held:
                        return
                    if is_idle:
                        self.stopping.wait(_LOOK_EVERY_S)
            except Exception:
                # What is left open would hold up every reader of the topic until it runs out of time.
                with contextlib.suppress(ClientError):
                    sender.abort()
                raise
            finally:
                files.close()


class _Work:
    """One run of a follower, between taking over and the first error."""

    def __init__(
        self, settings: FollowSettings, files: Files, sender: Sender, partitions: int, progress: FollowProgress
    ) -> None:
        self._settings = settings
        self._files = files
        self._sender = sender
        self._partitions = partitions
        self._progress = progress
        self._tracked: dict[Identity, Tracked] = {}
        self._committed: dict[Identity, Tracked] = {}
        self._begun: set[str] = set()
        self._begun_committed: set[str] | None = None
        self._misses: dict[Identity, int] = {}
        self._looked = float("-inf")
        self._seen: dict[Identity, Seen] = {}
        self.held: set[Identity] = set()
        self._waiting: set[str] = set()  # paths of which nothing more is read before the next look

    # --- positions

    def is_own(self, key: bytes) -> bool:
        try:
            found = json.loads(key)
        except ValueError:
            return False
        return isinstance(found, dict) and found.get("gateway") == self._settings.name

    def resume(self, stored: dict[bytes, bytes]) -> None:
        """Go on from what was committed."""
        for key, value in stored.items():
            place, said = json.loads(key), json.loads(value)
            if "file" not in place:
                self._begun = set(said["begun"])
                self._begun_committed = set(self._begun)
                continue
            identity = Identity(*place["file"])
            self._tracked[identity] = Tracked(
                identity, said["path"], said["base"], said["offset"], bytes.fromhex(said["head"]), said["skipping"]
            )
        self._committed = dict(self._tracked)

    def _key(self, identity: Identity | None = None) -> bytes:
        place: dict[str, object] = {"gateway": self._settings.name}
        return json.dumps(place if identity is None else place | {"file": list(identity)}).encode()

    def _changed_positions(self, now_ms: int) -> list[Entry]:
        entries: list[Entry] = []
        if self._begun_committed != self._begun:
            entries.append((self._key(), json.dumps({"begun": sorted(self._begun)}).encode(), now_ms, ()))
        for identity, file in self._tracked.items():
            if self._committed.get(identity) != file:
                value = {
                    "path": file.path, "base": file.base, "offset": file.offset, "head": file.head.hex(),
                    "skipping": file.is_skipping,
                }  # fmt: skip
                entries.append((self._key(identity), json.dumps(value).encode(), now_ms, ()))
        entries += [(self._key(gone), None, now_ms, ()) for gone in self._committed if gone not in self._tracked]
        return entries

    # --- a step

    def step(self) -> bool:
        """Read what there is, up to so many bytes, and commit it; whether there was nothing."""
        if time.monotonic() - self._looked >= _LOOK_EVERY_S:
            self._look()
        now_ms = time.time_ns() // 1_000_000
        lines: dict[TopicPartition, list[Entry]] = {}
        count = size = 0
        # One file to its end before the next: of one log, the older lines come first.
        self._waiting = set()
        for identity in list(self._tracked):
            taken = 1
            while taken and size < _STEP_BYTES and count < _STEP_LINES:
                taken, found = self._read(self._tracked[identity], now_ms, lines)
                size += taken
                count += found
        positions = self._changed_positions(now_ms)
        if positions:
            self._sender.commit(lines | {TopicPartition(POSITIONS, 0): positions})
            self._committed = dict(self._tracked)
            self._begun_committed = set(self._begun)
            self._progress.records += count
            self._progress.bytes += size
        self._report()
        return not size

    def _look(self) -> None:
        self._looked = time.monotonic()
        seen = self._files.seen({file.base for file in self._tracked.values()})
        found = look(self._tracked, seen, begun=self._begun, from_end=self._settings.from_end)
        self._progress.emptied += len(found.emptied)
        self.held = found.held
        self._begun = set(self._files.patterns)
        self._seen = {one.identity: one for one in seen}
        misses = {file.identity: self._misses.get(file.identity, 0) + 1 for file in found.gone}
        # Files that are being renamed may be in no folder for a moment; one that was removed may have a rest to read.
        stay = {file.identity: file for file in found.gone if misses[file.identity] < _MISSES}
        away: dict[Identity, Tracked] = {}
        for file in found.gone:
            if file.identity not in stay:
                self._files.release(file.identity)
                # What was read of a file that only cannot be looked at must not be read again when it can.
                if misses[file.identity] % _MISSES or self._files.is_away(file):
                    away[file.identity] = file
        away = dict(list(away.items())[-_MOST_AWAY:])
        stay |= away
        self._misses = {identity: misses[identity] for identity in stay}
        self._tracked = stay | found.tracked
        self._progress.files = len(self._tracked) - len(away)

    def _read(self, file: Tracked, now_ms: int, lines: dict[TopicPartition, list[Entry]]) -> tuple[int, int]:
        """Lines of one file as records; how many bytes they were, and how many lines."""
        seen = self._seen.get(file.identity)
        is_live = seen is not None and seen.is_live
        if seen is not None and not is_live and seen.size <= file.offset:
            self._files.release(file.identity)  # there is nothing more, and if there is, a look sees it
            return 0, 0
        if file.identity in self.held or file.base in self._waiting or (seen is None and not self._files.is_open(file)):
            return 0, 0
        limit = self._settings.line_bytes
        size = max(_PIECE_BYTES, 2 * limit)
        # Not beyond what the look saw: what was written since may come after lines of a copy that it has not seen.
        reach = size if seen is None else min(size, seen.size - file.offset)
        piece = self._files.read(file, reach, b"" if seen is None else seen.head) if reach > 0 else None
        if piece is None and reach > 0:
            self._waiting.add(file.base)  # moved or emptied since the look; what comes after its lines has to wait
        if piece is None or not piece.data:
            return 0, 0
        is_ended = reach < size and not is_live and self._is_settled(file, seen)
        cut = cut_lines(piece.data, limit, is_skipping=file.is_skipping, is_ended=is_ended)
        if not cut.taken:
            return 0, 0
        where, key, headers = self._place(file.base)
        if cut.lines:  # within a line that is skipped there are none, and yet the position goes on
            lines.setdefault(where, []).extend([(key, line, now_ms, headers) for line in cut.lines])
        self._tracked[file.identity] = file.moved(
            file.offset + cut.taken, piece.head[:HEAD_BYTES], is_skipping=cut.is_skipping
        )
        self._progress.too_long += cut.too_long
        return cut.taken, len(cut.lines)

    def _is_settled(self, file: Tracked, seen: Seen | None) -> bool:
        if seen is None:  # it may only be on its way from one name to another
            return self._misses.get(file.identity, 0) >= _MISSES - 1
        # A time that is to come is that of a clock that was set back since: waiting for it could take hours.
        return abs(time.time_ns() - seen.modified_ns) > _SETTLED_S * 1e9

    def _place(self, base: str) -> tuple[TopicPartition, bytes | None, Headers]:
        """Where a path's lines go: all into one partition, so that they keep their order."""
        path = base.encode(errors="surrogateescape")
        partition = partition_of_key(path, self._partitions) if self._partitions > 1 else 0
        headers = ((self._settings.header, path),) if self._settings.header else ()
        return TopicPartition(self._settings.topic, partition), path if self._settings.with_path else None, headers

    def _report(self) -> None:
        progress = self._progress
        progress.problem = next(iter(self._files.problems.values()), "")
        progress.received = progress.records
        progress.lag_bytes = sum(
            max(one.size - self._tracked[identity].offset, 0)
            for identity, one in self._seen.items()
            if identity in self._tracked
        )
        progress.more = {"files": progress.files, "lag_bytes": progress.lag_bytes, "too_long": progress.too_long}


def _lasting(refusal: Refused, settings: FollowSettings) -> GatewayError:
    if refusal.code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
        return GatewayError(
            f"a line is larger than {settings.topic} takes ({refusal}): set max_line lower, or the topic's "
            "max.message.bytes higher"
        )
    return GatewayError(f"the broker refuses what {settings.name} writes to {settings.topic} ({refusal})")
