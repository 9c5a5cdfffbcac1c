"""A process of a stack has ended when it has, whoever still holds what it wrote to."""

import asyncio
import os
import signal
from pathlib import Path

from headrace.stack.kind import Command
from headrace.stack.processes import MemberProcess

# It leaves another in a session of its own, as a pipeline leaves a JVM that writes its archive of classes at the end.
LEAVING = """
import subprocess, sys
left = subprocess.Popen(["sleep", "120"], start_new_session=True)
print("left", left.pid, flush=True)
print("last words", file=sys.stderr, flush=True)
sys.exit(3)
"""


def test_it_has_ended_although_what_it_left_holds_its_pipes(tmp_path: Path) -> None:
    (tmp_path / "leaving.py").write_text(LEAVING)
    heard: list[str] = []

    async def run() -> int:
        command = Command(("leaving",), environment={"PYTHONPATH": str(tmp_path)})
        process = await MemberProcess.start(command, tmp_path, heard.append)
        return await asyncio.wait_for(process.ended(), 60)

    try:
        assert asyncio.run(run()) == 3
        assert "last words" in heard
    finally:
        left = next(int(line.split()[1]) for line in heard if line.startswith("left"))
        os.kill(left, signal.SIGKILL)
