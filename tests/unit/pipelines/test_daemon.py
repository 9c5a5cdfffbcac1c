"""Workers that Spark's own daemon forks for the steps of planning: Spark may have gone before their last word."""

import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from headrace.pipelines.spark.forkserver import start_server

# As a planning worker: it loads our source, leaves its last word in the buffer, and waits until Spark has hung up.
WORKER = """
import headrace.pipelines.source.datasource

def main(infile, outfile):
    outfile.write(b"last word")
    infile.read()
    {then}
"""


@pytest.fixture(params=["started", "forked"])
def python(request: pytest.FixtureRequest) -> Iterator[str]:
    """The `python` that Spark is given."""
    if request.param == "started":
        yield sys.executable
        return
    server = start_server(loops=False)
    assert server
    yield str(server.python)
    server.close()


def said_by_worker(python: str, folder: Path, then: str) -> str:
    """What a worker that ends like this prints when Spark does not wait for its last word."""
    (folder / "pyspark_planning.py").write_text(WORKER.format(then=then))
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder),
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
    }
    with (
        tempfile.TemporaryDirectory(prefix="spark") as sockets,  # the path of a socket has to be short
        subprocess.Popen(
            [python, "-m", "pyspark.daemon", "pyspark_planning"],
            env=environment | {"PYTHON_WORKER_FACTORY_SOCK_DIR": sockets},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as daemon,
    ):  # fmt: skip
        assert daemon.stdin
        assert daemon.stdout
        assert daemon.stderr
        (length,) = struct.unpack(">i", daemon.stdout.read(4))
        with socket.socket(socket.AF_UNIX) as spark:
            spark.connect(daemon.stdout.read(length).decode())
            (worker,) = struct.unpack(">i", spark.recv(4))
            ended = os.pidfd_open(worker)
        with os.fdopen(ended):
            assert select.select([ended], [], [], 60)[0], "the worker goes on"
        daemon.stdin.close()
        return daemon.stderr.read().decode()


def test_a_last_word_that_nobody_waits_for_is_no_error(python: str, tmp_path: Path) -> None:
    assert said_by_worker(python, tmp_path, "pass") == ""


def test_what_fails_in_a_worker_is_still_told(python: str, tmp_path: Path) -> None:
    assert "ZeroDivisionError" in said_by_worker(python, tmp_path, "1 / 0")
