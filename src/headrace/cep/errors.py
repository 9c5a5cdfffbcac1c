"""What is wrong with a pattern, and where: every refusal names its place in the text and marks it with `^`.

What always holds: an `InvalidPattern` is raised before the first row is looked at.
"""

from headrace.errors import HeadraceError
from headrace.places import Place, marked


class CepError(HeadraceError):
    """Anything that patterns and their matchers noticed."""


class InvalidPattern(CepError):
    """A pattern that cannot be read, can never match, or would keep its partial matches forever."""

    def __init__(self, sentence: str, place: Place | None = None) -> None:
        super().__init__(marked(sentence, place))
        self.sentence = sentence
        self.place = place


class InvalidEvent(CepError):
    """An event without what the matcher was told to find in it: its time, its key."""


class TooManyPartialMatches(CepError):
    """A key has as many partial matches as it may, and the user chose to fail there."""
