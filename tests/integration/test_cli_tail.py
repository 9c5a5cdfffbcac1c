"""`headrace tail` against a broker: what is shown, in what order, and how it ends."""

import json
import os
import pty
import select
import signal
import subprocess
import time
from functools import partial

import pytest

from headrace import Broker
from tests.integration.cli_runs import COMMAND, assert_one_sentence, assert_wrong_call, run_cli
from tests.ports import free_port

LINES = [
    {"key": "c7", "value": {"customer": "c7", "cents": 700}, "partition": 0, "timestamp": 1000, "headers": {"a": "1"}},
    {"key": "c8", "value": {"customer": "c8", "cents": 900}, "partition": 1, "timestamp": 2000},
    {"key": "c7", "value": {"customer": "c7", "cents": 100}, "partition": 0, "timestamp": 3000},
    {"key": "c9", "value": "plain text", "partition": 1, "timestamp": 4000},
    {"key": "c7", "value": None, "partition": 0, "timestamp": 5000},
]


@pytest.fixture(scope="module")
def broker():
    with Broker(durability="os") as broker:
        run = partial(run_cli, bootstrap=broker.bootstrap_servers)
        run("topic", "create", "orders", "--partitions", 2)
        assert run("produce", "orders", "--json-lines", stdin="\n".join(map(json.dumps, LINES))).code == 0
        run("topic", "create", "empty")
        yield broker


@pytest.fixture
def headrace(broker):
    return partial(run_cli, bootstrap=broker.bootstrap_servers)


def stamps(headrace, *options):
    return [record["timestamp"] for record in headrace("tail", "orders", "--no-follow", "--json", *options).json_lines]


def test_for_people(headrace):
    run = headrace("tail", "orders", "--no-follow", "--headers")
    assert run.out.splitlines() == [
        '0:0  1970-01-01 00:00:01.000  c7  a=1  {"customer":"c7","cents":700}',
        '1:0  1970-01-01 00:00:02.000  c8  {"customer":"c8","cents":900}',
        '0:1  1970-01-01 00:00:03.000  c7  {"customer":"c7","cents":100}',
        "1:1  1970-01-01 00:00:04.000  c9  plain text",
        "0:2  1970-01-01 00:00:05.000  c7  ∅ (tombstone)",
    ]
    assert run.err == ""


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], [1000, 2000, 3000, 4000, 5000]),
        (["--from", "latest"], []),
        (["--from", "1"], [3000, 4000, 5000]),
        (["--from", "-1"], [4000, 5000]),
        (["--from", "-99"], [1000, 2000, 3000, 4000, 5000]),
        (["--from", "1970-01-01T00:00:03Z"], [3000, 4000, 5000]),
        (["--from", "1h"], []),
        (["--partition", "1"], [2000, 4000]),
        (["--partition", "1", "--partition", "0"], [1000, 2000, 3000, 4000, 5000]),
        (["--limit", "2"], [1000, 2000]),
        (["--key", "c7"], [1000, 3000, 5000]),
        (["--key", "c7", "--limit", "2"], [1000, 3000]),
        (["--grep", "pl?ain|9.0"], [2000, 4000]),
        (["--where", '.customer == "c7" and .cents > 500'], [1000]),
        (["--where", ".cents"], [1000, 2000, 3000]),
        (["--where", "not .cents"], []),
        (["--committed"], [1000, 2000, 3000, 4000, 5000]),
        (["--follow", "--from", "earliest", "--limit", "5"], [1000, 2000, 3000, 4000, 5000]),
    ],
)
def test_what_is_chosen(headrace, options, expected):
    assert stamps(headrace, *options) == expected


