"""The keys of a section of `headrace.toml`: what each may be, and what is wrong with what it is. Pure."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headrace.errors import HeadraceError, nearest
from headrace.extras import missing_extra

_WORDS: Final = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list of texts",
    dict: "a table",
}
# What is wrong: the keys that lead to it from the section, and a sentence.
Complaint = tuple[tuple[str, ...], str]


@dataclass(frozen=True, slots=True)
class Key:
    name: str
    type: type
    meaning: str
    default: Any = None
    is_needed: bool = False
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    transports: tuple[str, ...] = ()  # of a port: two of a stack must not take the same one
    is_secret: bool = False  # what it holds is never shown
    check: Callable[[Any], object] | None = None  # raises a `HeadraceError` for what cannot be


def port(name: str, meaning: str, default: int | None = None, *, transports: tuple[str, ...] = ("tcp",)) -> Key:
    """A key that says where something listens."""
    return Key(name, int, meaning, default, least=0, most=65535, transports=transports)


def ports_of(keys: Sequence[Key], values: Mapping[str, Any]) -> Iterator[tuple[Key, int, str]]:
    """The ports that a section takes, and of what transport each is: one number is two ports, of TCP and of UDP.

    A section may have keys `tcp` and `udp`, which say whether it listens there at all.
    """
    for key in keys:
        number = values.get(key.name)
        for transport in key.transports:
            if number and isinstance(number, int) and values.get(transport, True):
                yield key, number, transport


def check_keys(
    keys: Sequence[Key], section: Mapping[str, Any], where: str, *, is_open: bool = False
) -> list[Complaint]:
    """All that is wrong with a section; an open one may have further keys, which somebody else checks."""
    known = {key.name: key for key in keys}
    found: list[Complaint] = []
    for name, value in section.items():
        key = known.get(name)
        if key is not None:
            found += [((name,), f"[{where}] {name} {wrong}") for wrong in _wrong(key, value)]
        elif not is_open:
            found.append(((name,), f"[{where}] has no key {name!r}: {nearest(name, known)}"))
    found += [
        ((), f"[{where}] has no {key.name!r}: add {key.name} = … ({key.meaning[0].lower()}{key.meaning[1:-1]})")
        for key in keys
        if key.is_needed and key.name not in section
    ]
    return found


def with_defaults(keys: Sequence[Key], section: Mapping[str, Any]) -> dict[str, Any]:
    """The section, with what it does not say as it is by default."""
    return {key.name: key.default for key in keys if key.default is not None} | dict(section)


def _wrong(key: Key, value: Any) -> Iterable[str]:
    shown = "not shown here" if key.is_secret else repr(value)
    is_number = key.type is float and isinstance(value, int)
    if not (isinstance(value, key.type) or is_number) or (isinstance(value, bool) and key.type is not bool):
        yield f"is {shown}: it must be {_WORDS[key.type]}"
    elif key.type is list and not all(isinstance(part, str) for part in value):
        yield f"is {shown}: it must be {_WORDS[list]}"
    elif key.choices and value not in key.choices:
        yield f"is {shown}: {nearest(value, key.choices, 'choose among')}"
    elif key.least is not None and value < key.least:
        yield f"is {value}: it must be at least {key.least:g}"
    elif key.most is not None and value > key.most:
        yield f"is {value}: it must be at most {key.most:g}"
    elif key.check is not None:
        try:
            key.check(value)
        except HeadraceError as error:
            yield f"is {shown}: {error}"


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
        key = find_blamed_key(sentence, left)
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


def find_blamed_key(sentence: str, keys: Collection[str]) -> str | None:
    """The key that a sentence names first: quoted, or at the end of a dotted name; else as a word."""
    for pattern in (r"(?:'{}'|\.{}(?![\w.]))", r"(?<![\w.]){}(?![\w.])"):
        places = {
            key: found.start() for key in keys if (found := re.search(pattern.replace("{}", re.escape(key)), sentence))
        }
        if places:
            return min(places, key=lambda key: places[key])
    return None
