"""Kafka's own tools for whoever runs a cluster, on both brokers: settings, features, the quorum, client metrics.

Not run: `kafka-metadata-quorum add-controller`, which reads the properties and the directory of the controller that is
to be added (`differences.py` says why); what it asks of a broker is compared in `test_wire_cluster.py`.
Lines that tell of features and settings which only one of the two has are compared by their kind; `differences.py` says
which those are.
"""

from __future__ import annotations

import json
import re

import pytest

from tests.conformance.clients.java import Java
from tests.conformance.clients.transactions import ConfluentTransactions
from tests.conformance.clients.wire import Wire
from tests.conformance.comparison import wait_until

pytestmark = pytest.mark.java


def _lines(said, *beginnings):
    """The lines that begin so, with whatever is by chance or only one side's left out."""
    return [line.strip() for line in said.lines if line.strip().startswith(beginnings)]


def quorum_tool(java, topic):
    """kafka-metadata-quorum: status, replication, and voters that cannot change."""
    status = java.quorum("describe", "--status")
    replication = java.quorum("describe", "--replication")
    names = [line.split(":")[0] for line in status.lines]
    header, *replicas = [line.split() for line in replication.lines]
    removed = java.quorum("remove-controller", "--controller-id", "9", "--controller-directory-id", "A" * 21 + "Q")
    return {
        "status": status.status,
        "facts": names,
        "leader": _lines(status, "LeaderId:"),
        "replication": header,
        "replicas": [(row[0], row[-1]) for row in replicas],
        "removed": (removed.status, removed.errors),
    }


def test_quorum_tool(brokers):
    told = brokers.compare(quorum_tool, Java)
    assert told["replicas"] == [("1", "Leader")]


def features_tool(java, topic):
    """kafka-features: what is described, and updates to the level that is there, to another, and of nothing."""
    described = java.features("describe")
    levels = re.findall(
        r"Feature: (group|transaction)\.version.*FinalizedVersionLevel: (\d+)", "\n".join(described.lines)
    )
    return {
        "described": (described.status, levels),
        "same": java.features("upgrade", "--feature", "group.version=1", "--dry-run").status,
        "beyond": java.features("upgrade", "--feature", "group.version=9", "--dry-run").status,
        "unknown": java.features("upgrade", "--feature", "no.such.feature=1", "--dry-run").status,
        "downgraded to the same": java.features("downgrade", "--feature", "group.version=1", "--dry-run").status,
        "disabled": java.features("disable", "--feature", "group.version", "--dry-run").status,
    }


def test_features_tool(brokers):
    told = brokers.compare(features_tool, Java)
    assert told["described"] == (0, [("group", "1"), ("transaction", "2")])


def cluster_tool(java, topic):
    """kafka-cluster: the id, the brokers, and one that is not there."""
    listed = java.cluster("list-endpoints")
    identity = java.cluster("cluster-id")
    return {
        "id": (identity.status, [line.split(":")[0] for line in identity.lines]),
        "endpoints": (listed.status, [line.split()[0] for line in listed.lines]),
        "unregistered": java.cluster("unregister", "--id", "9"),
    }


def test_cluster_tool(brokers):
    told = brokers.compare(cluster_tool, Java)
    assert told["id"][0] == 0


def settings_tool(java, topic):
    """kafka-configs for the broker, for groups, for client metrics and for loggers."""
    node, everybody = (
        ("--entity-type", "brokers", "--entity-name", "1"),
        ("--entity-type", "brokers", "--entity-default"),
    )
    group, subscription = (("--entity-type", each, "--entity-name", topic) for each in ("groups", "client-metrics"))
    loggers = ("--entity-type", "broker-loggers", "--entity-name", "1")
    throttle = "follower.replication.throttled.rate"

    def add(entity, setting):
        return java.configs("--alter", *entity, "--add-config", setting)

    def remove(entity, setting):
        return java.configs("--alter", *entity, "--delete-config", setting)

    def described(entity, setting):
        said = java.configs("--describe", *entity)
        return said.status, sorted(line for line in map(str.strip, said.lines) if line.startswith(setting))

    def seen(entity, setting, *, is_there):
        wait_until(lambda: bool(described(entity, setting)[1]), is_there)
        return described(entity, setting)

    return {
        "node": add(node, f"{throttle}=1000"),
        "node described": seen(node, throttle, is_there=True),
        "node removed": remove(node, throttle),
        "everybody": add(everybody, f"{throttle}=2000"),
        "everybody described": seen(everybody, throttle, is_there=True),
        "everybody removed": remove(everybody, throttle),
        "read-only": add(node, "num.partitions=5")._replace(lines=[]),
        "group": add(group, "consumer.session.timeout.ms=4000"),
        "group described": seen(group, "consumer.session", is_there=True),
        "group removed": remove(group, "consumer.session.timeout.ms"),
        "subscription": add(subscription, "interval.ms=1000,metrics=org.none,match=[client_id=none]"),
        "subscription described": seen(subscription, "interval.ms", is_there=True),
        "subscription removed": remove(subscription, "interval.ms,metrics,match"),
        "loggers described": described(loggers, "root=")[0],
        "no level": add(loggers, "root=LOUD")._replace(lines=[]),
        "no logger": add(loggers, "no.such.logger=INFO")._replace(lines=[]),
    }


