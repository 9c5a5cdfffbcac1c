"""Followers while brokers go away, beside each other, and on files that are not what logs are."""

import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import pytest

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.connect.delivery import read_committed
from headrace.connect.errors import TakenOver
from headrace.gateways.files.follower import POSITIONS, Follower, FollowSettings
from tests.integration.test_follow_kill import committed


@contextmanager
def serving(folder: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    """A broker of its own process, killed at the end."""
    command = [sys.executable, "-m", "headrace.cli.main", "broker", "start", "--data-dir", str(folder)]
    with subprocess.Popen([*command, "--listen", f"127.0.0.1:{port}"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            yield process
        finally:
            process.send_signal(signal.SIGKILL)


def following(bootstrap: str, path: Path, **options: int) -> Follower:
    return Follower(FollowSettings("test", (str(path),), "lines", **options), parse_bootstrap(bootstrap))  # type: ignore[arg-type]


def until(condition: Callable[[], object], what: str) -> None:
    pause = Event()
    for _ in range(3000):
        if condition():
            return
        pause.wait(0.02)
    pytest.fail(f"not within a minute: {what}")


def test_a_broker_that_is_killed_while_files_are_followed_loses_and_doubles_nothing(tmp_path: Path) -> None:
    folder, path = tmp_path / "broker", tmp_path / "a.log"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    bootstrap = f"127.0.0.1:{port}"
    follower = following(bootstrap, path)
    thread = Thread(target=follower.run)
    thread.start()
    written = 0

    def write(lines: int) -> int:
        with path.open("ab") as file:
            file.write(b"".join(b"%d\n" % number for number in range(written, written + lines)))
        return written + lines

    try:
        until(lambda: follower.progress.waiting, "it waits for a broker that was never there")
        for _ in range(2):
            with serving(folder, port):
                before = follower.progress.records
                written = write(100_000)
                until(lambda before=before: follower.progress.records > before, "lines are written")  # type: ignore[misc]
            written = write(1)
            until(lambda: follower.progress.waiting, "the broker is away")
        with serving(folder, port):
            until(lambda: not follower.progress.waiting, "the broker is back")
            follower.stopping.set()
            thread.join(60)
            replace(following(bootstrap, path), until_idle=True).run()
            assert [int(line) for line in committed(bootstrap)] == list(range(written))
    finally:
        follower.stopping.set()
        thread.join(60)


def test_of_two_followers_of_one_name_the_earlier_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"0\n")
    with Broker(tmp_path / "broker", durability="os") as broker:
        first, second = (following(broker.bootstrap_servers, path) for _ in range(2))
        ended: list[Exception] = []

        def keep() -> None:
            try:
                first.run()
            except TakenOver as error:
                ended.append(error)

        threads = [Thread(target=keep), Thread(target=second.run)]
        threads[0].start()
        until(lambda: first.progress.records == 1, "the first line is written")
        threads[1].start()
        for number in range(1, 200):
            with path.open("ab") as file:
                file.write(b"%d\n" % number)
            if ended:
                break
            Event().wait(0.05)
        until(lambda: ended, "the earlier one ends")
        second.stopping.set()
        for thread in threads:
            thread.join(30)
        replace(following(broker.bootstrap_servers, path), until_idle=True).run()
        assert [int(line) for line in committed(broker.bootstrap_servers)] == list(range(number + 1))


def test_lines_of_all_sizes_and_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"\n" * 3 + b"\0a\0\n" + b"x\n" * 500_000 + b"y" * 30_000_000 + b"\nend\n")
    with Broker(tmp_path / "broker", durability="os") as broker:
        follower = following(broker.bootstrap_servers, path, line_bytes=1000)
        replace(follower, until_idle=True).run()
        found = committed(broker.bootstrap_servers)
        assert found == [b"", b"", b"", b"\0a\0", *[b"x"] * 500_000, b"y" * 1000, b"end"]
        assert follower.progress.too_long == 1


def test_positions_of_files_that_are_gone_are_given_up(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    with Broker(tmp_path / "broker", durability="os") as broker:
        follower = following(broker.bootstrap_servers, path)
        thread = Thread(target=follower.run)
        thread.start()
        for number in range(3):  # the same inode may come again: its bytes tell
            path.write_bytes(b"%d\n" % number * (5 - number))
            wanted = sum(range(5 - number, 6))
            until(lambda wanted=wanted: follower.progress.records == wanted, "all lines are written")  # type: ignore[misc]
            path.unlink()
        until(lambda: follower.progress.files == 0, "the files are given up")
        follower.stopping.set()
        thread.join(30)
        with Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
            assert len(read_committed(cluster, POSITIONS, lambda _: True)) == 1, "the patterns"
        assert committed(broker.bootstrap_servers) == [b"0"] * 5 + [b"1"] * 4 + [b"2"] * 3


def test_files_whose_folder_goes_away_and_comes_back_are_not_read_again(tmp_path: Path) -> None:
    """As with a mount, also one that comes after the follower when a machine starts."""
    logs, away = tmp_path / "logs", tmp_path / "away"
    logs.mkdir()
    with Broker(tmp_path / "broker", durability="os") as broker:
        for number in range(2):
            follower = following(broker.bootstrap_servers, logs / "*.log")
            thread = Thread(target=follower.run)
            thread.start()
            try:
                if number:
                    until(lambda: follower.progress.files, "it knows of the file")  # noqa: B023
                else:
                    (logs / "a.log").write_bytes(b"0\n")
                    until(lambda: follower.progress.records == 1, "the line is written")  # noqa: B023
                    logs.rename(away)
                until(lambda: not follower.progress.files, "it looks for it no more")  # noqa: B023
                away.rename(logs)
                with (logs / "a.log").open("ab") as file:
                    file.write(b"%d\n" % (number + 1))
                until(lambda: committed(broker.bootstrap_servers)[-1:] == [b"%d" % (number + 1)], "it goes on")  # noqa: B023
            finally:
                follower.stopping.set()
                thread.join(30)
            logs.rename(away)
        assert committed(broker.bootstrap_servers) == [b"0", b"1", b"2"]
