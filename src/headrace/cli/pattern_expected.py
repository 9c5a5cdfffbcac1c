"""The matches that a file expects, compared with those that came.

What always holds: an expected match may leave fields out, and those it has must be equal; each match answers for one
expected match at most, the first in the file that it fits.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from headrace.errors import HeadraceError

_SHOWN: Final = 300  # characters of a match


class InvalidExpectation(HeadraceError):
    """A file that does not say which matches are expected."""


def read_expected(file: Path) -> list[Any]:
    """The matches in a document as `headrace pattern test --json` writes it, or in a list of them."""
    if not file.is_file():
        raise InvalidExpectation(f"there is no file {file}: write one with headrace pattern test … --json > {file}")
    try:
        found = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InvalidExpectation(
            f"{file} is not JSON ({error}): write it with headrace pattern test … --json"
        ) from None
    matches = found.get("matches") if isinstance(found, dict) else found
    if not isinstance(matches, list) or not all(isinstance(match, dict) for match in matches):
        raise InvalidExpectation(f'{file} has no list of matches: write {{"matches": [{{"key": …}}, …]}}')
    return matches


def compare(expected: list[Any], matches: Iterable[Mapping[str, Any]], most: int) -> list[str]:
    """What is missing and what is too much, `most` of each in full; empty if all is as expected."""
    waiting = list(expected)
    surplus: list[str] = []
    more = 0
    for match in matches:
        given = json.loads(json.dumps(match, default=str))
        place = next((place for place, one in enumerate(waiting) if fits(one, given)), None)
        if place is not None:
            del waiting[place]
        elif len(surplus) < most:
            surplus.append(f"not expected: {_shown(given)}")
        else:
            more += 1
    missing = [f"missing: {_shown(one)}" for one in waiting[:most]]
    rest = [
        f"… and {count} more {what}"
        for count, what in ((len(waiting) - len(missing), "missing"), (more, "not expected"))
        if count > 0
    ]
    return [*missing, *surplus, *rest]


def fits(expected: Any, given: Any) -> bool:
    """Whether all that is expected is there."""
    if isinstance(expected, dict):
        return isinstance(given, dict) and all(
            name in given and fits(value, given[name]) for name, value in expected.items()
        )
    if isinstance(expected, list):
        return isinstance(given, list) and len(expected) == len(given) and all(map(fits, expected, given))
    return bool(expected == given)


def _shown(match: Any) -> str:
    text = json.dumps(match, ensure_ascii=False)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
