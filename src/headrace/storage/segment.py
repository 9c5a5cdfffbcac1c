"""One stretch of a log: a file of batches and the indexes beside it.

A segment is written by one thread at a time and read by any number. What a reader sees only grows: the size it looks
up is set after the bytes are in the file. Nothing here decides when to roll or delete; that is the log's business.
"""

import errno
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock, RLock
from typing import NamedTuple

from headrace.errors import HeadraceError
from headrace.model import NO_TIMESTAMP
from headrace.records import BatchHeader, Buffer
from headrace.storage.checkpoint import Damage
from headrace.storage.errors import WriteFailed, refusal
from headrace.storage.filesystem import OPEN_FILES, File, FileSystem
from headrace.storage.indexes import AbortedTransaction, Indexes, IndexFiles, TransactionIndex, build
from headrace.storage.names import LOG, file_name
from headrace.storage.scan import headers, locate, scan

_MAX_BUFFERS = 1024  # what one system call takes (IOV_MAX)


@dataclass(frozen=True, slots=True)
class FileSlice:
    """A run of bytes in a segment; it stays readable after the segment has been removed.

    It has a length as a buffer has, so that it can stand for its bytes in an answer until they are sent.
    """

    file: File
    position: int
    size: int

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        return self.file.read_at(self.size, self.position) if self.size else b""


class Appended(NamedTuple):
    """What the indexes want to know of a batch that is being appended."""

    base_offset: int
    last_offset: int
    max_timestamp: int
    size: int


