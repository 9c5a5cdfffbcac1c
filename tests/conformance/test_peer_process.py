"""A peer's process ends with us, however we end."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from peers.process import Guarded

_ROOT = Path(__file__).resolve().parents[2]

_STARTER = """
import pathlib, sys
from peers.process import Guarded
guarded = Guarded(["sleep", "600"], output=pathlib.Path("/dev/null"))
print(guarded.pid, flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def _watching(pid: int):
    """Watch a process that is not our child; calling what is yielded says whether it ended within ten seconds."""
    descriptor = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        yield lambda: bool(poll.poll(10_000))
    finally:
        os.close(descriptor)


def test_a_guarded_process_dies_with_the_one_that_started_it():
    starter = subprocess.Popen(
        [
            sys.executable,
            "-c",
            _STARTER,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=_ROOT,
    )
    with starter, _watching(int(starter.stdout.readline())) as ended:
        starter.send_signal(signal.SIGKILL)
        starter.wait()
        assert ended()


def test_a_process_killed_or_ended_leaves_no_guard(tmp_path):
    killed = Guarded(["sleep", "600"], output=tmp_path / "output")
    assert killed.wait(0) is None
    killed.kill()
    assert killed.wait(0) == -signal.SIGKILL

    ended = Guarded(["sh", "-c", "echo said; exit 3"], output=tmp_path / "output")
    assert ended.wait(10) == 3
    assert (tmp_path / "output").read_text() == "said\n"
    ended.kill()  # nothing left to kill: no complaint, and no other process hit


def test_what_a_process_started_dies_with_it(tmp_path):
    reader, writer = os.pipe()
    parent = Guarded(["sh", "-c", "sleep 600 & echo $!; wait"], output=Path(f"/proc/self/fd/{writer}"))
    with open(reader) as said, _watching(int(said.readline())) as ended:
        parent.kill()
        os.close(writer)
        assert ended()


def test_a_command_that_does_not_exist_is_told_at_once(tmp_path):
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        Guarded(["no-such-program"], output=tmp_path / "output")