def test_settings_tool(brokers, settings_of_brokers):
    told = brokers.compare(settings_tool, Java)
    assert "consumer.session.timeout.ms=4000" in told["group described"][1][0]


def quotas_tool(java, topic):
    """kafka-configs for users, clients and addresses, by their names; defaults would be other tests' as well."""
    user, client = (
        ("--entity-type", "users", "--entity-name", topic),
        ("--entity-type", "clients", "--entity-name", topic),
    )
    address = ("--entity-type", "ips", "--entity-name", "10.0.0.2")
    rates = "producer_byte_rate=1000000,request_percentage=50"

    def described(*entity):
        said = java.configs("--describe", *entity)
        values = [line.split(" are ")[-1].split(", ") for line in said.lines if " are " in line]
        return said.status, sorted(map(sorted, values)), said.errors

    def change(how, entity, settings):
        return java.configs("--alter", *entity, how, settings)

    told = {
        "user": change("--add-config", user, rates),
        "client of the user": change("--add-config", (*user, *client), "consumer_byte_rate=2000000"),
        "address": change("--add-config", address, "connection_creation_rate=100"),
        "fraction": change("--add-config", user, "producer_byte_rate=1.5")._replace(lines=[]),
        "not for an address": change("--add-config", address, "producer_byte_rate=5")._replace(lines=[]),
    }
    told["user described"] = wait_until(lambda: described(*user), (0, [sorted(_as_doubles(rates))], []))
    told |= {
        "both described": described(*user, *client),
        "address described": described(*address),
        "user removed": change("--delete-config", user, "producer_byte_rate,request_percentage"),
        "both removed": change("--delete-config", (*user, *client), "consumer_byte_rate"),
        "address removed": change("--delete-config", address, "connection_creation_rate"),
    }
    return told | {"nothing left": wait_until(lambda: described(*user), (0, [], []))}


def _as_doubles(settings):
    """Quotas as the tool prints them."""
    pairs = (each.split("=") for each in settings.split(","))
    return [f"{name}={float(value)}" for name, value in pairs]


def test_quotas_tool(brokers):
    told = brokers.compare(quotas_tool, Java)
    assert told["address described"] == (0, [["connection_creation_rate=100.0"]], [])


def client_metrics_tool(java, topic):
    """kafka-client-metrics: alter, list, describe, delete."""

    def mine():
        return [line for line in java.client_metrics("--list").lines if line == topic]

    altered = java.client_metrics(
        "--alter", "--name", topic, "--metrics", "org.none", "--interval", "1000", "--match", "client_id=none"
    )
    told = {"altered": altered, "listed": wait_until(mine, [topic])}
    told["described"] = java.client_metrics("--describe", "--name", topic)
    told["bad"] = java.client_metrics("--alter", "--name", topic, "--interval", "1")._replace(lines=[])
    told["deleted"] = java.client_metrics("--delete", "--name", topic)
    return told | {"listed after": wait_until(mine, [])}


def test_client_metrics_tool(brokers):
    told = brokers.compare(client_metrics_tool, Java)
    assert (told["listed"], told["listed after"]) == (["client_metrics_tool-java"], [])


def moving_tools(java, topic):
    """kafka-reassign-partitions with a throttle, listed and cancelled; kafka-leader-election for everything."""
    with Wire(java.servers) as wire:
        wire.create(topic)
    plan = json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [1]}]})
    moved = java.reassign(plan, "--execute", "--throttle", "1000000")
    elsewhere = plan.replace("[1]", "[9]")
    return {
        "moved": (moved.status, [line for line in moved.lines if "log_dirs" not in line]),
        "verified": java.reassign(plan, "--verify"),
        "cancelled": java.reassign(plan, "--cancel")._replace(lines=[]),
        "elsewhere": java.reassign(elsewhere, "--execute").status,
        "elected": java.elect("--election-type", "unclean", "--all-topic-partitions").status,
        "groups": java.groups("--list").status,
        "transactions": java.transactions("list").status,
    }


