"""Whether the fields of a command have the types that its class names; if not, it is refused before any decision.

A command may hold whatever its functions take, also what has no form in JSON. So what is asked is no more than
`isinstance`, for what is inside of lists, dicts and dataclasses as well; a type that cannot be asked for fits always.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

Fits = Callable[[Any], bool]
_GROUPS: Final = (list, set, frozenset, Sequence, AbstractSet)


@lru_cache(maxsize=4096)
def checks_of(cls: Any) -> tuple[tuple[str, Fits, str], ...]:
    """The fields of a dataclass: name, whether a value fits, and what is expected. Fields of any type are left out."""
    if not dataclasses.is_dataclass(cls):
        return ()
    try:
        hints = get_type_hints(cls)
    except Exception:  # noqa: BLE001 - annotations of names that are there for type checkers only
        return ()
    named = [(each.name, hints[each.name]) for each in dataclasses.fields(cls) if each.name in hints]
    return tuple((name, fits, _name_of(kind)) for name, kind in named if (fits := _fits(kind)) is not None)


def misfit(command: Any) -> str:
    """What is wrong with a command, or nothing. The value itself is not shown: it may be anybody's secret."""
    cls: Any = type(command)
    for name, fits, expected in checks_of(cls):
        value = getattr(command, name)
        if not fits(value):
            return f"its field {name!r} is a {type(value).__name__} and not {expected}"
    return ""


def _name_of(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)


def _fits(kind: Any) -> Fits | None:
    """Whether a value is of an annotated type; None if any is."""
    if kind is None or kind is NoneType:
        return lambda value: value is None
    if isinstance(kind, type) and not get_args(kind):
        return _fits_class(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        options = [_fits(each) for each in arguments]
        known = [each for each in options if each is not None]
        return None if len(known) < len(options) else lambda value: any(fits(value) for fits in known)
    if origin is Literal:
        return lambda value: value in arguments
    if origin is tuple:
        return _fits_tuple(arguments)
    if origin in _GROUPS:
        return _fits_group(origin, _fits(arguments[0]))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _fits_mapping(origin, *map(_fits, arguments))
    if hasattr(kind, "__supertype__"):  # a NewType
        return _fits(kind.__supertype__)
    return None


def _fits_class(kind: type) -> Fits | None:
    if kind in (Any, object) or getattr(kind, "_is_protocol", False):
        return None
    try:
        isinstance(None, kind)
    except TypeError:  # a TypedDict, say
        return None
    if kind is int:
        return lambda value: isinstance(value, int) and not isinstance(value, bool)
    if kind is float:
        return lambda value: isinstance(value, float | int) and not isinstance(value, bool)
    if dataclasses.is_dataclass(kind):
        return lambda value: isinstance(value, kind) and not misfit(value)
    return lambda value: isinstance(value, kind)


def _fits_group(origin: type, each: Fits | None) -> Fits:
    return lambda value: (
        isinstance(value, origin)
        and not isinstance(value, str | bytes)  # a text is a sequence of texts, which nobody means
        and (each is None or all(map(each, value)))  # type: ignore[call-overload]
    )


def _fits_tuple(arguments: tuple[Any, ...]) -> Fits:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return _fits_group(tuple, _fits(arguments[0]))
    parts = [_fits(each) for each in arguments]
    return lambda value: (
        isinstance(value, tuple)
        and len(value) == len(parts)
        and all(fits is None or fits(part) for fits, part in zip(parts, value, strict=True))
    )


def _fits_mapping(origin: type, key: Fits | None = None, each: Fits | None = None) -> Fits:
    return lambda value: (
        isinstance(value, origin)
        and (key is None or all(map(key, value)))  # type: ignore[call-overload]
        and (each is None or all(map(each, value.values())))  # type: ignore[attr-defined]
    )
