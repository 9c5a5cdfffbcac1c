"""`[queues.NAME]` under `headrace up`: checked, run, reported, ended."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import Queue
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.status import QUEUES, read_statuses
from tests.integration.running_stack import COMMAND, RunningStack
from tests.integration.waiting import wait_until
from tests.ports import free_port

FILE = """
[broker]
port = {port}

[queues.emails]
function = "mailer:send"
concurrency = 2
"""
MAILER = """
def send(message):
    if message.value == "flaky" and message.deliveries == 1:
        raise ConnectionError("the mail server is away")
    with open("sent.txt", "a") as out:
        out.write(f"{message.value}\\n")
"""


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def stack(tmp_path: Path, port: int) -> Iterator[RunningStack]:
    (tmp_path / "mailer.py").write_text(MAILER)
    made = RunningStack(tmp_path, FILE.format(port=port))
    yield made
    made.end(signal.SIGKILL)


def test_a_worker_of_a_stack_works_and_reports(stack: RunningStack, port: int) -> None:
    sent = stack.folder / "sent.txt"
    stack.start()
    address = f"127.0.0.1:{port}"
    wait_until(lambda: "queues.emails" in stack.members(), "the worker is started", patience_s=60)
    wait_until(lambda: stack.members()["queues.emails"]["phase"] == "running", "the worker runs", patience_s=60)
    with Queue("emails", address) as queue:
        queue.put_many(["one", "flaky"])
        wait_until(lambda: sent.exists() and len(sent.read_text().split()) == 2, "both are sent", patience_s=60)
        wait_until(lambda: queue.depth() == 0, "both are acknowledged", patience_s=60)

    def told() -> bool:
        with Cluster(parse_bootstrap(address)) as cluster:
            facts = read_statuses(cluster, QUEUES)["emails"].facts
        return (facts["state"], facts["records"], facts["retried"]) == ("running", 2, 1)

    wait_until(told, "what it did is reported", patience_s=60)
    assert sorted(sent.read_text().split()) == ["flaky", "one"]
    assert stack.end() == 0


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("mailer:send", "mailer:sent", "mailer has no function 'sent': did you mean 'send'?"),
        ("mailer:send", "postman:send", "there is no module postman here"),
        ("mailer:send", "mailer.send", "write MODULE:NAME"),
        ("concurrency = 2", 'timeout = "soon"', "'soon' is not a length of time"),
        ("concurrency = 2", "concurency = 2", "did you mean 'concurrency'?"),
    ],
)
def test_a_mistake_is_a_sentence_with_its_place(
    tmp_path: Path, port: int, before: str, after: str, sentence: str
) -> None:
    (tmp_path / "mailer.py").write_text(MAILER)
    (tmp_path / "headrace.toml").write_text(FILE.format(port=port).replace(before, after))
    done = subprocess.run([*COMMAND, "up", "--check"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "[queues.emails]" in done.stderr
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
