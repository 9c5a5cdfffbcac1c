"""What can go wrong in a pipeline, said in one sentence."""

from headrace.errors import PipelineError as PipelineError


class BadOption(PipelineError):
    """An option of a source or sink that does not exist, or a value it cannot have."""


class BadSchema(PipelineError):
    """Columns that a source cannot give or a sink cannot take."""


class BadRecord(PipelineError):
    """A record that does not decode, where the user asked to stop at the first."""


class DataLoss(PipelineError):
    """Records that were to be read and are no longer there."""
