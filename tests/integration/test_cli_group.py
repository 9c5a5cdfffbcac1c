"""`headrace group` against a broker and real consumers: what it shows, what it does, and what it refuses."""

import contextlib
import json
import os
import pty
import re
import subprocess
import time
from functools import partial

import pytest
from confluent_kafka import AcknowledgeType, Consumer, ShareConsumer, TopicPartition
from confluent_kafka.admin import AdminClient

from headrace import Broker
from tests.conformance.clients.sharing import set_group
from tests.conformance.clients.wire import Wire
from tests.integration.cli_runs import COMMAND, assert_one_sentence, assert_wrong_call, run_cli
from tests.integration.test_cli_completion import complete

HOUR_MS = 3_600_000
BASE_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def broker():
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with Broker(durability="os", settings=settings) as broker:
        yield broker


@pytest.fixture
def headrace(broker):
    run = partial(run_cli, bootstrap=broker.bootstrap_servers)
    yield run
    for group in run("group", "list", "--json").json:
        assert run("group", "delete", group["group"], "--yes").code == 0
    for topic in run("topic", "list", "--json").json:
        run("topic", "delete", topic["topic"], "--yes")


@pytest.fixture
def orders(headrace):
    """Two partitions of ten records, a second apart."""
    headrace("topic", "create", "orders", "--partitions", 2, "--config", "retention.ms=-1")
    produce(headrace, "orders", [(partition, BASE_MS + 1000 * n) for n in range(10) for partition in (0, 1)])
    return "orders"


def produce(headrace, topic, records):
    lines = [
        json.dumps({"value": f"{partition}:{stamp}", "partition": partition, "timestamp": stamp})
        for partition, stamp in records
    ]
    assert headrace("produce", topic, "--json-lines", stdin="\n".join(lines)).code == 0


def consumer(broker, group="billing", **settings):
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "client.id": f"{group}-client",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


def commit(broker, offsets, group="billing", topic="orders"):
    """Commit as a consumer that assigns itself its partitions."""
    reader = consumer(broker, group)
    reader.commit(offsets=[TopicPartition(topic, *place) for place in offsets.items()], asynchronous=False)
    reader.close()


@contextlib.contextmanager
def member(broker, topic="orders", group="billing", **settings):
    """A member that has got its partitions."""
    reader = consumer(broker, group, **settings)
    reader.subscribe([topic])
    deadline = time.monotonic() + 30
    while not reader.assignment():
        assert time.monotonic() < deadline
        reader.poll(0.1)
    try:
        yield reader
    finally:
        reader.close()


@contextlib.contextmanager
def sharing_member(broker, topic="orders", group="workers", count=20):
    """A member of a share group that has finished everything in the topic."""
    with Wire(broker.bootstrap_servers) as wire:
        set_group(wire, group, share_auto_offset_reset="earliest")
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "client.id": f"{group}-client"}
    reader = ShareConsumer({**settings, "share.acknowledgement.mode": "explicit"})
    reader.subscribe([topic])
    finished = set()
    deadline = time.monotonic() + 60
    try:
        while len(finished) < count:
            assert time.monotonic() < deadline
            messages = reader.poll(1.0)
            for message in messages:
                reader.acknowledge(message, AcknowledgeType.ACCEPT)
                finished.add((message.partition(), message.offset()))
            if messages:
                reader.commit_sync()
        yield reader
    finally:
        reader.close()


def first_read(broker, topic="orders", group="billing"):
    """The first offset that a new member reads of each partition, up to what is there."""
    first = {}
    reader = consumer(broker, group, enable_partition_eof=True)
    reader.subscribe([topic])
    ended = set()
    deadline = time.monotonic() + 30
    while len(ended) < 2 and time.monotonic() < deadline:
        message = reader.poll(1)
        if message is None:
            continue
        first.setdefault(message.partition(), message.offset())
        if message.error():
            ended.add(message.partition())
    reader.close()
    return first


