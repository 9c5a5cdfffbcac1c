"""Regular expressions that clients send: subscriptions (KIP-848), and the pattern of ListTransactions (KIP-1152).

They are RE2's, as in Kafka, which uses RE2/J: whatever the expression, the time that it takes is linear in the text.
Python's own `re` backtracks, and one client could stop everybody with `(a+)+b`.
"""

from functools import cache
from typing import Any

from headrace.errors import HeadraceError

_LONGEST = 64 * 1024  # characters: an expression of this length is compiled in milliseconds
_MAX_MEMORY_BYTES = 1024 * 1024  # of a compiled one; with less than it would like, RE2 is slower, and still linear


class InvalidExpression(HeadraceError):
    """A regular expression that RE2 does not take."""


class Expression:
    def __init__(self, text: str) -> None:
        if len(text) > _LONGEST:
            raise InvalidExpression(f"it has {len(text)} characters, and {_LONGEST} are the most")
        re2, options = _re2()
        try:
            self._compiled = re2.compile(text, options)
        except re2.error as error:
            reason = error.args[0] if error.args else error
            raise InvalidExpression(reason.decode() if isinstance(reason, bytes) else str(reason)) from None
        self.text = text

    def matches(self, text: str) -> bool:
        return self._compiled.fullmatch(text) is not None


@cache
def _re2() -> tuple[Any, Any]:
    """The library, loaded when the first expression comes, which few brokers ever see."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = _MAX_MEMORY_BYTES
    return re2, options
