"""`headrace topic` against a broker: what it does, what it shows, and what it refuses without doing anything."""

import json
import os
import pty
import subprocess
from functools import partial

import pytest

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.coordinators import Coordinators
from headrace.client.groups import alter_offsets
from headrace.model import TopicPartition
from headrace.pipelines.jobs.progress import read
from headrace.pipelines.jobs.publish import ProgressTopic
from tests.integration.cli_runs import COMMAND, assert_one_sentence, assert_wrong_call, run_cli


@pytest.fixture(scope="module")
def broker():
    with Broker(durability="os") as broker:
        yield broker


@pytest.fixture
def headrace(broker):
    run = partial(run_cli, bootstrap=broker.bootstrap_servers)
    yield run
    for topic in run("topic", "list", "--json").json:
        run("topic", "delete", topic["topic"], "--yes")


def names(headrace):
    return [topic["topic"] for topic in headrace("topic", "list", "--json").json]


def test_create_list_describe_alter_delete(headrace):
    made = headrace("topic", "create", "orders", "--partitions", 3, "--config", "retention.ms=3600000")
    assert (made.code, made.out, made.err) == (0, "created orders with 3 partitions\n", "")
    assert [line.split() for line in headrace("topic", "list").out.splitlines()] == [
        ["topic", "partitions"],
        ["orders", "3"],
    ]
    headrace("produce", "orders", "one", "two", "--partition", 1)

    described = headrace("topic", "describe", "orders").out.splitlines()
    assert described[0].split() == ["partition", "leader", "start", "end", "records", "size"]
    assert described[2].split()[2:5] == ["0", "2", "2"]
    assert described[-1].split() == ["retention.ms", "3600000"]

    changed = headrace("topic", "alter", "orders", "--partitions", 4, "--unset", "retention.ms")
    assert changed.out == "changed orders: 4 partitions, retention.ms back to its default\n"
    described = headrace("topic", "describe", "orders").out.splitlines()
    assert described[-1] == "all settings are the defaults"

    assert headrace("topic", "delete", "orders", "--yes").out == "deleted orders\n"
    assert headrace("topic", "list").out == "no topics yet: make one with headrace topic create NAME\n"


def test_who_uses_a_topic_is_named_before_it_is_deleted(headrace, broker, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "headrace.toml").write_text(
        '[sync.cache]\ntopic = "orders"\nsink = "sqlite"\npath = "x.sqlite"\ntable = "t"\n'
    )
    headrace("topic", "create", "orders")
    headrace("topic", "create", "unused")
    with Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
        for group in ("shop", "headrace-sync.index"):
            alter_offsets(Coordinators(cluster), group, {TopicPartition("orders", 0): 0})
        offsets = json.dumps({"orders": {"0": 1}})
        report = {"batchId": 0, "timestamp": "2026-01-01T00:00:00Z", "sources": [{"endOffset": offsets}]}
        ProgressTopic(cluster).write([read("sums", "out", ("orders",), report)])
    users = "warning: orders is used by [sync.cache] of headrace.toml, derived system index, group shop, job sums\n"
    unasked = headrace("topic", "delete", "orders")
    assert (unasked.code, "orders" in names(headrace)) == (2, True)
    assert unasked.err.startswith(users)
    deleted = headrace("topic", "delete", "orders", "unused", "--yes")
    assert (deleted.code, deleted.out, deleted.err) == (0, "deleted orders, unused\n", users)