def committed(headrace, group="billing"):
    described = headrace("group", "describe", group, "--json").json
    return {found["partition"]: found["committed_offset"] for found in described["partitions"]}


# --- looking


def test_list(headrace, broker, orders):
    assert headrace("group", "list").out == "no groups yet\n"
    assert headrace("group", "list", "--json").json == []
    commit(broker, {0: 3}, group="idle")
    with member(broker, group="busy"):
        assert headrace("group", "list", "--json").json == [
            {"group": "busy", "state": "Stable", "type": "classic", "protocol_type": "consumer", "owner": None},
            {"group": "idle", "state": "Empty", "type": "classic", "protocol_type": "", "owner": None},
        ]
        lines = [line.split() for line in headrace("group", "list", "--state", "stable").out.splitlines()]
        assert lines == [["group", "state", "protocol"], ["busy", "Stable", "classic"]]
        assert headrace("group", "list", "--state", "Dead").out == "no groups in state Dead\n"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_describe_members_and_lag(headrace, broker, orders, protocol):
    commit(broker, {0: 4, 1: 10})
    with member(broker, group_protocol=protocol) as reader:
        described = headrace("group", "describe", "billing", "--json").json
        text = headrace("group", "describe", "billing").out
        member_id = reader.memberid()
    assert (described["group"], described["type"], described["state"]) == ("billing", protocol, "Stable")
    assert described["assignor"] == ("range" if protocol == "classic" else "uniform")
    assert f"127.0.0.1:{described['coordinator']['port']}" == broker.bootstrap_servers
    assert described["members"] == [
        {
            "member_id": member_id,
            "instance_id": None,
            "client_id": "billing-client",
            "host": "127.0.0.1",
            "partitions": [{"topic": "orders", "partition": 0}, {"topic": "orders", "partition": 1}],
        }
    ]
    behind, done = described["partitions"]
    assert (behind["committed_offset"], behind["start_offset"], behind["end_offset"]) == (4, 0, 10)
    assert (behind["lag_records"], behind["removed_records"]) == (6, 0)
    assert behind["lag_seconds"] == pytest.approx(time.time() - (BASE_MS + 4000) / 1000, abs=60)
    assert behind["lag_bytes_estimated"] == behind["size_bytes"] * 6 // 10 > 0
    assert behind["next_timestamp_ms"] == BASE_MS + 4000
    assert behind["member_id"] == member_id
    assert (done["lag_records"], done["lag_bytes_estimated"], done["lag_seconds"]) == (0, 0, 0)
    assert (described["lag_records"], described["lag_seconds"], described["warnings"]) == (6, behind["lag_seconds"], [])

    lines = [line.split() for line in text.splitlines()]
    assert ["state", "Stable"] in lines
    assert ["billing-client", "127.0.0.1", "orders:0,1", member_id] in lines
    assert lines[-3][:6] == ["topic", "partition", "committed", "start", "end", "lag"]
    assert lines[-2][:6] == ["orders", "0", "4", "0", "10", "6"]
    assert lines[-2][-1] == "billing-client"
    assert lines[-1][:6] == ["orders", "1", "10", "0", "10", "0"]


