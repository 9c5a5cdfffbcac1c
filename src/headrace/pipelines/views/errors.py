"""What can go wrong with a view, each told in one sentence."""

from headrace.pipelines.errors import PipelineError


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