class Segment:
    """A log file that begins at `base_offset`, and its indexes."""

    def __init__(
        self,
        filesystem: FileSystem,
        directory: str,
        base_offset: int,
        *,
        interval_bytes: int,
        suffix: str = "",
        fresh: bool = False,
    ) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._interval_bytes = interval_bytes
        self._index_lock = RLock()  # held while files are read from disk by their names, or get other names
        self.base_offset = base_offset
        self.path = f"{directory}/{file_name(base_offset, LOG)}{suffix}"
        self._file: File | None = OPEN_FILES.open(filesystem, self.path, self, create=True)
        self._has_unsynced = False
        self._has_name = True
        self._is_closed = self._is_removed = False
        self.size = self.file.size()
        self._index_files = IndexFiles(filesystem, directory, base_offset)
        if fresh:  # there may be something left over from a removal that failed
            self._index_files.remove()
            self._index_files.sync_removal()
            if self.size:
                self.file.truncate(0)
                self.file.sync()
                self.size = 0
        self.max_timestamp = NO_TIMESTAMP
        self.damage: tuple[Damage, ...] = ()
        self._max_timestamp_offset = base_offset
        self._first_timestamp: int | None = None
        self.index_entries = 0
        self._indexes: Indexes | None = Indexes(base_offset) if not self.size else None
        self._indexes_saved = False
        self._files_outdated = not fresh  # whether index files may be there that the next append makes untrue
        self._transactions: TransactionIndex | None = None  # stays in memory: only a replay could make it anew
        # A failed sync is reported once: whoever else syncs the file waits, and learns of it from `in_doubt`.
        self._sync_lock = Lock()
        self.in_doubt = (
            False  # whether bytes behind the last good sync may not be on the disk, and look as if they were
        )
        self._bytes_since_entry = 0
        # The batch written last: a reader that keeps up is served without a look-up.
        self._last: tuple[int, int, int, int] | None = None  # base offset, last offset, position, size
        self._tail_uncut = False

    def __repr__(self) -> str:
        return f"Segment({self.path!r}, {self.size} bytes)"

    # --- the file

    @property
    def file(self) -> File:
        """The log file, opened if need be."""
        file = self._file  # another thread may let go of it meanwhile
        return file if file is not None else self._reopen()

    def _reopen(self) -> File:
        with self._index_lock:
            self._check_open()
            file = self._file
            if file is None:
                if self._is_removed:  # what has its name now is another segment's
                    raise OSError(errno.ENOENT, "the segment was removed", self.path)
                file = self._file = OPEN_FILES.open(self._filesystem, self.path, self)
            return file

    def _check_open(self) -> None:
        if self._is_closed:
            raise OSError(errno.EBADF, "the segment is closed", self.path)

    def release_file(self, *, urgent: bool = False) -> bool:
        """Let go of the file, unless it has unsynced bytes or no name any more; whether it did.

        If it is `urgent` they are synced first, unless somebody is about to: who asks must not wait for who waits for
        it. And what was removed is then gone for good.
        """
        if urgent and self._is_removed:
            self._file = None
            return True
        if urgent and self._has_unsynced and self._has_name and self._sync_lock.acquire(blocking=False):
            try:
                unsynced = self._file
                if unsynced is not None:
                    with suppress(OSError):  # then it stays open, and in doubt
                        self._sync_file(unsynced)
            finally:
                self._sync_lock.release()
        if not self._has_name:
            return False
        # First the file, then the look: a writer notes that it writes before it takes the file.
        file, self._file = self._file, None
        if self._has_unsynced or not self._has_name:
            self._file = file
            return False
        return True

    # --- writing

    def append(self, buffers: Sequence[Buffer], batches: Sequence[Appended], total: int) -> None:
        """Write these batches, `total` bytes, at the end: all of them, or none and an error."""
        if self._files_outdated or self._indexes is None:
            self.drop_saved_indexes()
        if self._tail_uncut:
            self._cut_tail()
        position = self.size
        self._has_unsynced = True
        try:
            written = self.file.write_at(buffers, position) if len(buffers) <= _MAX_BUFFERS else 0
            if written != total:
                self._write_rest(b"".join(buffers), position, written)
        except OSError as error:
            self._tail_uncut = True
            self._cut_tail(ignore_errors=True)
            raise refusal(self.path, error) from error
        self._has_unsynced = True  # a sync may have begun before the write, and taken the first note away
        for batch in batches:
            self._index(batch, position)
            position += batch.size
        self.size = position
        self._last = (batch.base_offset, batch.last_offset, position - batch.size, batch.size)

    def _write_rest(self, data: bytes, position: int, written: int) -> None:
        while written < len(data):
            count = self.file.write_at([memoryview(data)[written:]], position + written)
            if not count:
                raise OSError(errno.ENOSPC, "nothing was written")
            written += count

    def _cut_tail(self, *, ignore_errors: bool = False) -> None:
        """Remove what a failed append left behind, on the disk too: behind the next append it would look like data."""
        try:
            self.file.truncate(self.size)
            self.sync_cut()
            self._tail_uncut = False
        except OSError as error:
            if not ignore_errors:
                raise WriteFailed(self.path, error) from error

    def _index(self, batch: Appended, position: int) -> None:
        if batch.max_timestamp > self.max_timestamp:
            self.max_timestamp = batch.max_timestamp
            self._max_timestamp_offset = batch.last_offset
        if self._first_timestamp is None and not position:
            self._first_timestamp = batch.max_timestamp
        if self._bytes_since_entry > self._interval_bytes:
            indexes = self.indexes
            indexes.offsets.append(batch.last_offset, position)
            indexes.times.append(self.max_timestamp, self._max_timestamp_offset)
            self.index_entries = len(indexes.offsets)
            self._bytes_since_entry = 0
        self._bytes_since_entry += batch.size

    def _rewrite(self, start: int) -> None:
        """Write the bytes from `start` on once more: after a failed sync the kernel believes they are on the disk."""
        for begin, end in self.readable(start):
            for scanned in scan(self.file, begin, end):
                self._write_rest(bytes(scanned.batch), scanned.position, 0)

    def truncate(self, position: int, next_offset: int) -> None:
        """Cut the file at `position`, where the batch of `next_offset` began; `sync_cut` makes it last."""
        self.drop_saved_indexes()
        self._index_files.sync_removal()
        indexes = self.indexes
        self._has_unsynced = True
        self.file.truncate(position)
        self.size = position
        self._last = None
        self._tail_uncut = False
        indexes.offsets.truncate(position)
        indexes.times.truncate(next_offset)
        indexes.transactions.truncate(next_offset)
        self.index_entries = len(indexes.offsets)
        self._bytes_since_entry = 0
        self.damage = tuple(damage for damage in self.damage if damage.position < position)
        self.max_timestamp, self._max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        for _, header in self.headers():
            if header.record_count and header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self._max_timestamp_offset = header.max_timestamp, header.last_offset
        if not position:
            self._first_timestamp = None

    def sync_cut(self) -> None:
        """Have a cut on the disk: what was cut off and is whole must not come back behind what is written next."""
        with self._sync_lock:
            self._sync_file(self.file)

    def _sync_file(self, file: File) -> None:
        self._has_unsynced = False  # what is written from here on may miss the sync
        try:
            file.sync()
        except OSError:
            self.in_doubt = self._has_unsynced = True
            raise

    # --- reading

    def readable(self, start: int = 0) -> Iterator[tuple[int, int]]:
        """The runs of bytes from `start` on that are not damaged."""
        end = self.size
        for damage in self.damage:
            if damage.position > start:
                yield start, damage.position
            start = max(start, damage.position + damage.size)
        if start < end:
            yield start, end

    def headers(self, start: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        for begin, end in self.readable(start):
            yield from headers(self.file, begin, end)

    def find(self, offset: int) -> tuple[int, int] | None:
        """Position and size of the first batch that ends at or behind `offset`; None if none does."""
        last = self._last
        if last and last[0] <= offset <= last[1]:
            return last[2], last[3]
        for damage in self.damage:
            damage.refuse(offset, self.path)
        return self._locate(offset)

    def _locate(self, offset: int) -> tuple[int, int] | None:
        start = self.indexes.offsets.lookup(offset)
        if not self.damage:
            return locate(self.file, start, self.size, offset)
        for begin, end in self.readable(start):
            found = locate(self.file, begin, end, offset)
            if found:
                return found
        return None

    def position_of(self, offset: int) -> int:
        """Where the batch of `offset` begins, or the next readable one, or the end of the file."""
        if offset <= self.base_offset:
            return 0
        found = self._locate(offset)
        return found[0] if found else self.size

    def slice_from(self, position: int, first_size: int, max_bytes: int, end: int) -> FileSlice:
        """At most `max_bytes` from `position`, but the whole first batch; nothing damaged, nothing behind `end`."""
        for damage in self.damage:
            if damage.position >= position:
                end = min(end, damage.position)
        return FileSlice(self.file, position, min(end - position, max(max_bytes, first_size)))

    # --- indexes

    @property
    def indexes(self) -> Indexes:
        """The indexes, read from disk on first use."""
        indexes = self._indexes  # another thread may release them meanwhile
        return indexes if indexes is not None else self._load_indexes()

    @property
    def largest_timestamp(self) -> int:
        """The youngest record's timestamp, or when the file was written if its records carry none."""
        if self.max_timestamp == NO_TIMESTAMP and self._indexes is None:
            self._load_indexes()
        if self.max_timestamp >= 0:
            return self.max_timestamp
        with self._index_lock, suppress(FileNotFoundError):  # a reader may hold a segment that is gone
            return self._filesystem.modified_ms(self.path)
        return NO_TIMESTAMP

    @property
    def max_timestamp_offset(self) -> int:
        """The last offset of the batch with the youngest record."""
        _ = self.largest_timestamp
        return self._max_timestamp_offset

    @property
    def first_timestamp(self) -> int | None:
        """Of the first batch, from which the segment's age is counted; None while there is none."""
        if self._first_timestamp is None and self.size:
            self._first_timestamp = next((header.max_timestamp for _, header in self.headers()), None)
        return self._first_timestamp

    def seal(self) -> None:
        """Finish file and time index: the segment is full, and its youngest record must be found through it."""
        if self._tail_uncut:
            self._cut_tail()
        if self._indexes is not None and self.max_timestamp >= 0:
            self._indexes.times.append(self.max_timestamp, self._max_timestamp_offset)

    def save_indexes(self) -> None:
        """Write the indexes to disk, durably; nothing is done if they are there."""
        with self._index_lock:
            if self._indexes_saved or self._indexes is None:
                return
            self._files_outdated = True
            self._index_files.save(self._indexes)
            self._indexes_saved = True

    def drop_saved_indexes(self) -> None:
        """Take the indexes into memory alone: the segment is written to again, and the files would be out of date.

        They must be gone for good before what is written next counts as durable, or one that came back would hide an
        aborted transaction, or the youngest record: `sync` sees to that. Until then recovery makes them anew anyway.
        """
        try:
            with self._index_lock:
                self._check_open()  # the directory may be somebody else's by now
                _ = self.indexes
                self._index_files.remove()
                self._indexes_saved = False
                self._files_outdated = False
        except OSError as error:
            raise refusal(self.path, error) from error

    @property
    def has_indexes(self) -> bool:
        """Whether the indexes are on disk and as they were written; if not, recovery makes them from the batches."""
        with self._index_lock:
            self._transactions = self._index_files.load_transactions()
            return self._transactions is not None

    def release_indexes(self) -> None:
        """Give the memory of saved indexes back; they are read again when they are needed."""
        with self._index_lock:
            if self._indexes_saved and self._indexes is not None:
                self._transactions = self._indexes.transactions
                self._indexes = None

    def _load_indexes(self) -> Indexes:
        with self._index_lock:
            if self._indexes is not None:
                return self._indexes
            transactions = self._transactions or self._index_files.load_transactions()
            indexes = self._index_files.load(self.size, transactions or TransactionIndex())
            if indexes is None:
                return self.rebuild_indexes(transactions.entries if transactions else ())
            if indexes.times.last and self.max_timestamp == NO_TIMESTAMP:
                self.max_timestamp, self._max_timestamp_offset = indexes.times.last
            self.index_entries = len(indexes.offsets)
            self._indexes = indexes
            self._indexes_saved = True
            return indexes

    def rebuild_indexes(self, aborted: Iterable[AbortedTransaction]) -> Indexes:
        """Make offset and time index anew from the batches; the transactions are known to the caller."""
        with self._index_lock:
            built = build(self.base_offset, self.headers(), self._interval_bytes)
            built.indexes.transactions.entries = list(aborted)
            self.max_timestamp, self._max_timestamp_offset = built.max_timestamp, built.max_timestamp_offset
            self._first_timestamp = built.first_timestamp
            self._bytes_since_entry = built.bytes_since_entry
            self.index_entries = len(built.indexes.offsets)
            self._indexes = built.indexes
            self._indexes_saved = False
            return built.indexes

    def begin_rebuild(self) -> Indexes:
        """Forget the indexes, also those on disk, to be noted batch by batch."""
        self._index_files.remove()
        self._files_outdated = True  # until that is on the disk
        self._indexes = indexes = Indexes(self.base_offset)
        self.index_entries = 0
        self._indexes_saved = False
        self._bytes_since_entry = 0
        self._first_timestamp = None
        self.max_timestamp, self._max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        return indexes

    def note(self, position: int, header: BatchHeader) -> None:
        """Index a batch that is in the file already."""
        timestamp = header.max_timestamp if header.record_count else NO_TIMESTAMP
        self._index(Appended(header.base_offset, header.last_offset, timestamp, header.size), position)

    def last_header(self) -> BatchHeader | None:
        last = None
        for _, header in self.headers(self.indexes.offsets.lookup(2**62) if not self.damage else 0):
            last = header
        return last

    @property
    def end_offset(self) -> int:
        last = self.last_header()
        end = last.next_offset if last else self.base_offset
        return max([end, *(damage.next_offset for damage in self.damage)])

    # --- the end

    def move_to(self, path: str) -> None:
        with self._index_lock:
            self._filesystem.replace(self.path, path)
            self.path = path

    def remove(self, *, keep_log: bool = False) -> None:
        """Remove the files; whoever holds a slice, or the segment itself, reads on."""
        with self._index_lock:
            # Readers may still be here, and files of this name may soon be another segment's.
            self._has_name = False
            with suppress(OSError, HeadraceError):
                _ = self.file
                _ = self.indexes
            self._is_removed = True
            self._indexes_saved = False
            self._index_files.remove()
        if not keep_log and self._filesystem.exists(self.path):
            self._filesystem.remove(self.path)

    def sync(self, durable_offset: int) -> None:
        """Return once everything written is on the disk, of which all before `durable_offset` is already.

        What is in doubt is written again first; `CorruptBatch` if it cannot be read any more as it was written.
        """
        with self._sync_lock:
            if self.in_doubt:
                self._has_unsynced = True
                self._rewrite(self.position_of(durable_offset))
            self._index_files.sync_removal()
            self._sync_file(self.file)
            self.in_doubt = False

    def close(self) -> None:
        """Let go of the file for good."""
        with self._index_lock:
            self._is_closed = True
            file, self._file = self._file, None
        OPEN_FILES.forget(self)
        if file is not None:
            file.close()
