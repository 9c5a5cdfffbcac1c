"""The root of every error that Headrace raises on purpose.

Each package derives one base of its own from `HeadraceError`, with the facts as attributes beside the text.
The text of an error that a user can cause is one sentence: what, where, and how to mend it.
"""

import difflib
from collections.abc import Iterable


class HeadraceError(Exception):
    """Anything that went wrong and that Headrace itself noticed."""


class ConnectError(HeadraceError):
    """Anything that a source, a derived system or the runtime between them noticed."""


class PipelineError(HeadraceError):
    """A pipeline cannot go on, and the text says why and what to do."""


def nearest(
    word: str, known: Iterable[str], what: str = "known are", *, otherwise: str | None = None, likeness: float = 0.6
) -> str:
    """How to mend a name that does not exist: the one that was probably meant; else all, or what else can be done.

    `likeness` is how much alike two names must be, from 0 (any will do) to 1.
    """
    names = {name.lower(): name for name in sorted(known)}
    for near in difflib.get_close_matches(word.lower(), names, n=1, cutoff=likeness):
        return f"did you mean {names[near]!r}?"
    return f"{what} {', '.join(names.values())}" if otherwise is None else otherwise


def harmless(shown: str) -> str:
    """A text with nothing in it that a terminal would obey: names and values are what anybody wrote."""
    if shown.isprintable():
        return shown
    return "".join(
        character if character.isprintable() or character in "\n\t" else repr(character)[1:-1] for character in shown
    )
