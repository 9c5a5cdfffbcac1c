"""Children that do not outlive the process that started them."""

import ctypes
import os
import signal
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def tie_to(parent: int) -> None:
    """Have the kernel kill this process when its parent is gone, however that ended; at once if it is gone already.

    Of Linux alone. The parent is, to the kernel, the thread that started this process: it has to wait for its end.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
