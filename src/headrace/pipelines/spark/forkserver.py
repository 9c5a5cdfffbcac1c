"""One process that all Python processes of Spark's on this machine are forked from, with what they need loaded.

Spark starts a Python for the workers of tasks, one for each kind of step in which a source or a sink is planned, and
one for each source of a query. Each would import pyspark, pyarrow and ours before a moment's work; one after the other,
while the query waits, they took longer than the query. So a session starts this server beside the JVM, and it loads all
of it once, while the JVM starts. Spark is given `forked_python` as its `python`, which hands over what Spark asked for:
arguments, environment, folder, standard streams. A process forked here becomes that module.

What always holds: whatever cannot be had by forking is run by the real Python: when the server is gone, when no module
is asked for, and when Python or its libraries are to start with other settings, which count only at their start. The
server has one thread. It ends with the process of the session, whose pipe is its standard input; what was forked ends
as it would otherwise, by Spark's pipe or socket, and when the process that Spark started for it is told to end.
"""

import gc
import importlib
import os
import runpy
import selectors
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.pipelines.spark import forked_python
from headrace.pipelines.spark.daemon import PRELOADED, preload, warm_loops
from headrace.pipelines.spark.settings import DAEMON_MODULE

# What the steps of planning run; each is imported by a process of its own.
_STEPS: Final = tuple(
    f"pyspark.sql.worker.{name}"
    for name in (
        "lookup_data_sources",
        "create_data_source",
        "plan_data_source_read",
        "write_into_data_source",
        "python_streaming_sink_runner",
    )
)
# Spark runs its own for the steps of planning, whatever is set; ours does the same, and ends more quietly.
_SPARKS_DAEMON: Final = "pyspark.daemon"
# Settings of Python's that a process takes at its start and that one can do without, or that are seen to here.
_NOT_AT_START: Final = ("PYTHONPATH", "PYTHONUNBUFFERED")
# What the loader, C's library and libraries that are loaded here read once: the time zone, where libraries are, …
_READ_ONCE: Final = (b"TZ", b"LANG", b"LC_", b"LD_", b"MALLOC_", b"ARROW_", b"NUMBA_")
_LONGEST_FOLDER: Final = 80  # the name of a socket has a hundred bytes or so
_STANDARD_ERROR: Final = 2
_TOUCHED_S: Final = 3600.0


# --- in the process of a session