def check_a_share_group(headrace, broker, topic, group):
    """A share group of two partitions of ten records is listed, described, moved and deleted as any group is."""
    with sharing_member(broker, topic, group):
        listed = {found["group"]: found for found in headrace("group", "list", "--json").json}
        described = headrace("group", "describe", group, "--json").json
        text = headrace("group", "describe", group).out
        refused = headrace("group", "reset", group, "--all-topics", "--to", "earliest", "--yes")
        assert_one_sentence(refused, f"group '{group}' has 1 member ({group}-client at 127.0.0.1)")
        assert_one_sentence(headrace("group", "delete", group, "--yes"), f"group '{group}' has 1 member")
    assert (listed[group]["type"], listed[group]["state"]) == ("share", "Stable")
    assert (described["type"], described["state"], described["lag_records"]) == ("share", "Stable", 0)
    (found,) = described["members"]
    assert found["partitions"] == [{"topic": topic, "partition": 0}, {"topic": topic, "partition": 1}]
    assert "begins at" in text
    assert f"{group}-client" in text

    produce(headrace, topic, [(1, BASE_MS + 1000 * n) for n in range(10, 13)])
    described = headrace("group", "describe", group, "--json").json
    assert described["members"] == []
    lags = [(lag["lag_records"], lag["lag_seconds"] == 0) for lag in described["partitions"]]
    assert lags == [(0, True), (3, False)]

    plan = headrace("group", "reset", group, "--topic", f"{topic}:0", "--to", "6", "--dry-run", "--json").json
    begins = described["partitions"][0]["committed_offset"]
    assert plan["partitions"] == [{"topic": topic, "partition": 0, "old_offset": begins, "new_offset": 6}]
    assert headrace("group", "reset", group, "--topic", f"{topic}:0", "--to", "6", "--yes").code == 0
    moved = headrace("group", "describe", group, "--json").json["partitions"]
    assert (moved[0]["committed_offset"], moved[0]["lag_records"], moved[1]["lag_records"]) == (6, 4, 3)
    assert headrace("group", "reset", group, "--all-topics", "--to", "latest", "--yes").code == 0
    assert headrace("group", "describe", group, "--json").json["lag_records"] == 0
    assert headrace("group", "delete", group, "--yes").out == f"deleted {group}\n"
    assert_one_sentence(headrace("group", "describe", group), f"group '{group}' does not exist")
    return begins


def test_a_share_group(headrace, broker, orders):
    assert check_a_share_group(headrace, broker, orders, "workers") == 10  # Kafka moves it when it sees fit


def test_alter_and_see_it_in_describe(headrace, broker, orders):
    settings = {"headrace.order": "key", "headrace.retry.backoff.ms": "1000"}
    done = headrace("group", "alter", "ordered", *(f"{name}={value}" for name, value in settings.items()))
    assert done.code == 0
    assert done.out.startswith("changed ordered: headrace.order=key, headrace.retry.backoff.ms=1000")
    assert "no such group yet" in done.out
    with sharing_member(broker, group="ordered"):
        own = {**settings, "share.auto.offset.reset": "earliest"}
        assert headrace("group", "describe", "ordered", "--json").json["configs"] == own
        assert re.search(r"headrace\.order +key *\n", headrace("group", "describe", "ordered").out)
        done = headrace("group", "alter", "ordered", "--unset", "headrace.order", "headrace.retry.jitter=5", "--json")
        assert done.json == {
            "group": "ordered",
            "exists": True,
            "configs": {"headrace.retry.jitter": "5"},
            "unset": ["headrace.order"],
        }
        own = {**own, "headrace.retry.jitter": "5"}
        del own["headrace.order"]
        assert headrace("group", "describe", "ordered", "--json").json["configs"] == own
    for name in own:
        assert headrace("group", "alter", "ordered", "--unset", name).code == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("headrace.ordr=key", ["group 'wrong'", "'headrace.ordr'", "did you mean 'headrace.order'?"]),
        ("headrace.order=kye", ["headrace.order='kye'", "none, key, single"]),
        ("headrace.filter=)(", ["headrace.filter is invalid", "character 1"]),
        ("share.record.lock.duration.ms=1", ["group.share.min.record.lock.duration.ms=15000"]),
    ],
)
def test_a_wrong_setting_is_one_sentence_and_changes_nothing(headrace, broker, orders, change, words):
    commit(broker, {0: 1}, group="wrong")
    assert_one_sentence(headrace("group", "alter", "wrong", "headrace.retry.backoff.ms=7", change), *words)
    assert headrace("group", "describe", "wrong", "--json").json["configs"] == {}


def test_describe_without_members(headrace, broker, orders):
    commit(broker, {1: 2})
    described = headrace("group", "describe", "billing", "--json").json
    assert (described["state"], described["members"], described["assignor"]) == ("Empty", [], None)
    assert [found["partition"] for found in described["partitions"]] == [1]
    assert "no members" in headrace("group", "describe", "billing").out