def test_json(headrace):
    made = headrace("topic", "create", "orders", "--config", "cleanup.policy=compact", "--json")
    assert made.json == {"topic": "orders", "partitions": 1, "configs": {"cleanup.policy": "compact"}}
    assert headrace("topic", "list", "--json").json == [
        {"topic": "orders", "partitions": 1, "replication_factor": 1, "internal": False}
    ]
    headrace("produce", "orders", "v", "--key", "k")
    described = headrace("topic", "describe", "orders", "--json").json
    assert described["configs"] == {"cleanup.policy": "compact"}
    assert described["records"] == 1
    assert len(described["id"]) == 22
    (partition,) = described["partitions"]
    assert (partition["start_offset"], partition["end_offset"], partition["records"]) == (0, 1, 1)
    assert partition["size_bytes"] == described["size_bytes"] > 60
    altered = headrace("topic", "alter", "orders", "--partitions", 2, "--config", "segment.bytes=2097152", "--json")
    assert altered.json["configs"] == {"segment.bytes": "2097152"}
    assert headrace("topic", "delete", "orders", "--yes", "--json").json == {"deleted": ["orders"]}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["create", "orders"], ["orders", "exists"]),
        (["create", "bad name"], ["'bad name'", "letters"]),
        (["create", "other", "--config", "nonsense=1"], ["nonsense"]),
        (["create", "other", "--config", "retention.ms=soon"], ["retention.ms"]),
        (["describe", "ordrs"], ["topic 'ordrs' does not exist", "did you mean 'orders'?"]),
        (["describe", "xyz"], ["topic 'xyz' does not exist", "check the name, or create it first"]),
        (["delete", "orders", "ordrs", "--yes"], ["topic 'ordrs' does not exist"]),
        (["alter", "ordrs", "--partitions", "5"], ["topic 'ordrs' does not exist"]),
        (["alter", "orders", "--partitions", "1"], ["orders"]),
        (["alter", "orders", "--partitions", "5", "--config", "nonsense=1"], ["nonsense"]),
        (["alter", "orders", "--config", "retention.ms=5", "--partitions", "1"], ["partitions"]),
    ],
)
def test_what_the_broker_refuses_changes_nothing(headrace, arguments, words):
    headrace("topic", "create", "orders", "--partitions", 2)
    before = headrace("topic", "describe", "orders", "--json").json
    assert_one_sentence(headrace("topic", *arguments), *words)
    assert headrace("topic", "describe", "orders", "--json").json == before
    assert names(headrace) == ["orders"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["create"], ["Missing argument"]),
        (["create", "other", "--partitions", "0"], ["--partitions"]),
        (["create", "other", "--partitions", "many"], ["--partitions"]),
        (["create", "other", "--config", "retention.ms"], ["'retention.ms' is not NAME=VALUE"]),
        (["create", "other", "--nonsense"], ["--nonsense"]),
        (["delete", "orders"], ["to delete orders, give --yes"]),
        (["alter", "orders"], ["nothing to change"]),
        (["alter", "orders", "--config", "a=1", "--unset", "a"], ["both --config and --unset"]),
        (["explain", "orders"], ["explain"]),
    ],
)
def test_wrong_calls_change_nothing(headrace, arguments, words):
    headrace("topic", "create", "orders")
    assert_wrong_call(headrace("topic", *arguments), *words)
    assert names(headrace) == ["orders"]


@pytest.mark.parametrize(("answer", "left"), [(b"n\n", ["orders"]), (b"y\n", [])])
def test_delete_asks_on_a_terminal(headrace, broker, answer, left):
    headrace("topic", "create", "orders")
    ours, theirs = pty.openpty()
    command = [*COMMAND, "topic", "delete", "orders", "--bootstrap", broker.bootstrap_servers]
    with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        os.write(ours, answer)
        _, err = process.communicate(timeout=30)
    os.close(ours)
    os.close(theirs)
    assert b"delete orders with all records?" in err
    assert process.returncode == (0 if not left else 130)
    assert names(headrace) == left


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "list"],
        ["topic", "create", "t"],
        ["topic", "describe", "t"],
        ["topic", "delete", "t", "--yes"],
        ["topic", "alter", "t", "--partitions", "3"],
        ["produce", "t", "v"],
        ["tail", "t"],
    ],
)
def test_nobody_listens(arguments):
    # Port 1 belongs to a service that nobody runs any more.
    run = run_cli(*arguments, bootstrap="127.0.0.1:1,[::1]:1")
    assert_one_sentence(run, "cannot reach a broker at 127.0.0.1:1, [::1]:1", "start one there")


def test_an_address_that_is_none():
    assert_wrong_call(run_cli("topic", "list", bootstrap="host:port"), "'host:port' is not HOST:PORT")


def test_the_environment_names_the_broker(broker, monkeypatch):
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", f"127.0.0.1:1,{broker.bootstrap_servers}")
    assert run_cli("topic", "list", "--json").json == []
