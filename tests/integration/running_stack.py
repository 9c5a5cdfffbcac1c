"""A folder with a `headrace.toml`, and the commands that a person would give there."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.integration.waiting import wait_until

COMMAND = (sys.executable, "-m", "headrace.cli.main")
PATIENCE_S = 120.0


class RunningStack:
    """One stack; `end` leaves nothing running."""

    def __init__(self, folder: Path, text: str, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.log = folder / "up.log"
        self._environment = {**os.environ, **(environment or {})}
        self._up: subprocess.Popen[bytes] | None = None
        self._killed: set[int] = set()
        (folder / "headrace.toml").write_text(text)

    def start(self, *options: str) -> int:
        """`headrace up`; answers its process."""
        with self.log.open("ab") as log:
            self._up = subprocess.Popen(
                [*COMMAND, "up", "--json", *options], cwd=self.folder, env=self._environment, stdout=log, stderr=log
            )
        return self._up.pid

    def end(self, number: int = signal.SIGTERM, patience_s: float = PATIENCE_S) -> int:
        """Send it a signal; answers its exit code."""
        if self._up is None:
            return 0
        self._up.send_signal(number)
        code = self._up.wait(patience_s)
        self._up = None
        return code

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Another command, to its end."""
        return subprocess.run(
            [*COMMAND, *arguments], cwd=self.folder, env=self._environment, capture_output=True, text=True,
            timeout=PATIENCE_S, check=False,
        )  # fmt: skip

    def state(self) -> dict[str, Any]:
        """What is written down for others."""
        try:
            found: dict[str, Any] = json.loads((self.folder / ".headrace/stack/state.json").read_text())
        except FileNotFoundError:
            return {"pid": 0, "members": []}
        return found

    def members(self) -> dict[str, dict[str, Any]]:
        """How each part stands."""
        return {member["name"]: member for member in self.state()["members"]}

    def pids(self) -> set[int]:
        """The processes that run."""
        return {member["pid"] for member in self.members().values() if member["pid"]}

    def kill_some(self, chance: random.Random, count: int) -> None:
        """kill -9 so many captures and copies, once so many run: a killed one is named until its successor is there."""

        def alive() -> list[int]:
            parts = [part for name, part in self.members().items() if name.startswith(("cdc", "sync"))]
            return [part["pid"] for part in parts if part["pid"] and part["pid"] not in self._killed]

        wait_until(lambda: len(alive()) >= count, "the parts that were killed do not come back")
        for pid in chance.sample(alive(), count):
            self._killed.add(pid)
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself meanwhile
                os.kill(pid, signal.SIGKILL)

    def wait_until_fine(self, patience_s: float = PATIENCE_S) -> None:
        """Until this `up` says that every part does its work."""

        def is_fine() -> bool:
            assert self._up is not None
            assert self._up.poll() is None, self.log.read_text()
            state = self.state()
            phases = {member["phase"] for member in state["members"]}
            return bool(state["pid"] == self._up.pid and phases and phases <= {"running", "done"})

        wait_until(is_fine, f"the stack is not up: {self.members()}", patience_s=patience_s)

    def lines(self) -> list[dict[str, Any]]:
        """What the log says; a sentence of a command that was refused is no line of it."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
