"""The server that Spark's Python processes are forked from, asked by what Spark runs as `python`."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from headrace.pipelines.spark.forkserver import ForkServer, start_server

ABOUT = "import os, sys; print(os.getcwd(), os.environ['OWN'], *sys.argv[1:], 'pandas' in sys.modules, flush=True)"
# It hands the signal on, or has not come to that when what was forked has spoken.
ENDED = (128 + signal.SIGTERM, -signal.SIGTERM)
WAITS = "import signal; print('waits', flush=True); signal.pause()"


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    found = start_server(loops=False)
    assert found
    yield found
    found.close()
    assert not found.python.exists()


def run(server: ForkServer, folder: Path, text: str, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
    """A module that does this, as Spark would run it: found by PYTHONPATH, in another folder."""
    (folder / "elsewhere").mkdir()
    (folder / "asked_for.py").write_text(text)
    return subprocess.Popen(
        [str(server.python), "-m", "asked_for", *arguments],
        env=os.environ | {"PYTHONPATH": str(folder), "OWN": "kept"} | environment,
        cwd=folder / "elsewhere",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def test_a_module_has_its_arguments_environment_folder_and_what_is_loaded(server: ForkServer, tmp_path: Path) -> None:
    process = run(server, tmp_path, ABOUT, "one", "two words")
    assert process.communicate()[0] == f"{tmp_path}/elsewhere kept one two words True\n"
    assert process.returncode == 0


def test_it_reads_what_spark_writes_and_ends_as_it_ended(server: ForkServer, tmp_path: Path) -> None:
    process = run(server, tmp_path, "import sys; print(input()); sys.exit(7)")
    assert process.communicate("a line\n")[0] == "a line\n"
    assert process.returncode == 7


def test_an_error_is_told(server: ForkServer, tmp_path: Path) -> None:
    process = run(server, tmp_path, "1 / 0")
    assert "ZeroDivisionError" in process.communicate()[0]
    assert process.returncode == 1


def test_what_ends_the_process_that_spark_knows_ends_the_forked_one(server: ForkServer, tmp_path: Path) -> None:
    with run(server, tmp_path, WAITS) as process:
        assert process.stdout
        assert process.stdout.readline() == "waits\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == ""  # the last one who could write there has ended
        assert process.wait() in ENDED


def test_a_killed_process_takes_the_forked_one_with_it(server: ForkServer, tmp_path: Path) -> None:
    with run(server, tmp_path, WAITS) as process:
        assert process.stdout
        assert process.stdout.readline() == "waits\n"
        process.kill()
        assert process.stdout.read() == ""


@pytest.mark.parametrize("name", ["PYTHONHASHSEED", "TZ", "LD_LIBRARY_PATH", "LC_ALL", "NUMBA_DISABLE_JIT"])
def test_settings_that_count_at_a_start_are_left_to_python(server: ForkServer, tmp_path: Path, name: str) -> None:
    process = run(server, tmp_path, ABOUT, **{name: "4"})
    assert process.communicate()[0].endswith("kept False\n")


def test_processes_are_in_the_time_zone_of_their_environment(server: ForkServer, tmp_path: Path) -> None:
    process = run(server, tmp_path, "import time; print(time.strftime('%H', time.localtime(0)))", TZ="Asia/Tokyo")
    assert process.communicate()[0] == "09\n"


def test_chance_is_each_processes_own(server: ForkServer, tmp_path: Path) -> None:
    drawn = set()
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        text = (
            "import os, numpy as np\n"
            "print(np.random.random(), flush=True)\n"
            "os.fork() or os._exit(print(np.random.random(), flush=True) or 0)\n"  # as a worker of a daemon
            "os.wait()"
        )
        drawn |= {*run(server, tmp_path / name, text).communicate()[0].split()}
    assert len(drawn) == 4


def test_its_files_do_not_grow_old(server: ForkServer, tmp_path: Path) -> None:
    paths = [server.python, server.python.parent]
    for path in paths:
        os.utime(path, (0, 0))
    run(server, tmp_path, "").communicate()
    assert all(path.stat().st_mtime > 0 for path in paths)


def test_who_is_gone_amid_his_words_does_not_end_it(server: ForkServer, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as asker:
        asker.connect(str(server.python.with_name("socket")))
        socket.send_fds(asker, [(100).to_bytes(4, "big")], [0, 1, 2])
        asker.sendall(b"/folder")
        asker.shutdown(socket.SHUT_WR)
        assert asker.recv(2) == b"n"
    assert run(server, tmp_path, ABOUT).communicate()[0].endswith("kept True\n")


def test_it_ends_with_the_session_when_all_processes_of_a_service_are_ended(tmp_path: Path) -> None:
    server = start_server(loops=False)
    assert server
    server._process.terminate()
    text = f"{ABOUT}; {WAITS}"
    with run(server, tmp_path, text) as process:
        assert process.stdout
        assert process.stdout.readline().endswith("kept True\n")
        assert process.stdout.readline() == "waits\n"
        process.terminate()
        assert process.stdout.read() == ""
        assert process.wait() in ENDED
    server.close()
    assert not server.python.exists()


def test_without_a_server_it_is_python(tmp_path: Path) -> None:
    server = start_server(loops=False)
    assert server
    launcher = tmp_path / "python"
    launcher.write_text(server.python.read_text())
    launcher.chmod(0o700)
    server.close()
    said = subprocess.run([launcher, "-c", "print('still')"], check=True, capture_output=True, text=True)
    assert said.stdout == "still\n"
