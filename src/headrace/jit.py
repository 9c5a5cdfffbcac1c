"""The one way in which loops are compiled here: at their first call, and not when a module is imported.

Compiled code is kept on disk (`cache`), so a worker loads it instead of compiling, until one of the files changes that
it was made from; it runs without the interpreter's lock; and it knows nothing of Python objects, so a loop that could
not be compiled fails at once and is never slow.

Spark starts a Python process for each planning step of a query, which imports these modules and calls none of them.
Importing Numba costs such a process more than all else it does, so it waits until a loop is called for the first time:
then all loops known so far are handed to Numba together, because they call each other.
"""

import os
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., object])

_waiting: list["_Loop"] = []
_is_awake = False


class _Loop:
    """A loop that is not compiled yet."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self.dispatcher: Callable[..., Any] | None = None

    def __call__(self, *args: Any) -> Any:
        if self.dispatcher is None:
            _wake()
        assert self.dispatcher is not None
        return self.dispatcher(*args)


def compiled(function: F) -> F:
    """The function as machine code, compiled at its first call with each set of types."""
    if _is_awake:
        return cast(F, _handed_over(function))
    loop = _Loop(function)
    _waiting.append(loop)
    return cast(F, loop)


def _handed_over(function: Callable[..., Any]) -> Callable[..., Any]:
    import numba

    dispatcher = numba.njit(function, cache=True, nogil=True, error_model="numpy")
    # Numba asks for the age of the function's own file only, and what it calls is compiled into it.
    kept = dispatcher._cache._cache_file  # noqa: SLF001 - Numba has no other way to say so
    kept._source_stamp = kept._source_stamp, _stamp(function)  # noqa: SLF001
    return cast(Callable[..., Any], dispatcher)


def _stamp(function: Callable[..., Any]) -> tuple[tuple[str, float, int], ...]:
    """The age of all that is compiled into a function: the files beside it, and beside those that it calls."""
    folders = {os.path.dirname(one.__code__.co_filename) for one in _called(function, {function})}
    return tuple(file for folder in sorted(folders) for file in _files_in(folder))


@cache
def _files_in(folder: str) -> tuple[tuple[str, float, int], ...]:
    with os.scandir(folder or ".") as entries:
        found = sorted((one.name, one.stat()) for one in entries if one.name.endswith(".py"))
    return tuple((name, about.st_mtime, about.st_size) for name, about in found)


def _called(function: Callable[..., Any], seen: set[Callable[..., Any]]) -> set[Callable[..., Any]]:
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        inner = value.function if isinstance(value, _Loop) else getattr(value, "py_func", None)
        if inner is not None and inner not in seen:
            seen.add(inner)
            _called(inner, seen)
    return seen


def _wake() -> None:
    """Hand every loop to Numba, and let loops that call others find the compiled ones."""
    global _is_awake
    _is_awake = True
    for loop in _waiting:
        loop.dispatcher = _handed_over(loop.function)
    for loop in _waiting:
        scope = loop.function.__globals__
        scope.update({name: value.dispatcher for name, value in scope.items() if isinstance(value, _Loop)})
    _waiting.clear()
