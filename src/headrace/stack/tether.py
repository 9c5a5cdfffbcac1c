"""Runs a module of ours as a child that does not outlive its parent: `python -m headrace.stack.tether PID MODULE …`.

The kernel kills the child when its parent is gone, however that ended; everything that runs here is made to be killed
at any time. What the child itself has started (Spark's JVM) hangs on a pipe to it, and goes too.
"""

import ctypes
import os
import runpy
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def tie_to(parent: int) -> None:
    """Die with this parent; at once if it is gone already."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Become the module, with the arguments that follow it."""
    parent, module = int(sys.argv[1]), sys.argv[2]
    tie_to(parent)
    sys.argv = [module, *sys.argv[3:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
