"""Lucene Monitor as a process that is asked in lines of JSON: Monitor.java says which."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from peers.java import QUICK_START, PeerError, java_command

if TYPE_CHECKING:
    from collections.abc import Sequence

_SOURCE: Final = Path(__file__).with_name("Monitor.java")


class LuceneMonitor:
    """One monitor; `kind` is its presearcher, as Monitor.java names them."""

    def __init__(
        self, kind: str = "term", *, heap: str = "1g", flags: Sequence[str] = QUICK_START, before: Sequence[str] = ()
    ) -> None:
        command = [*before, *java_command("lucene", str(_SOURCE), kind, heap=heap, flags=flags)]
        self._process = subprocess.Popen(
            command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def ask(self, **request: object) -> Any:
        """One request, as Monitor.java has them, and its answer."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(request) + "\n")
        stdin.flush()
        line = stdout.readline()
        if not line:
            raise PeerError(f"Lucene Monitor ended ({self._process.poll()}) at {str(request)[:200]}")
        answer = json.loads(line)
        if "error" in answer:
            raise PeerError(f"Lucene Monitor refused {str(request)[:200]}: {answer['error']}")
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