def test_describe_without_commits(headrace, broker, orders):
    with member(broker):
        described = headrace("group", "describe", "billing", "--json").json
        text = headrace("group", "describe", "billing").out
    assert described["has_commits"] is False
    assert [found["lag_records"] for found in described["partitions"]] == [None, None]
    assert text.splitlines()[-1] == "no offsets are committed"


def test_behind_the_retained_log(headrace, broker, orders):
    commit(broker, {0: 3, 1: 8})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.delete_records([TopicPartition("orders", 0, 7), TopicPartition("orders", 1, 7)]).values():
        future.result(30)
    described = headrace("group", "describe", "billing", "--json").json
    lost, safe = described["partitions"]
    assert (lost["removed_records"], lost["start_offset"], lost["lag_records"]) == (4, 7, 7)
    assert (safe["removed_records"], safe["lag_records"]) == (0, 2)
    (warning,) = described["warnings"]
    assert (warning["kind"], warning["topic"], warning["partition"]) == ("removed", "orders", 0)
    last = headrace("group", "describe", "billing").out.splitlines()[-1]
    assert last.startswith("warning: orders-0: 4 records were removed before they were read: the log starts at 7")


def test_about_to_lose_records(headrace, broker):
    headrace("topic", "create", "orders", "--partitions", 2, "--config", f"retention.ms={10 * HOUR_MS}")
    now_ms = int(time.time() * 1000)
    produce(headrace, "orders", [(0, now_ms - 10 * HOUR_MS + 1_800_000), (1, now_ms - HOUR_MS), (0, now_ms)])
    commit(broker, {0: 0, 1: 0})
    described = headrace("group", "describe", "billing", "--json").json
    near, far = (found["loss"] for found in described["partitions"])
    assert near["is_near"]
    assert near["setting"] == "retention.ms"
    assert 1_000 < near["seconds_left"] <= 1_800
    assert not far["is_near"]
    assert 8 * 3600 < far["seconds_left"] <= 9 * 3600
    (warning,) = described["warnings"]
    assert (warning["kind"], warning["partition"]) == ("near_loss", 0)
    assert "in about 29 min" in headrace("group", "describe", "billing").out
    commit(broker, {0: 2})
    assert headrace("group", "describe", "billing", "--json").json["warnings"] == []


def test_warnings_have_colours_on_a_terminal(headrace, broker, orders):
    commit(broker, {0: 30})
    ours, theirs = pty.openpty()
    command = [*COMMAND, "group", "describe", "billing", "--bootstrap", broker.bootstrap_servers]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "200"}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, env=environment) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):
            while chunk := os.read(ours, 65536):
                shown += chunk
    os.close(ours)
    assert process.returncode == 0
    assert b"\x1b[1;31mwarning: orders-0: offset 30 is past the end of the log, 10" in shown


# --- moving


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--all-topics", "--to", "earliest"], {0: 0, 1: 0}),
        (["--all-topics", "--to", "latest"], {0: 10, 1: 10}),
        (["--all-topics", "--to", "7"], {0: 7, 1: 7}),
        (["--all-topics", "--to", "-3"], {0: 1, 1: 3}),
        (["--all-topics", "--to", "-5"], {0: 0, 1: 1}),
        (["--all-topics", "--to", "+5"], {0: 9, 1: 10}),
        (["--all-topics", "--to", "2023-11-14T22:13:22.500Z"], {0: 3, 1: 3}),
        (["--all-topics", "--to", "1m"], {0: 10, 1: 10}),
        (["--topic", "orders", "--to", "2"], {0: 2, 1: 2}),
        (["--topic", "orders:1", "--to", "2"], {0: 4, 1: 2}),
        (["--topic", "orders:1", "--topic", "orders:0", "--to", "2"], {0: 2, 1: 2}),
    ],
)
def test_reset_and_read_from_there(headrace, broker, orders, options, expected):
    commit(broker, {0: 4, 1: 6})
    done = headrace("group", "reset", "billing", *options, "--yes", "--json")
    assert done.code == 0, done
    moved = {found["partition"]: (found["old_offset"], found["new_offset"]) for found in done.json["partitions"]}
    assert moved == {partition: ({0: 4, 1: 6}[partition], expected[partition]) for partition in moved}
    assert committed(headrace) == expected
    assert first_read(broker) == expected


