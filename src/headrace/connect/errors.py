"""What goes wrong between a database and the log."""

from headrace.errors import ConnectError as ConnectError
from headrace.stores.errors import InvalidConnectSetting as InvalidConnectSetting
from headrace.stores.errors import TakenOver as TakenOver


class SourceUnavailable(ConnectError):
    """The database cannot be reached just now; trying again may help."""


class SourceRefused(ConnectError):
    """The database says no, and will say so again until somebody mends it; `remedy` is the statement that does."""

    def __init__(self, text: str, remedy: str | None = None) -> None:
        super().__init__(f"{text}: {remedy}" if remedy else text)
        self.text = text
        self.remedy = remedy


class PositionLost(SourceRefused):
    """What is behind a stored position is not there any more; only a new snapshot brings what happened since."""


class BadToken(ConnectError):
    """A resume token that cannot be read, or is of something else."""

    def __init__(self, text: str, remedy: str) -> None:
        super().__init__(f"the resume token cannot be used, because {text}: {remedy}")


class DeliveryExpired(ConnectError):
    """The broker gave up waiting for the end of a transaction; it is done again from the last committed position."""

    def __init__(self, timeout_ms: int) -> None:
        super().__init__(
            f"a batch took longer to write than the {timeout_ms} ms of its transaction, and is written again"
        )
        self.timeout_ms = timeout_ms


class RecordRefused(ConnectError):
    """The broker does not take a record, and will not the next time."""


class SchemaChangeBlocked(ConnectError):
    """A table's shape changed, and the policy is to stop there."""

    def __init__(self, table: str, what: str) -> None:
        super().__init__(
            f"table {table} changed its shape ({what}) and schema_changes is 'block': look at what reads the topic, "
            "then start again with schema_changes='evolve'"
        )
        self.table = table
        self.what = what


class UnexpectedFailure(ConnectError):
    """A defect of ours; nothing that was acknowledged is lost by it."""

    def __init__(self, connector: str, cause: Exception) -> None:
        super().__init__(
            f"capture {connector!r} failed unexpectedly ({type(cause).__name__}: {cause}): this is a defect of "
            "headrace, please report it with the lines of its log; a new start goes on at the last committed position"
        )
        self.connector = connector
