"""The reference daemon of StatsD, run by node on loopback.

What always holds: when `start` returns, the daemon takes packets; what it adds up in each interval is a line of
`results`, which it has written whole before the next; and it does not outlive the process that started it.
"""

from __future__ import annotations

import json
import shutil
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from peers.java import PeerError, home_of
from peers.process import Guarded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_HERE: Final = Path(__file__).parent
_STARTS_S: Final = 30.0
_POLL_S: Final = 0.02
_UP: Final = b"server is up"


class StatsdDaemon:
    """A daemon whose files are in a folder; `settings` are its own. It is started by `with`."""

    def __init__(self, folder: Path, interval_ms: int, settings: Mapping[str, Any], before: Sequence[str] = ()) -> None:
        """`before` is what stands before the command: which cores it has."""
        self.results = folder / "results"
        self.output = folder / "statsd.out"
        self.port, management = _free_ports()
        script = home_of("statsd") / "node_modules" / "statsd" / "stats.js"
        node = shutil.which("node")
        if node is None:
            raise PeerError("node is not installed: install Debian's nodejs")
        config = folder / "config.js"
        asked = {
            "address": "127.0.0.1", "port": self.port, "mgmt_address": "127.0.0.1", "mgmt_port": management,
            "backends": [str(_HERE / "results.js")], "results": str(self.results), "flushInterval": interval_ms,
            "automaticConfigReload": False, **settings,
        }  # fmt: skip
        config.write_text(json.dumps(asked))
        self.results.touch()
        self._command = [*before, node, str(script), str(config)]
        self._process: Guarded | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        self._process = Guarded(self._command, output=self.output)
        ends = time.monotonic() + _STARTS_S
        while _UP not in self.output.read_bytes():
            if time.monotonic() > ends or self._process.wait(0) is not None:
                self._process.kill()
                raise PeerError(f"the reference daemon does not start: {self.output.read_text()[-2000:]}")
            time.sleep(_POLL_S)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()

    def intervals(self) -> list[dict[str, Any]]:
        """What it added up to, by interval."""
        whole = self.results.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]


def _free_ports() -> tuple[int, int]:
    with socket.socket(type=socket.SOCK_DGRAM) as packets, socket.socket() as management:
        packets.bind(("127.0.0.1", 0))
        management.bind(("127.0.0.1", 0))
        return int(packets.getsockname()[1]), int(management.getsockname()[1])
