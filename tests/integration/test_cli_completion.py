"""`headrace completion`: the scripts, and what they ask for."""

import os
import subprocess
import sys

import pytest

from headrace import Broker
from tests.integration.cli_runs import assert_wrong_call, run_cli


@pytest.fixture(scope="module")
def broker():
    with Broker(durability="os") as broker:
        for name in ("orders", "orders-late", "users"):
            run_cli("topic", "create", name, bootstrap=broker.bootstrap_servers)
        yield broker


def complete(words, **environment):
    """What the script for bash is told at the end of a line."""
    environment = {
        **os.environ,
        "_HEADRACE_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
        **environment,
    }
    program = "import sys; sys.argv[0] = 'headrace'; from headrace.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(shell):
    run = run_cli("completion", shell)
    assert run.code == 0
    assert "_HEADRACE_COMPLETE" in run.out
    assert f"{shell}_complete" in run.out


def test_the_script_is_sound_to_bash():
    script = run_cli("completion", "bash").out
    subprocess.run(["bash", "--norc", "-c", f"set -e\n{script}\ncomplete -p headrace"], check=True, capture_output=True)


def test_no_such_shell():
    assert_wrong_call(run_cli("completion", "tcsh"), "tcsh")


def test_commands_and_options():
    assert complete("headrace to") == ["top", "topic"]
    assert {"create", "list", "describe", "delete", "alter"} == set(complete("headrace topic "))
    assert complete("headrace tail orders --comm") == ["--committed"]


@pytest.mark.parametrize("command", ["tail", "produce", "topic describe", "topic alter", "topic delete"])
def test_topics_come_from_the_broker(broker, command):
    assert complete(f"headrace {command} ord", HEADRACE_BOOTSTRAP=broker.bootstrap_servers) == ["orders", "orders-late"]


def test_the_broker_on_the_line_is_asked(broker):
    line = f"headrace tail --bootstrap {broker.bootstrap_servers} u"
    assert complete(line, HEADRACE_BOOTSTRAP="127.0.0.1:1") == ["users"]


def test_no_broker_is_no_topics_and_no_complaint():
    assert complete("headrace tail ord", HEADRACE_BOOTSTRAP="127.0.0.1:1") == []
    assert complete("headrace tail ord", HEADRACE_BOOTSTRAP="nonsense:port") == []