def test_reset_shows_what_it_does(headrace, broker, orders):
    commit(broker, {0: 4})
    tried = headrace("group", "reset", "billing", "--topic", "orders", "--to", "earliest", "--dry-run")
    assert tried.code == 0
    assert [line.split() for line in tried.out.splitlines()] == [
        ["topic", "partition", "old", "new"],
        ["orders", "0", "4", "→", "0"],
        ["orders", "1", "–", "→", "0"],
        [],
        ["a", "dry", "run:", "nothing", "was", "changed"],
    ]
    assert committed(headrace) == {0: 4}
    done = headrace("group", "reset", "billing", "--topic", "orders", "--to", "earliest", "--yes")
    assert done.out.splitlines()[-1] == "reset billing"
    assert committed(headrace) == {0: 0, 1: 0}


def test_reset_of_a_group_of_the_new_protocol(headrace, broker, orders):
    with member(broker, group_protocol="consumer") as reader:
        reader.commit(offsets=[TopicPartition("orders", 0, 5), TopicPartition("orders", 1, 5)], asynchronous=False)
    assert headrace("group", "reset", "billing", "--all-topics", "--to", "2", "--yes").code == 0
    assert committed(headrace) == {0: 2, 1: 2}
    assert first_read(broker) == {0: 2, 1: 2}


def on_a_terminal(broker, arguments, answer):
    ours, theirs = pty.openpty()
    command = [*COMMAND, *arguments, "--bootstrap", broker.bootstrap_servers]
    with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        os.write(ours, answer)
        _, err = process.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)
    return process.returncode, err


@pytest.mark.parametrize(("answer", "code", "left"), [(b"n\n", 130, 4), (b"y\n", 0, 0)])
def test_reset_asks_on_a_terminal(headrace, broker, orders, answer, code, left):
    commit(broker, {0: 4})
    done, err = on_a_terminal(broker, ["group", "reset", "billing", "--all-topics", "--to", "earliest"], answer)
    assert b"reset billing?" in err
    assert done == code
    assert committed(headrace) == {0: left}


# --- taking away


def test_delete(headrace, broker, orders):
    for group in ("billing", "other", "third"):
        commit(broker, {0: 4}, group=group)
    assert headrace("group", "delete", "billing", "other", "billing", "--yes").out == "deleted billing, other\n"
    assert [group["group"] for group in headrace("group", "list", "--json").json] == ["third"]
    assert headrace("group", "delete", "third", "--yes", "--json").json == {"deleted": ["third"]}
    assert first_read(broker) == {0: 0, 1: 0}


@pytest.mark.parametrize(("answer", "code", "left"), [(b"n\n", 130, ["billing"]), (b"y\n", 0, [])])
def test_delete_asks_on_a_terminal(headrace, broker, orders, answer, code, left):
    commit(broker, {0: 4})
    done, err = on_a_terminal(broker, ["group", "delete", "billing"], answer)
    assert b"delete billing with all committed offsets?" in err
    assert done == code
    assert [group["group"] for group in headrace("group", "list", "--json").json] == left


# --- refusing

