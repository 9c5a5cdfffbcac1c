"""The one way in which loops are compiled here.

Compiled code is kept on disk (`cache`), so a worker loads it instead of compiling; it runs without the interpreter's
lock; and it knows nothing of Python objects, so a loop that could not be compiled fails at once and is never slow.
"""

from collections.abc import Callable
from typing import TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """The function as machine code, compiled at its first call with each set of types."""
    return cast(F, numba.njit(function, cache=True, nogil=True, error_model="numpy"))


def inlined(function: F) -> F:
    """A step of a compiled loop, put in place where it is called."""
    return cast(F, numba.njit(function, cache=True, nogil=True, error_model="numpy", inline="never"))
