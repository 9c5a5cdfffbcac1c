"""What is wrong with a query, a mapping or a document; a query's refusal names its place and marks it with `^`."""

from headrace.errors import HeadraceError
from headrace.places import Place, marked


class PercolationError(HeadraceError):
    """Anything that stored queries and the documents that pass them noticed."""


class InvalidQuery(PercolationError):
    """A query that cannot be read, cannot match, or costs more than the policy allows."""

    def __init__(self, sentence: str, place: Place | None = None) -> None:
        super().__init__(marked(sentence, place))
        self.sentence = sentence
        self.place = place


class InvalidMapping(PercolationError):
    """A description of fields that is not one."""


class InvalidDocument(PercolationError):
    """A document that does not fit its mapping: a dead letter, and no other document is the worse for it."""

    def __init__(self, sentence: str, field: str | None = None) -> None:
        super().__init__(sentence)
        self.field = field


class InvalidStoredQuery(PercolationError):
    """A stored query, or its record, with a part missing or of the wrong kind."""


class UnknownQuery(PercolationError):
    """No stored query has this id."""
