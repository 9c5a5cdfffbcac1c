"""A long-lived process that cannot outlive the one that started it.

`Guarded` puts the process into a group of its own, together with a tiny guard: a shell that waits on a pipe which only
we hold open. However we end, even by SIGKILL, the kernel closes the pipe and the guard kills the group. A group of its
own is also out of reach of a Ctrl-C in the terminal: we decide how it stops. (PR_SET_PDEATHSIG would do without the
guard, but it fires when the *thread* that started the process ends, which a test runner's threads do at any time.)
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class Guarded:
    """A running process, its output appended to `output`."""

    def __init__(self, command: Sequence[str], *, output: Path) -> None:
        self._guard = subprocess.Popen(
            ["sh", "-c", "read _; kill -9 0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
        try:
            with output.open("ab") as sink:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=sink,
                    stderr=subprocess.STDOUT,
                    process_group=self._guard.pid,
                )
        except BaseException:
            self._dismiss_guard()
            raise

    @property
    def pid(self) -> int:
        """The process itself, not its guard."""
        return self._process.pid

    def wait(self, timeout_s: float) -> int | None:
        """Return the exit status (negative: the signal that ended it), or None if it still runs after `timeout_s`."""
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        self._dismiss_guard()
        return status

    def terminate(self) -> None:
        """Ask the process to end; see `wait`."""
        self._process.terminate()

    def kill(self) -> None:
        """End the process and all it started, at once, and wait until it is gone."""
        if self._guard.returncode is None:
            # The group's id cannot have gone to others: the guard is in it, and it is not reaped.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._guard.pid, signal.SIGKILL)
        self._process.wait()
        self._dismiss_guard()

    def _dismiss_guard(self) -> None:
        if self._guard.stdin is not None:
            self._guard.kill()
            self._guard.wait()
            self._guard.stdin.close()
