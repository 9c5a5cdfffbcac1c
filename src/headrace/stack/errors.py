"""What goes wrong with a stack."""

from collections.abc import Sequence

from headrace.errors import HeadraceError


class StackError(HeadraceError):
    """Anything about a stack as a whole."""


class InvalidStack(StackError):
    """A file that cannot be meant: every mistake in it, a line each."""

    def __init__(self, mistakes: Sequence[str]) -> None:
        super().__init__("\nheadrace: ".join(mistakes))
        self.mistakes = tuple(mistakes)


class AlreadyRunning(StackError):
    def __init__(self, folder: str, pid: int) -> None:
        super().__init__(
            f"the stack of {folder} already runs (pid {pid}): end it with Ctrl-C where it runs, or with kill {pid}; "
            "headrace status shows it"
        )
        self.pid = pid


class NoSuchMember(StackError):
    """A name of something that the stack does not have."""
