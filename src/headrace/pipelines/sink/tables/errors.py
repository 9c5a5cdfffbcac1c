"""What a sink refuses, and why."""

from headrace.pipelines.errors import PipelineError


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
