"""A contender's process as the benchmark sees it: orders, answers, and the memory and CPU of the whole tree."""

import json
import os
import threading
import time
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any, Self

from harness import ROOT
from peers.process import Guarded

_PYTHONS = {
    "flink": ROOT / ".cache/peers/flink/venv/bin/python",
    "flink-once": ROOT / ".cache/peers/flink/venv/bin/python",
}
_HERE = Path(__file__).parent
_START_TIMEOUT_S = 120
_ORDER_TIMEOUT_S = 900
_SAMPLE_S = 0.1
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Unavailable(Exception):
    """What a contender is made of is not on this machine."""


class Failed(Exception):
    """A contender could not do what it was told, or did it wrong."""


class Worker:
    """A running contender: `start_s` is what its start took, Python and JVM and session."""

    def __init__(self, name: str, folder: Path, *, script: str = "pipelines_worker.py") -> None:
        self.name = name
        python = _PYTHONS.get(name, ROOT / ".venv" / "bin" / "python")
        if not python.exists():
            raise Unavailable(f"{python.relative_to(ROOT)} is not there: run peers/fetch flink")
        folder.mkdir(parents=True)
        self._output = folder / "output.log"
        address = str(folder / "orders")
        started = time.perf_counter()
        with Listener(address, "AF_UNIX") as listener:
            # A worker that dies before it calls would leave us waiting.
            listener._listener._socket.settimeout(_START_TIMEOUT_S)  # type: ignore[attr-defined]
            self._process = Guarded([str(python), str(_HERE / script), name, address, str(folder)], output=self._output)
            try:
                self._connection: Connection = listener.accept()
                first = self._answer(_START_TIMEOUT_S)
                if "missing" in first:
                    raise Unavailable(first["missing"])
            except BaseException:
                self._process.kill()
                raise
        self.start_s = time.perf_counter() - started

    def order(self, do: str, **arguments: Any) -> dict[str, Any]:
        self._connection.send_bytes(json.dumps({"do": do, **arguments}).encode())
        answer = self._answer(_ORDER_TIMEOUT_S)
        if "failed" in answer:
            raise Failed(f"{self.name}, {do}: {answer['failed']}")
        return answer

    def measured(self, do: str, **arguments: Any) -> dict[str, Any]:
        """An order's answer, with the peak memory of the whole tree and the CPU seconds spent meanwhile."""
        with Peak(self._process.pid) as peak:
            before = cpu_seconds(self._process.pid)
            answer = self.order(do, **arguments)
            answer["cpu_s"] = cpu_seconds(self._process.pid) - before
        answer["peak_mb"] = peak.bytes / 1e6
        return answer

    def close(self) -> None:
        self._connection.close()
        if self._process.wait(30) is None:
            self._process.kill()

    def kill(self) -> None:
        self._connection.close()
        self._process.kill()

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        while not self._connection.poll(0.5):
            if self._process.wait(0) is not None or time.monotonic() > deadline:
                said = "\n".join(self._output.read_text(errors="replace").splitlines()[-30:])
                raise Failed(f"{self.name} ended or gave no answer within {timeout_s} s; it said:\n{said}")
        try:
            return json.loads(self._connection.recv_bytes())
        except EOFError:
            said = "\n".join(self._output.read_text(errors="replace").splitlines()[-30:])
            raise Failed(f"{self.name} hung up; it said:\n{said}") from None


class Peak:
    """The most that a process and its descendants had resident at once, looked at ten times a second.

    Pages that processes share are counted for each.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.bytes = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.bytes = max(self.bytes, sum(_resident(pid) for pid in tree(self._pid)))
            if self._done.wait(_SAMPLE_S):
                return


def tree(pid: int) -> list[int]:
    """A process and its descendants."""
    found = [pid]
    for each in found:
        try:
            threads = os.listdir(f"/proc/{each}/task")
        except OSError:
            continue
        for thread in threads:
            try:
                found += map(int, Path(f"/proc/{each}/task/{thread}/children").read_text().split())
            except OSError:
                continue
    return found


def cpu_seconds(pid: int) -> float:
    """What a process and its descendants used, those that ended and were waited for too."""
    total = 0
    for each in tree(pid):
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15]))
    return total / _TICKS_PER_S


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except OSError:
        return 0