RESET = ["reset", "billing", "--yes"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["describe", "biling"], ["group 'biling' does not exist", "check the name"]),
        (["reset", "biling", "--yes", "--all-topics", "--to", "0"], ["group 'biling' does not exist"]),
        (["delete", "billing", "biling", "--yes"], ["group 'biling' does not exist"]),
        ([*RESET, "--topic", "ordrs", "--to", "earliest"], ["topic 'ordrs' does not exist"]),
        ([*RESET, "--topic", "orders:0,9", "--to", "earliest"], ["topic 'orders' has no partition 9"]),
        ([*RESET, "--topic", "orders", "--to", "11"], ["offset 11 is out of range", "holds offsets 0 to 9"]),
        ([*RESET, "--topic", "orders", "--to", "-1"], ["no committed offset for orders-1"]),
    ],
)
def test_refusals_change_nothing(headrace, broker, orders, arguments, words):
    commit(broker, {0: 4})
    assert_one_sentence(headrace("group", *arguments), *words)
    assert [group["group"] for group in headrace("group", "list", "--json").json] == ["billing"]
    assert committed(headrace) == {0: 4}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize(
    "arguments", [[*RESET, "--all-topics", "--to", "earliest"], ["delete", "other", "billing", "--yes"]]
)
def test_a_group_with_members_is_left_alone(headrace, broker, orders, arguments, protocol):
    commit(broker, {0: 4}, group="other")
    commit(broker, {0: 4, 1: 4})
    with member(broker, group_protocol=protocol):
        run = headrace("group", *arguments)
        assert_one_sentence(run, "group 'billing' has 1 member (billing-client at 127.0.0.1)", "stop them first")
        assert committed(headrace) == {0: 4, 1: 4}
        assert [group["group"] for group in headrace("group", "list", "--json").json] == ["billing", "other"]


def test_nothing_to_reset(headrace, broker, orders):
    with member(broker, group_protocol="consumer"):
        pass  # the group stays, and has never committed
    run = headrace("group", *RESET, "--all-topics", "--to", "earliest")
    assert_one_sentence(run, "group 'billing' has no committed offsets")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["describe"], ["Missing argument 'GROUP'"]),
        (["list", "--state", "happy"], ["--state"]),
        ([*RESET, "--to", "earliest"], ["give either --topic or --all-topics"]),
        ([*RESET, "--all-topics", "--topic", "orders", "--to", "earliest"], ["give either --topic or --all-topics"]),
        ([*RESET, "--all-topics"], ["--to"]),
        ([*RESET, "--all-topics", "--to", "soon"], ["'soon' is not a place to continue from"]),
        ([*RESET, "--topic", "orders:x", "--to", "0"], ["'orders:x' is not TOPIC"]),
        (["reset", "billing", "--all-topics", "--to", "0"], ["to reset billing, give --yes"]),
        (["alter", "billing"], ["nothing to change"]),
        (["alter", "billing", "headrace.order"], ["'headrace.order' is not NAME=VALUE"]),
        (["alter", "billing", "--unset", "headrace.odrer"], ["did you mean 'headrace.order'?"]),
        (["alter", "billing", "headrace.order=key", "--unset", "headrace.order"], ["both given a value and unset"]),
        (["delete", "billing"], ["to delete billing, give --yes"]),
        (["delete"], ["Missing argument"]),
    ],
)
def test_wrong_calls_change_nothing(headrace, broker, orders, arguments, words):
    commit(broker, {0: 4})
    assert_wrong_call(headrace("group", *arguments), *words)
    assert committed(headrace) == {0: 4}


@pytest.mark.parametrize(
    "arguments",
    [["list"], ["describe", "g"], ["reset", "g", "--all-topics", "--to", "0", "--yes"], ["delete", "g", "--yes"]],
)
def test_nobody_listens(arguments):
    run = run_cli("group", *arguments, bootstrap="127.0.0.1:1")
    assert_one_sentence(run, "cannot reach a broker at 127.0.0.1:1")


def test_groups_come_from_the_broker_when_completed(headrace, broker, orders, monkeypatch):
    for group in ("billing", "billing-late", "mail"):
        commit(broker, {0: 4}, group=group)
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", broker.bootstrap_servers)
    for command in ("describe", "reset", "delete"):
        assert complete(f"headrace group {command} bil") == ["billing", "billing-late"]
    assert complete("headrace group reset billing --topic or") == ["orders"]
    assert set(complete("headrace group ")) == {"list", "describe", "alter", "reset", "delete"}
