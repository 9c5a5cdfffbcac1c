"""What can go wrong in storage, told apart because callers do different things about it."""

import errno

from headrace.errors import HeadraceError


class StorageError(HeadraceError):
    """Anything that the log or its disk refuses."""


class DiskFull(StorageError):
    """No room for the append; nothing of it stays, reads go on, and a retry works once there is room."""

    def __init__(self, path: str) -> None:
        super().__init__(f"no space left on the disk of {path}: free some, or lower retention, and appends go on")
        self.path = path


class WriteFailed(StorageError):
    """The disk refused a write; nothing of the append stays, and a retry may work."""

    def __init__(self, path: str, cause: OSError) -> None:
        super().__init__(
            f"writing to {path} failed ({cause.strerror or cause}): {mend_of(cause)}; nothing was appended"
        )
        self.path = path


def mend_of(error: OSError) -> str:
    """What somebody can do about what the operating system refused."""
    too_many = error.errno in (errno.EMFILE, errno.ENFILE)
    return "raise the limit of open files (ulimit -n)" if too_many else "check the disk"


def refusal(path: str, error: OSError) -> DiskFull | WriteFailed:
    """The error that a producer is told when the disk refused a write."""
    return DiskFull(path) if error.errno in (errno.ENOSPC, errno.EDQUOT) else WriteFailed(path, error)


class SyncFailed(StorageError):
    """The disk did not confirm a sync, so what was waiting for it is not acknowledged."""

    def __init__(self, path: str, cause: Exception) -> None:
        reason = getattr(cause, "strerror", None) or cause
        super().__init__(f"syncing {path} failed ({reason}): check the disk; the write is not confirmed")
        self.path = path


class NotDurable(StorageError):
    """Records that were appended, but lost before they could be synced: the end of the log was cut off meanwhile."""

    def __init__(self, log: str, offset: int) -> None:
        super().__init__(f"the records before offset {offset} of {log} were lost before they were on disk: send again")
        self.offset = offset


class OffsetOutOfRange(StorageError):
    """A read before the first retained record or behind the end."""

    def __init__(self, log: str, offset: int, start: int, end: int) -> None:
        super().__init__(f"offset {offset} of {log} is out of range: the log holds {start} to {end}")
        self.offset = offset
        self.start = start
        self.end = end


class DamagedLog(StorageError):
    """Bytes of a segment that are no valid batches, found at recovery; they are never served."""

    def __init__(self, path: str, position: int, size: int, first_offset: int, next_offset: int) -> None:
        super().__init__(
            f"{path} is damaged at byte {position} ({size} bytes): offsets {first_offset} to {next_offset - 1} "
            f"cannot be read; read on from offset {next_offset}, or restore the file"
        )
        self.path = path
        self.position = position
        self.first_offset = first_offset
        self.next_offset = next_offset


class InconsistentStart(StorageError):
    """A log that is said to begin behind its end: a file is missing, or the checkpoint of the starts is wrong."""

    def __init__(self, path: str, start: int, end: int) -> None:
        super().__init__(
            f"{path} ends at offset {end} but log-start-offset-checkpoint says that it begins at {start}: restore the "
            "missing segments, or remove the partition's line from that file (and count its lines anew)"
        )
        self.path = path
        self.start = start
        self.end = end


class InvalidLogConfig(StorageError):
    """A setting of a log that does not exist or has an impossible value."""


class DirectoryInUse(StorageError):
    """A second process wants a data directory."""

    def __init__(self, path: str) -> None:
        super().__init__(f"data directory {path} is in use by another process: stop that one or name another directory")
        self.path = path


class UnknownLog(StorageError):
    """A partition that is not in the data directory."""


class LogDeleted(UnknownLog):
    """A log that is held by somebody and was deleted meanwhile; the files of its name may be another log's by now."""

    def __init__(self, log: str) -> None:
        super().__init__(f"log {log} was deleted: look up its topic again")


class LogExists(StorageError):
    """A partition that is there already."""


class ProducerError(StorageError):
    """A batch that its producer may not append now."""


class OutOfOrderSequence(ProducerError):
    """A gap in a producer's sequence numbers: an earlier batch is missing."""

    def __init__(self, producer_id: int, found: int, expected: int) -> None:
        super().__init__(f"producer {producer_id} sent sequence {found} where {expected} was expected")
        self.producer_id = producer_id
        self.found = found
        self.expected = expected


class UnknownProducer(StorageError):
    """What a producer wrote before is gone, and the log knows nothing of it."""

    def __init__(self, producer_id: int) -> None:
        super().__init__(
            f"what producer {producer_id} wrote in its transaction before is gone with a restart: abort the transaction"
        )
        self.producer_id = producer_id


class StaleProducerEpoch(ProducerError):
    """A batch of a producer that a newer instance of itself has fenced off."""

    def __init__(self, producer_id: int, found: int, current: int) -> None:
        super().__init__(f"producer {producer_id} has epoch {found}, and epoch {current} was seen already")
        self.producer_id = producer_id
        self.found = found
        self.current = current


class InvalidTransactionState(ProducerError):
    """A batch that does not fit what its producer's transaction is doing."""


class TransactionStillOpen(ProducerError):
    """A batch of a producer's next transaction, before the marker of the one before: that would end both."""

    def __init__(self, producer_id: int, epoch: int) -> None:
        super().__init__(
            f"the transaction that producer {producer_id} had open in epoch {epoch} has not ended here yet"
        )
        self.producer_id = producer_id
        self.epoch = epoch


class StaleCoordinatorEpoch(ProducerError):
    """A marker of a transaction coordinator that is no longer the one."""

    def __init__(self, producer_id: int, found: int, current: int) -> None:
        super().__init__(
            f"a marker for producer {producer_id} comes from coordinator epoch {found}, and {current} was seen already"
        )
        self.found = found
        self.current = current
