"""One supervisor a folder: a file that it holds locked, with its process in it.

The lock is the kernel's: it goes with its process, however that ends, so what a killed one leaves behind stops nobody.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.stack.errors import AlreadyRunning

STATE_FOLDER = Path(".headrace") / "stack"


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the lock of a stack's folder; raises `AlreadyRunning` if somebody else does."""
    file = folder / STATE_FOLDER / "lock"
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise AlreadyRunning(str(folder), int(lock.read().strip() or 0)) from None
        lock.seek(0)
        lock.truncate()
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield
