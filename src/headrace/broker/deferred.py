"""An answer that comes later: what a handler returns when it has to wait for the disk, for data or for a time."""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


def _ignore(_: Exception) -> None:
    """What a failure does where nobody listens for one."""


class Deferred(Generic[T]):
    """A value that is set once, and one listener that is told: all that is needed, at a fraction of a future's cost.

    Whoever sets it may trust that nothing is raised: listeners keep their errors to themselves.
    """

    __slots__ = ("_error", "_failed", "_forget", "_listener", "_value", "is_set")

    def __init__(self) -> None:
        self._listener: Callable[[T], None] | None = None
        self._failed: Callable[[Exception], None] = _ignore
        self._forget: Callable[[], None] | None = None
        self._value: T | None = None
        self._error: Exception | None = None
        self.is_set = False

    def set(self, value: T) -> None:
        """Give the value; a second one is left out."""
        if self.is_set:
            return
        self.is_set = True
        self._value = value
        if self._listener:
            self._listener(value)

    def fail(self, error: Exception) -> None:
        if self.is_set:
            return
        self.is_set = True
        self._error = error
        if self._listener:
            self._failed(error)

    def then(self, listener: Callable[[T], None], failed: Callable[[Exception], None] = _ignore) -> None:
        """Have `listener` called with the value, or `failed` with the error; at once if it is there."""
        self._listener, self._failed = listener, failed
        if self._error is not None:
            failed(self._error)
        elif self.is_set:
            listener(self._value)  # type: ignore[arg-type]  # set, so it is a T

    def after(self, change: Callable[[T], None]) -> "Deferred[T]":
        """The same value, once `change` has had a look at it."""
        changed: Deferred[T] = Deferred()
        changed.on_abandon(self.abandon)

        def pass_on(value: T) -> None:
            try:
                change(value)
            except Exception as error:  # noqa: BLE001 - belongs to whoever asked, not to whoever answers
                changed.fail(error)
            else:
                changed.set(value)

        self.then(pass_on, changed.fail)
        return changed

    def on_abandon(self, forget: Callable[[], None]) -> None:
        """Have `forget` called if nobody waits for the value any more."""
        self._forget = forget

    def abandon(self) -> None:
        """Nobody waits for it any more: what is done only to answer may stop."""
        if not self.is_set and self._forget:
            self._forget()
