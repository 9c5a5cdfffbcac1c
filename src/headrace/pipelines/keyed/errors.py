"""What can be wrong with keyed state."""

from headrace.pipelines.errors import PipelineError


class BadOperator(PipelineError):
    """An operator broke its promise: unknown table, wrong columns, a key number that the call does not have."""


class BadKey(PipelineError):
    """Key columns that do not exist or cannot be compared."""


class BadState(PipelineError):
    """Stored state that this program or this setting cannot read."""
