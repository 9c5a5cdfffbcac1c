"""What others write to our standard error: all of it to a file, and of it to the user what is meant for people.

Spark's JVM, its Python processes and the libraries between them have the same standard error as we do, and write stack
traces of a hundred lines there: for what we then say in one sentence, or because somebody pressed Ctrl-C. So while a
command runs Spark, standard error is a pipe to ourselves. The supervisor of a stack does the same for its parts, with
the same digest, and then it is left to it.
"""

import os
import select
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.text import Text

from headrace.cli.output import error_console
from headrace.errors import HeadraceError
from headrace.stack.journal import PartLogs
from headrace.stack.lines import Digest
from headrace.stack.processes import SUPERVISED

_CHUNK_BYTES = 65536
_LOOK_S = 0.1
_STANDARD_ERROR = 2


@contextmanager
def digested_errors(folder: Path, name: str) -> Iterator[Console]:
    """Send what others write to standard error to `name`.log in `folder`; answers a console for what we write."""
    if os.environ.get(SUPERVISED) or sys.stderr is not sys.__stderr__:
        yield error_console()
        return
    sys.__stderr__.flush()
    ours = os.fdopen(os.dup(_STANDARD_ERROR), "w", buffering=1, errors="backslashreplace")
    reading, writing = os.pipe()
    os.dup2(writing, _STANDARD_ERROR)
    os.close(writing)
    console = error_console(ours)
    pump = _Pump(reading, PartLogs(folder), name, console)
    pump.start()
    try:
        yield console
    except HeadraceError:
        pump.finish()
        if pump.has_lines:
            console.print(f"all that Spark wrote is in {pump.logs.path(name)}")
        raise
    finally:
        pump.finish()
        # The file descriptor stays a pipe that nobody reads: Spark's processes go on writing while they end.
        sys.stderr = ours


class _Pump(threading.Thread):
    """Reads the pipe until it is told to finish and the pipe is empty: whoever holds the other end may outlive us."""

    def __init__(self, pipe: int, logs: PartLogs, name: str, console: Console) -> None:
        super().__init__(name="headrace-stderr", daemon=True)
        self.logs = logs
        self.has_lines = False
        self._pipe = pipe
        self._name = name
        self._console = console
        self._finishing = threading.Event()

    def finish(self) -> None:
        """Read what is there, then end."""
        self._finishing.set()
        self.join()

    def run(self) -> None:
        """Line by line, to the file and through the digest."""
        digest, rest = Digest(), b""
        while True:
            ready, _, _ = select.select([self._pipe], [], [], _LOOK_S)
            if not ready:
                if self._finishing.is_set():
                    break
                continue
            chunk = os.read(self._pipe, _CHUNK_BYTES)
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._take(line.decode(errors="replace"), digest)
        if rest:
            self._take(rest.decode(errors="replace"), digest)
        self.logs.close()

    def _take(self, line: str, digest: Digest) -> None:
        if not line.strip():
            return
        self.has_lines = True
        self.logs.write(self._name, line)
        taken = digest.take(line, time.monotonic())
        if taken is not None:
            self._console.print(Text(taken if isinstance(taken, str) else taken.sentence))
