"""The file names in a partition's folder, as Kafka gives them: twenty digits of an offset, and a suffix."""

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TRANSACTION_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
# The checksums of a segment's index files, which Kafka's formats have no room for.
INDEX_SUMS = ".indexsums"

# What compaction writes: unfinished, and finished but not yet in place.
CLEANED = ".cleaned"
SWAP = ".swap"
# A leftover of an atomic write, and a folder or file on its way out.
TEMPORARY = ".tmp"
DELETED = ".deleted"

INDEXES = (OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX)


def file_name(offset: int, suffix: str) -> str:
    """The name of the file that begins at `offset`."""
    return f"{offset:020d}{suffix}"


def offset_of(name: str, suffix: str) -> int | None:
    """The offset in a file name with this suffix; None for other names."""
    stem = name.removesuffix(suffix)
    return int(stem) if stem != name and len(stem) == 20 and stem.isdecimal() else None
