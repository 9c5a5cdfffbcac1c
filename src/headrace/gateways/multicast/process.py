"""Whose publishers and subscribers are: the process's that made them, and not that of its forks.

A fork has their sockets and counts and none of their threads. What it published would have the numbers of other
messages of the same session, and what it closed would wake a thread of its parent for ever.
"""

import os
from weakref import WeakSet

from headrace.gateways.errors import NotYours

_made: "WeakSet[OfProcess]" = WeakSet()


class OfProcess:
    """What is refused in a process that was forked."""

    _is_of_parent = False

    def __init__(self) -> None:
        _made.add(self)

    def _check_process(self) -> None:
        if self._is_of_parent:
            raise NotYours(
                f"this {type(self).__name__.lower()} was made before the process was forked, and its thread does not "
                "outlive that: make it in the new process"
            )


def _after_fork() -> None:
    for each in list(_made):
        each._is_of_parent = True  # noqa: SLF001 - it is ours


os.register_at_fork(after_in_child=_after_fork)
