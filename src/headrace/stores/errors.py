"""What goes wrong in a store, for each of its faces: derived systems, batch sinks, views."""

from headrace.errors import ConnectError, PipelineError


class InvalidConnectSetting(ConnectError):
    """A setting that cannot be meant."""

    def __init__(self, setting: str, value: object, wanted: str) -> None:
        super().__init__(f"{setting} cannot be {value!r}: {wanted}")
        self.setting = setting
        self.value = value


class TakenOver(ConnectError):
    """Another instance of the same connector has begun; this one may write no more."""

    def __init__(self, connector: str) -> None:
        super().__init__(
            f"connector {connector!r} was started elsewhere and this instance may write no more: run only one of them, "
            "or give the other a name of its own"
        )
        self.connector = connector


class SinkError(ConnectError):
    """Anything that a sink noticed."""


class SinkUnavailable(SinkError):
    """The target cannot be reached just now; trying again may help. `what` is waited for, in a few words."""

    def __init__(self, reason: str, *, what: str = "its target") -> None:
        super().__init__(reason)
        self.what = what


class SinkRefused(SinkError):
    """The target refuses, and will until somebody mends it."""


class RowRefused(SinkError):
    """The target will never take a row; `offset` is that row's, where it is known."""

    def __init__(self, reason: str, *, partition: int = -1, offset: int = -1) -> None:
        super().__init__(reason)
        self.partition = partition
        self.offset = offset


class TargetReplaced(SinkError):
    """A rebuilt target was put in place: open again, and go on from where that one is."""


class SinkMisconfigured(PipelineError):
    """The sink's settings contradict each other or the DataFrame; nothing was written."""


class ColumnMismatch(PipelineError):
    """A column of the DataFrame has no fitting place in the table; nothing was written."""

    def __init__(self, text: str, column: str) -> None:
        super().__init__(text)
        self.column = column


class ForeignQuery(PipelineError):
    """The target was last written by another query, or by a later state of this one; nothing was written."""

    def __init__(self, text: str, sink: str, query_id: str, batch_id: int) -> None:
        super().__init__(text)
        self.sink = sink
        self.query_id = query_id
        self.batch_id = batch_id


class StagingLost(PipelineError):
    """What the tasks staged is not what the driver found; the batch was given up and will be run again."""


class ViewError(PipelineError):
    """A view cannot be declared, kept or read, and the text says why and what to do."""


class BadView(ViewError):
    """A declaration or rows that cannot make a view; nothing was written."""


class BadQuestion(ViewError):
    """A question to a view that cannot be answered as it is asked."""


class NoSuchView(ViewError):
    """A view of this name is not there, or was never written."""


class StoreAway(ViewError):
    """The store cannot be reached now; it may be later."""