def test_an_empty_topic_ends_at_once(headrace):
    assert headrace("tail", "empty", "--no-follow").out == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ordrs"], ["topic 'ordrs' does not exist"]),
        (["orders", "--partition", "5"], ["no partition 5: it has partitions 0 to 1"]),
        (["empty", "--partition", "1"], ["it has only partition 0"]),
        (["orders", "--from", "77"], ["offset 77 is out of range: orders-0 holds offsets 0 to 2"]),
        (["empty", "--from", "77"], ["offset 77 is out of range: empty-0 holds nothing; its next offset is 0"]),
    ],
)
def test_what_is_not_there(headrace, arguments, words):
    assert_one_sentence(headrace("tail", *arguments), *words)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--grep", "(["], ["--grep", "'([' is not a valid regular expression"]),
        (["--where", ".cents = 5"], ["--where", "write == to compare\n  .cents = 5\n         ^"]),
        (["--from", "yesterday"], ["'yesterday' is not a place to start"]),
        (["--limit", "0"], ["--limit"]),
        (["--partition", "x"], ["--partition"]),
        (["--nonsense"], ["--nonsense"]),
    ],
)
def test_wrong_calls(headrace, options, words):
    assert_wrong_call(headrace("tail", "orders", *options), *words)


def test_asking_creates_no_topic(headrace):
    headrace("tail", "ordrs")
    assert [topic["topic"] for topic in headrace("topic", "list", "--json").json] == ["empty", "orders"]


def follow(broker, topic, *options, **streams):
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    return subprocess.Popen([*COMMAND, "tail", topic, *options, "--bootstrap", broker.bootstrap_servers], **streams)


def test_ctrl_c_ends_quietly(broker, headrace):
    headrace("topic", "create", "interrupted")
    headrace("produce", "interrupted", "first")
    with follow(broker, "interrupted", "--from", "earliest") as process:
        assert process.stdout.readline().endswith(b"first\n")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    headrace("topic", "delete", "interrupted", "--yes")
    assert (process.returncode, out, err) == (0, b"", b"")


def test_a_reader_that_has_seen_enough_ends_it_though_nothing_more_comes(broker):
    with follow(broker, "orders", "--from", "earliest") as process:
        process.stdout.readline()
        process.stdout.close()
        began = time.monotonic()
        err = process.stderr.read()
        assert process.wait(30) == 0
    assert err == b""
    assert time.monotonic() - began < 15


def test_a_broken_pipe_while_writing_ends_quietly(broker, headrace):
    headrace("topic", "create", "long")
    headrace("produce", "long", stdin="".join(f"{number:0>100}\n" for number in range(20_000)))
    with follow(broker, "long", "--no-follow") as process:
        process.stdout.readline()
        process.stdout.close()
        err = process.stderr.read()
        assert process.wait(30) == 0
    headrace("topic", "delete", "long", "--yes")
    assert err == b""


def test_records_come_as_they_are_written(broker, headrace):
    headrace("topic", "create", "live")
    with follow(broker, "live", "--from", "earliest", "--json", "--limit", "3") as process:
        for number in range(3):
            headrace("produce", "live", f"v{number}")
            assert json.loads(process.stdout.readline())["value"] == f"v{number}"
        assert process.wait(30) == 0
    headrace("topic", "delete", "live", "--yes")


def test_a_restarted_broker_is_followed_on(tmp_path):
    port = free_port()
    with Broker(tmp_path / "data", listen=f"127.0.0.1:{port}") as broker:
        run_cli("topic", "create", "t", bootstrap=broker.bootstrap_servers)
        run_cli("produce", "t", "before", bootstrap=broker.bootstrap_servers)
        process = follow(broker, "t", "--from", "earliest", "--json", "--limit", "2")
        assert json.loads(process.stdout.readline())["value"] == "before"
    with process, Broker(tmp_path / "data", listen=f"127.0.0.1:{port}") as broker:
        run_cli("produce", "t", "after", bootstrap=broker.bootstrap_servers)
        assert json.loads(process.stdout.readline())["value"] == "after"
        assert process.wait(30) == 0


def test_a_terminal_gets_colours_and_a_hint(broker):
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "40"}
    environment.pop("NO_COLOR", None)
    options = ["--from", "earliest", "--limit", "5"]
    with follow(broker, "orders", *options, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        while select.select([ours], [], [], 30)[0]:
            try:
                shown += os.read(ours, 65536)
            except OSError:  # the other end is closed: all is read
                break
        assert process.wait(30) == 0
    os.close(ours)
    text = shown.decode()
    assert "following orders; Ctrl-C ends" in text
    assert "\x1b[36m0:0\x1b[0m" in text
    assert "∅ (tombstone)" in text