def test_moving_tools(brokers, settings_of_brokers):
    told = brokers.compare(moving_tools, Java)
    assert told["moved"][0] == 0


def transactions_tool(java, topic):
    """kafka-transactions: an open one listed, described, looked for among those that hang, aborted and ended."""
    with Wire(java.servers) as wire:
        wire.create(topic)

    def row(*args):
        """The last line by the names of its columns, without what is by chance; empty if there are only the names."""
        said = java.transactions(*args)
        names, *rows = [re.split(r"\s{2,}|\t", line.strip()) for line in said.lines]
        chance = (
            "ProducerId",
            "CoordinatorId",
            "CurrentTransactionStartTimeMs",
            "TransactionDurationMs",
            "LastTimestamp",
        )
        shown = (
            {name: value for name, value in zip(names, rows[-1], strict=False) if name not in chance} if rows else {}
        )
        return said.status, names, shown, said.errors

    listed = ("list", "--transactional-id-pattern", f"{topic}.*")
    producers = ("describe-producers", "--topic", topic, "--partition", "0")
    with ConfluentTransactions(java.servers, f"{topic}-x", 600_000) as open_one:
        open_one.init()
        open_one.begin()
        open_one.send(topic, b"v")
        return {
            "listed": row(*listed),
            "described": row("describe", "--transactional-id", f"{topic}-x"),
            "unknown": java.transactions("describe", "--transactional-id", f"{topic}-none")._replace(lines=[]),
            "producers": row(*producers),
            "hanging": row("find-hanging", "--topic", topic, "--partition", "0"),
            "aborted": java.transactions("abort", "--topic", topic, "--partition", "0", "--start-offset", "0").status,
            "nothing to abort": java.transactions(
                "abort", "--topic", topic, "--partition", "0", "--start-offset", "0"
            )._replace(lines=[]),
            "producers after": row(*producers),
            "ended": java.transactions("forceTerminateTransaction", "--transactionalId", f"{topic}-x")._replace(
                lines=[]
            ),
        }


def test_transactions_tool(brokers):
    told = brokers.compare(transactions_tool, Java)
    assert told["described"][2]["TransactionState"] == "Ongoing"
    assert told["aborted"] == 0


def planning_tools(java, topic):
    """What plans and explains: a reassignment, the features of a release, and what a feature needs."""
    with Wire(java.servers) as wire:
        wire.create(topic, 2)
    planned = java.plan({"version": 1, "topics": [{"topic": topic}]}, "--generate", "--broker-list", "1")
    nowhere = java.plan({"version": 1, "topics": [{"topic": topic}]}, "--generate", "--broker-list", "9")
    return {
        "planned": (planned.status, [line for line in planned.lines if "log_dirs" not in line]),
        "plans": [
            [(place["partition"], place["replicas"]) for place in json.loads(line)["partitions"]]
            for line in planned.lines
            if line.startswith("{")
        ],
        "nowhere": nowhere.status,
        "features of a release": java.features("version-mapping", "--release-version", "4.0"),
        "no release": java.features("version-mapping", "--release-version", "9.9").status,
        "what a feature needs": java.features("feature-dependencies", "--feature", "group.version=1"),
        "no feature": java.features("feature-dependencies", "--feature", "none=1").status,
    }


def test_planning_tools(brokers):
    told = brokers.compare(planning_tools, Java)
    assert told["planned"][0] == 0
    assert sorted(told["plans"][-1]) == [(0, [1]), (1, [1])]


def versions_tool(java, topic):
    """kafka-broker-api-versions: every API that the Java client knows, by name; but for what is not served."""
    said = java.api_versions()
    names = re.findall(r"^\s+(\w+)\(\d+\): (?!UNSUPPORTED)", "\n".join(said.lines), re.MULTILINE)
    return {"status": said.status, "some": sorted({"Produce", "DescribeQuorum", "UpdateFeatures"} & set(names))}


def test_versions_tool(brokers):
    told = brokers.compare(versions_tool, Java)
    assert told["some"] == ["DescribeQuorum", "Produce", "UpdateFeatures"]
