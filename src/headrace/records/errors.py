"""What can be wrong with a batch, told apart because a client is told different things."""

from headrace.errors import HeadraceError


class RecordsError(HeadraceError):
    """A record batch that cannot be taken."""


class CorruptBatch(RecordsError):
    """The bytes are not a whole batch, or not the batch that was sent: length, checksum or structure is off."""

    def __init__(self, reason: str, position: int = 0) -> None:
        super().__init__(f"corrupt record batch at byte {position}: {reason}")
        self.reason = reason
        self.position = position


class UnsupportedFormat(RecordsError):
    """A message format older (or newer) than v2."""

    def __init__(self, magic: int) -> None:
        super().__init__(f"record batch has format {magic}, only format 2 is taken: send with a client made since 2017")
        self.magic = magic


class BatchTooLarge(RecordsError):
    """A batch over `max.message.bytes`."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"record batch of {size} bytes is over max.message.bytes={limit}: send smaller batches or raise the limit"
        )
        self.size = size
        self.limit = limit


class BodyTooLarge(BatchTooLarge):
    def __init__(self, limit: int) -> None:
        RecordsError.__init__(
            self, f"the records of a batch decompress to more than {limit} bytes, the limit: send smaller batches"
        )
        self.size = self.limit = limit


class InvalidRecord(RecordsError):
    """A whole batch whose content breaks a rule of its topic."""


class InvalidTimestamp(InvalidRecord):
    """A timestamp further from the broker's clock than the topic allows."""
