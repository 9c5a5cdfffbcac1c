"""`headrace quota`: what it sets, shows and removes, and what it refuses."""

from functools import partial

import pytest

from headrace import Broker
from headrace.protocol.messages.produce import ProduceResponse
from headrace.records import Record, build_batch
from tests.integration.cli_runs import assert_one_sentence, assert_wrong_call, run_cli
from tests.integration.wire import Wire


@pytest.fixture(scope="module")
def broker():
    with Broker(durability="os") as running:
        yield running


@pytest.fixture
def headrace(broker):
    run = partial(run_cli, bootstrap=broker.bootstrap_servers)
    yield run
    for each in run("quota", "list", "--json").json:
        parts = each["entity"].items()
        options = [word for kind, name in parts for word in ([f"--{kind}", name] if name else [f"--{kind}-default"])]
        assert run("quota", "remove", *options).code == 0


def rows(run):
    return [line.split() for line in run.out.splitlines()]


def test_quotas_are_set_listed_and_removed(headrace):
    assert headrace("quota", "list").out.startswith("no quotas: set one with headrace quota set")
    done = headrace("quota", "set", "producer_byte_rate=1000000", "request_percentage=12.5", "--user", "alice")
    assert done.out == "set for user alice: producer_byte_rate=1e+06, request_percentage=12.5\n"
    headrace("quota", "set", "consumer_byte_rate=2000", "--user", "alice", "--client-id", "reports")
    headrace("quota", "set", "controller_mutation_rate=5", "--client-id-default")
    headrace("quota", "set", "connection_creation_rate=10", "--ip-default")
    headrace("quota", "set", "connection_creation_rate=20", "--ip", "10.0.0.7")
    header, *listed = rows(headrace("quota", "list"))
    assert header == ["user", "client-id", "ip", "quota", "limit"]
    assert sorted(listed) == [
        ["(default)", "connection_creation_rate", "10"],
        ["(default)", "controller_mutation_rate", "5"],
        ["10.0.0.7", "connection_creation_rate", "20"],
        ["alice", "producer_byte_rate", "1,000,000"],
        ["alice", "reports", "consumer_byte_rate", "2,000"],
        ["alice", "request_percentage", "12.5"],
    ]
    of_alice = headrace("quota", "list", "--user", "alice", "--json").json
    assert [each["entity"] for each in of_alice] == [{"user": "alice"}, {"user": "alice", "client-id": "reports"}]
    assert headrace("quota", "list", "--ip-default", "--json").json == [
        {"entity": {"ip": None}, "quotas": {"connection_creation_rate": 10.0}}
    ]
    gone = headrace("quota", "remove", "producer_byte_rate", "--user", "alice", "--json").json
    assert gone == {"removed": {"producer_byte_rate": 1000000.0}, "entity": {"user": "alice"}}
    assert headrace("quota", "list", "--user", "alice", "--json").json[0]["quotas"] == {"request_percentage": 12.5}
    again = headrace("quota", "remove", "producer_byte_rate", "--user", "alice")
    assert_one_sentence(again, "user alice has no such quota", "headrace quota list")


def test_a_quota_that_is_set_holds(headrace, broker):
    headrace("quota", "set", "producer_byte_rate=10", "--client-id", "wire")
    batch = build_batch([Record(0, 1, None, bytes(2000))])
    with Wire(broker.bootstrap_servers) as wire:
        wire.create("limited")
        answer = wire.ask(wire.produce_request("limited", batch), ProduceResponse, 9)
    assert answer.throttle_time_ms > 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["producer_byte_rate=1"], "name whom it is about: --user"),
        (["producer_byte_rate", "--user", "a"], "has no value: write for example producer_byte_rate=1000000"),
        (["producer_byte_rate=fast", "--user", "a"], "is not NAME=NUMBER"),
        (["producer_byte_rte=1", "--user", "a"], "is unknown: did you mean 'producer_byte_rate'"),
        (["connection_creation_rate=1", "--user", "a"], "is a quota of addresses: give --ip"),
        (["producer_byte_rate=0", "--user", "a"], "must be greater than 0"),
        (["producer_byte_rate=1.5", "--user", "a"], "cannot be a fractional value"),
        (["producer_byte_rate=1", "--user", "a", "--user-default"], "give either --user or --user-default"),
        (["connection_creation_rate=1", "--ip", "some.host"], "is not an IP address"),
        (["connection_creation_rate=1", "--ip", "10.0.0.7", "--user", "a"], "an IP entity stands alone"),
    ],
)
def test_what_is_not_a_quota_is_one_sentence(headrace, arguments, sentence):
    assert_wrong_call(headrace("quota", "set", *arguments), sentence)
    assert headrace("quota", "list", "--json").json == []
