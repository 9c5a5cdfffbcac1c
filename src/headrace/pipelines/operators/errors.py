"""What can be wrong with an operator's settings, each told in one sentence."""

from headrace.pipelines.errors import PipelineError


class BadWindow(PipelineError):
    """A window that cannot be: no watermark, a slide longer than the window, a gap of nothing."""


class BadTime(PipelineError):
    """A field that is no time, or an interval that cannot be read."""


class BadField(PipelineError):
    """A column that does not exist, or has a type that will not do."""


class UnknownValue(PipelineError):
    """A change that leaves a value out, which nothing that was seen before it has."""


class BadAggregate(PipelineError):
    """An aggregate that cannot be computed so."""
