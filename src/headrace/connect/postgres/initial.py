"""The initial snapshot as a source hands it out: chunks as they come, and what is left of the ranges behind each."""

from headrace.connect.postgres.rows import RowQuery
from headrace.connect.postgres.snapshot import Chunk, SnapshotReader
from headrace.connect.ranges import Range, Remaining


class InitialSnapshot:
    """Rows of every table as of one instant, read by threads; closed by whoever made it."""

    def __init__(self, reader: SnapshotReader, remaining: Remaining, queries: dict[str, RowQuery]) -> None:
        self._reader = reader
        self._queries = queries
        self.remaining = remaining
        self._moved: dict[Range, Range] = {one: one for one in remaining.ranges}

    def next_chunk(self, timeout_s: float) -> Chunk | None:
        """Some rows, which are then not among the remaining ones; None if there were none for that long."""
        chunk = self._reader.next_chunk(timeout_s)
        if chunk is None:
            return None
        current = self._moved[chunk.range]
        if chunk.is_last:
            self.remaining = self.remaining.done(current)
        else:
            query = self._queries[chunk.range.table]
            if query.has_key:
                self.remaining, self._moved[chunk.range] = self.remaining.moved(current, query.key_of(chunk.rows[-1]))
        return chunk

    def close(self) -> None:
        """Stop reading."""
        self._reader.close()
