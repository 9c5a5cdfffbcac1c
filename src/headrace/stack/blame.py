"""Which key of a section an error is about, when whoever checks it stops at the first. Pure."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from headrace.errors import HeadraceError
from headrace.extras import missing_extra
from headrace.stack.keys import Complaint


def complaints(
    values: Mapping[str, Any], attempt: Callable[[Mapping[str, Any]], object], *, where: str, needed: Collection[str]
) -> Iterator[Complaint]:
    """Try a section, and again without the key that was refused, until nothing is: so all mistakes are found.

    Without a key that is needed there is nothing more to learn.
    """
    left = dict(values)
    while True:
        sentence = _refusal(left, attempt)
        if sentence is None:
            return
        key = blamed(sentence, left)
        yield (key,) if key else (), sentence if where in sentence else f"[{where}] {sentence}"
        if key is None or key in needed:
            return
        del left[key]


def _refusal(values: Mapping[str, Any], attempt: Callable[[Mapping[str, Any]], object]) -> str | None:
    try:
        attempt(values)
    except ModuleNotFoundError as error:
        return str(missing_extra(error) or f"needs the package {error.name}, which is not installed")
    except (HeadraceError, TypeError, ValueError) as error:
        return str(error)
    return None


def blamed(sentence: str, keys: Collection[str]) -> str | None:
    """The key that a sentence names first: quoted, or at the end of a dotted name; else as a word."""
    for pattern in (r"(?:'{}'|\.{}(?![\w.]))", r"(?<![\w.]){}(?![\w.])"):
        places = {
            key: found.start() for key in keys if (found := re.search(pattern.replace("{}", re.escape(key)), sentence))
        }
        if places:
            return min(places, key=lambda key: places[key])
    return None