class ForkServer:
    """A server that was started; it lives as long as this process."""

    def __init__(self, *, loops: bool) -> None:
        """`loops` has the compiled loops loaded too: only if they are compiled already, or all would wait for that."""
        folder = Path(tempfile.mkdtemp(prefix="headrace-"))  # which only this user can enter
        self.python = folder / "python"
        address = folder / "socket"
        parts = [sys.executable, "-IS", forked_python.__file__, sys.executable, str(address)]
        self.python.write_text(f'#!/bin/sh\nexec {shlex.join(parts)} "$@"\n')
        self.python.chmod(0o700)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(address))
            listener.listen()
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(listener.fileno()), str(folder), *(["loops"] if loops else [])],
                stdin=subprocess.PIPE,  # the server ends when this pipe does
                stdout=_STANDARD_ERROR,  # results are ours
                pass_fds=[listener.fileno()],
                env=os.environ | {"PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"), "PYTHONUNBUFFERED": "1"},
                preexec_fn=_ignore_interrupts,  # only sets dispositions of signals
            )

    def close(self) -> None:
        """End the server; what was forked goes on."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None


def start_server(*, loops: bool) -> ForkServer | None:
    """A server, where there can be one: where a file of a temporary folder may be run, and its path is not too long."""
    server = ForkServer(loops=loops) if len(tempfile.gettempdir()) < _LONGEST_FOLDER else None
    return server if server and os.access(server.python, os.X_OK) else None


def _ignore_interrupts() -> None:
    # Ctrl-C is for the session, and so is the end of a service, which all its processes are told: it ends its queries
    # first, and the server, which takes its folder with it, when it is gone.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


# --- in the server


@dataclass(frozen=True, slots=True)
class Request:
    """What Spark asked to be run, and where."""

    folder: bytes
    arguments: tuple[bytes, ...]
    environment: Mapping[bytes, bytes]

    @classmethod
    def read(cls, text: bytes) -> "Request":
        folder, count, *parts = text.split(b"\0")
        names = (part.partition(b"=") for part in parts[int(count) :])
        return cls(folder, tuple(parts[: int(count)]), {name: value for name, _, value in names})

    def can_be_forked(self, own: Mapping[bytes, bytes]) -> bool:
        """Whether it is a module, and Python would start as a server with this environment did."""
        settings = {name: value for name, value in self.environment.items() if _counts_at_start(name)}
        return self.arguments[:1] == (b"-m",) and all(own.get(name) == value for name, value in settings.items())


def _counts_at_start(name: bytes) -> bool:
    if name.startswith(_READ_ONCE):
        return True
    # Spark's own names have an underscore behind the first word, and Python's have none.
    return name.startswith(b"PYTHON") and b"_" not in name and os.fsdecode(name) not in _NOT_AT_START


def serve(listener: socket.socket, folder: Path) -> Request | None:
    """Fork for whoever asks; in a forked process what it is to become, in the server None at its end."""
    own = dict(os.environb)
    running: dict[int, socket.socket] = {}
    woken, waker = socket.socketpair()
    waker.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker.fileno())
    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        selector.register(listener, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in selector.select(_TOUCHED_S)]
            _touch(folder)
            if 0 in ready:
                return None
            if woken in ready:
                woken.recv(4096)
                _answer_ended(selector, running)
            for number, waiting in [*running.items()]:
                if waiting in ready and not _is_heard(waiting, number):
                    selector.unregister(waiting)
                    running.pop(number).close()
            if listener not in ready:
                continue
            asker, _ = listener.accept()
            request, streams = _receive(asker)
            pid = _fork() if request and request.can_be_forked(own) else None
            if pid == 0:
                signal.set_wakeup_fd(-1)
                for number in (signal.SIGCHLD, signal.SIGTERM):
                    signal.signal(number, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
                for number, stream in enumerate(streams):
                    os.dup2(stream, number)
                    os.close(stream)
                for inherited in (asker, listener, woken, waker, *running.values()):
                    inherited.close()
                return request
            for stream in streams:
                os.close(stream)
            with suppress(OSError):
                asker.sendall(b"n" if pid is None else b"y")
            if pid is None:
                asker.close()
            else:
                running[pid] = asker
                selector.register(asker, selectors.EVENT_READ)


def _touch(folder: Path) -> None:
    """Let no one who clears temporary folders of what is old take ours: no process could be started from then on."""
    with suppress(OSError):
        for path in (folder, *folder.iterdir()):
            os.utime(path)


def _fork() -> int | None:
    # What is to end a forked process waits until that no longer ignores it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        pid = os.fork()
    except OSError:
        pid = None
    if pid != 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    return pid


def _receive(asker: socket.socket) -> tuple[Request | None, list[int]]:
    size, streams, _, _ = socket.recv_fds(asker, 4, 3)
    count = int.from_bytes(size, "big")
    with asker.makefile("rb") as file:
        text = file.read(count)
    is_whole = len(text) == count > 0 and len(streams) == 3  # or the one who asks was killed, or had no file left
    return (Request.read(text) if is_whole else None), streams


def _answer_ended(selector: selectors.BaseSelector, running: dict[int, socket.socket]) -> None:
    with suppress(ChildProcessError):  # all that there were
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            if asker := running.pop(pid, None):
                code = os.waitstatus_to_exitcode(status)
                selector.unregister(asker)
                with asker, suppress(OSError):
                    asker.send(bytes([code if code >= 0 else 128 - code]))


def _is_heard(asker: socket.socket, pid: int) -> bool:
    """Hand on that the process is to end; False if the one who asked for it is gone, and it with him."""
    try:
        word = asker.recv(1)
    except OSError:
        word = b""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    return bool(word)


def become(request: Request) -> None:
    """Run the module as Python would with these arguments, in this environment."""
    os.chdir(request.folder)
    os.environb.clear()
    os.environb.update(request.environment)
    module = os.fsdecode(request.arguments[1])
    added = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path not in sys.path]
    if not sys.flags.safe_path:
        added.insert(0, os.fsdecode(request.folder))
        del sys.path[0]  # the server's own
    sys.path[:0] = added
    sys.argv = [module, *map(os.fsdecode, request.arguments[2:])]
    importlib.invalidate_caches()
    if module == _SPARKS_DAEMON:
        module = DAEMON_MODULE
    sys.modules.pop(module, None)  # it was loaded under its name; now it is the program
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def main() -> None:
    number, folder, *more = sys.argv[1:]
    preload((*PRELOADED, _SPARKS_DAEMON, "pyspark.sql.streaming.python_streaming_source_runner", *_STEPS))
    if more:
        warm_loops()
    # What is loaded stays: a collection in a forked process must not touch, and so copy, every page of it.
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(number)) as listener:
        request = serve(listener, Path(folder))
    if request:
        become(request)
    else:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
