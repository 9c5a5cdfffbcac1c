"""`headrace up`: what is refused before anything starts."""

import json
import os
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.cli.main import cli
from headrace.stack.errors import AlreadyRunning, InvalidStack, NoSuchMember
from headrace.stack.state_file import MemberState, StackState, hold_lock, write
from headrace.stack.usage import process_of


def invoke(file: Path, *options: str) -> str:
    return CliRunner().invoke(cli, ["up", "--config", str(file), *options], catch_exceptions=False).output


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "headrace.toml"
    made.write_text("[broker]\nport = 0\n[topics.orders]\n[dashboard]\nport = 0\n")
    return made


def test_a_check_starts_nothing(file: Path) -> None:
    assert invoke(file, "--check") == f"{file} is in order: broker, topics, dashboard\n"
    assert json.loads(invoke(file, "--check", "--json", "--only", "topics"))["parts"] == ["broker", "topics"]
    assert not (file.parent / ".headrace").exists()


def test_a_part_that_is_not_there(file: Path) -> None:
    with pytest.raises(NoSuchMember, match="did you mean 'broker'"):
        invoke(file, "--only", "brokr")


def test_a_port_that_another_program_has(file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        file.write_text(f"[broker]\nport = {number}\n")
        with pytest.raises(InvalidStack, match=rf"127.0.0.1:{number} is taken by another program: .* for \[broker\]"):
            invoke(file)
        with pytest.raises(InvalidStack, match=f"127.0.0.1:{number} is taken by another program"):
            invoke(file, "--check")
        process = process_of(os.getpid())
        assert process is not None
        (file.parent / ".headrace").mkdir(exist_ok=True)
        running = (MemberState("broker", "broker", "running", os.getpid()),)
        write(file.parent, StackState(os.getpid(), process.began_ticks, 0, str(file), "", running))
        assert "is in order" in invoke(file, "--check"), "the port is its own"


def test_a_port_of_udp_that_another_program_has(file: Path) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        number = taken.getsockname()[1]
        gateway = f"[gateways.logs]\nkind = 'syslog'\nudp_port = {number}\n"
        file.write_text(f"[broker]\nport = 0\n{gateway}")
        with pytest.raises(InvalidStack, match=rf"127.0.0.1:{number} is taken .* udp_port for \[gateways.logs\]"):
            invoke(file, "--check")
        file.write_text(f"[broker]\nport = 0\n[gateways.lines]\nkind = 'lines'\nport = {number}\n")
        assert "is in order" in invoke(file, "--check"), "that of TCP is another"


def test_a_second_one_is_refused(file: Path) -> None:
    with hold_lock(file.parent), pytest.raises(AlreadyRunning):
        invoke(file)
