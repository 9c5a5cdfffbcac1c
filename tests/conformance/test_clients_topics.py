"""Topics and their settings through each client's own admin calls, on both brokers."""

from __future__ import annotations

import pytest

from tests.conformance.clients.aio import Aio
from tests.conformance.clients.confluent import Confluent
from tests.conformance.clients.python import Python
from tests.conformance.comparison import wait_until

pytestmark = pytest.mark.java

_EVERY_CLIENT = pytest.mark.parametrize("client", [Confluent, Aio, Python])


def topic_life(client, topic):
    """Created, listed, described, grown, deleted; and each step's refusals."""
    told = {
        "created": client.create(topic, 2),
        "again": client.create(topic, 2),
        "with settings": client.create(f"{topic}-set", 1, {"retention.ms": "1000"}),
        "bad name": client.create("no spaces"),
        "replicas": client.create(f"{topic}-r", replicas=3),
        "unknown setting": client.create(f"{topic}-c", 1, {"no.such.setting": "1"}),
        "bad setting": client.create(f"{topic}-c", 1, {"retention.ms": "soon"}),
        "checked": client.create(f"{topic}-checked", 1, validate_only=True),
        "dotted": client.create(f"{topic}.dotted"),
        "colliding": client.create(f"{topic}_dotted"),
    }
    made = {topic, f"{topic}-set", f"{topic}.dotted"}
    told["listed"] = wait_until(lambda: {name for name in client.topics() if name.startswith(topic)}, made)
    wait_until(lambda: isinstance(client.describe(topic), dict), True)
    told |= {"described": client.describe(topic), "grown": client.grow(topic, 3), "shrunk": client.grow(topic, 1)}
    wait_until(lambda: len(client.describe(topic)["partitions"]), 3)
    told |= {
        "grown, described": client.describe(topic),
        "unknown grown": client.grow(f"{topic}-none", 3),
        "deleted": client.delete(topic),
        "unknown deleted": client.delete(f"{topic}-none"),
    }
    made.discard(topic)
    told["left"] = wait_until(lambda: {name for name in client.topics() if name.startswith(topic)}, made)
    return told


@_EVERY_CLIENT
def test_topic_life(brokers, client):
    told = brokers.compare(topic_life, client)
    assert (told["created"], told["again"], told["deleted"]) == ("NONE", "TOPIC_ALREADY_EXISTS", "NONE")


def settings_told(client, topic):
    """All that a client tells of a topic's settings."""
    client.create(topic, 1, {"retention.ms": "5000", "cleanup.policy": "compact,delete"})
    wait_until(lambda: isinstance(client.configs(topic), str), False)
    return {"told": client.configs(topic), "unknown": client.configs(f"{topic}-none")}


@_EVERY_CLIENT
def test_settings_told(brokers, client):
    brokers.compare(settings_told, client)


def settings_changed(client, topic):
    """Set, deleted, appended, subtracted through a client; refused ones."""
    client.create(topic, 1, {"retention.ms": "5000"})
    wait_until(lambda: isinstance(client.configs(topic), str), False)

    def change(*changes):
        # The last change is one that everybody can wait for: Kafka applies them in order.
        answer = client.change(topic, changes)
        tick = str(next(ticks))
        assert client.change(topic, [("set", "segment.jitter.ms", tick)]) == "NONE"
        wait_until(lambda: value_of("segment.jitter.ms"), tick)
        return answer, value_of("retention.ms"), value_of("cleanup.policy")

    def value_of(name):
        return client.configs(topic)[name]["value"]

    ticks = iter(range(1, 100))
    return {
        "set": change(("set", "retention.ms", "6000")),
        "deleted": change(("delete", "retention.ms", None)),
        "appended": change(("append", "cleanup.policy", "compact")),
        "subtracted": change(("subtract", "cleanup.policy", "delete")),
        "two at once": change(("set", "retention.ms", "1"), ("set", "cleanup.policy", "delete")),
        "bad": change(("set", "retention.ms", "soon")),
        "unknown": change(("set", "no.such.setting", "1")),
        "unknown topic": client.change(f"{topic}-none", [("set", "retention.ms", "1")]),
    }


@pytest.mark.parametrize("client", [Confluent, Python])
def test_settings_changed(brokers, client):
    brokers.compare(settings_changed, client)


def cluster_told(client, topic):
    return client.cluster()


@_EVERY_CLIENT
def test_cluster_told(brokers, client):
    brokers.compare(cluster_told, client)
