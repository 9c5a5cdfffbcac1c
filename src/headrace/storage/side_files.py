"""What a log has yet to write beside its batches: the indexes of full segments, and snapshots of its producers.

All of it can be made again from the batches, so it is written when the log is flushed, not when a segment fills up, and
a full disk may hold it up for a while. Whoever appends adds to it while whoever flushes works it off.
"""

from collections.abc import Collection, Sequence
from threading import Lock

from headrace.storage.atomic_file import write_atomically
from headrace.storage.filesystem import FileSystem
from headrace.storage.names import SNAPSHOT, file_name
from headrace.storage.producer_snapshot import remove_snapshots, snapshot_offsets
from headrace.storage.segment import Segment


class SideFiles:
    def __init__(self, filesystem: FileSystem, directory: str, unsaved: Sequence[Segment]) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._lock = Lock()
        self._segments = list(unsaved)
        self._snapshots: dict[int, bytes] = {}

    def add_segment(self, segment: Segment) -> None:
        with self._lock:
            if segment not in self._segments:
                self._segments.append(segment)

    def add_snapshot(self, offset: int, data: bytes) -> None:
        """Have the producers as of `offset` written."""
        with self._lock:
            self._snapshots[offset] = data

    def has_snapshot(self, offset: int) -> bool:
        """Whether the producers as of `offset` are written, or about to be."""
        with self._lock:
            return offset in self._snapshots or offset in snapshot_offsets(self._filesystem, self._directory)

    def forget(self, segments: Collection[Segment]) -> None:
        """Leave out segments that are gone, or are written to again."""
        with self._lock:
            self._segments = [segment for segment in self._segments if segment not in segments]

    def remove_snapshots(self, *, before: int = -1, behind: int = 2**63) -> None:
        """Remove the snapshots for offsets under `before` or over `behind`, written or not."""
        with self._lock:
            self._snapshots = {o: data for o, data in self._snapshots.items() if before <= o <= behind}
        remove_snapshots(self._filesystem, self._directory, before=before, behind=behind)

    def save(self) -> None:
        """Write all of it, durably; what fails stays for the next time."""
        with self._lock:
            segments, snapshots = list(self._segments), dict(self._snapshots)
        saved = set()
        try:
            for segment in segments:
                segment.save_indexes()
                saved.add(segment)
        finally:
            self.forget(saved)
        for offset, data in snapshots.items():
            write_atomically(self._filesystem, f"{self._directory}/{file_name(offset, SNAPSHOT)}", data)
            with self._lock:
                if self._snapshots.get(offset) is data:
                    del self._snapshots[offset]
