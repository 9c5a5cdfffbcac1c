"""An answer that comes later: what a handler returns when it has to wait for the disk, for data or for a time."""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Deferred(Generic[T]):
    """A value that is set once, and one listener that is told: all that is needed, at a fraction of a future's cost."""

    __slots__ = ("_listener", "_value", "is_set")

    def __init__(self) -> None:
        self._listener: Callable[[T], None] | None = None
        self._value: T | None = None
        self.is_set = False

    def set(self, value: T) -> None:
        """Give the value; a second one is left out."""
        if self.is_set:
            return
        self.is_set = True
        self._value = value
        if self._listener:
            self._listener(value)

    def then(self, listener: Callable[[T], None]) -> None:
        """Have `listener` told the value, at once if it is there."""
        self._listener = listener
        if self.is_set:
            listener(self._value)  # type: ignore[arg-type]  # set, so it is a T

    def after(self, change: Callable[[T], None]) -> "Deferred[T]":
        """The same value, once `change` has had a look at it."""
        changed: Deferred[T] = Deferred()

        def pass_on(value: T) -> None:
            change(value)
            changed.set(value)

        self.then(pass_on)
        return changed
