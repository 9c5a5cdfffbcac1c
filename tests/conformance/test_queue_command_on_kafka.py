"""`headrace queue` on a real Kafka: with what that tells, and one sentence about what it does not."""

import uuid
from functools import partial
from types import SimpleNamespace

import pytest

from tests.conformance.clients.sharing import ACCEPT
from tests.integration.cli_runs import assert_one_sentence, run_cli
from tests.integration.test_cli_queue import make_queue, only_group, peeked, values, worker

pytestmark = pytest.mark.java


def test_look_move_purge(real_kafka):
    kafka = SimpleNamespace(bootstrap_servers=real_kafka)
    headrace = partial(run_cli, bootstrap=real_kafka)
    name = make_queue(headrace, f"queue-{uuid.uuid4().hex[:8]}")
    target = f"{name}-later"
    headrace("topic", "create", target, "--partitions", 1)
    with worker(kafka, name, name) as sharer:
        sharer.acknowledge((0, 0, [ACCEPT]))  # before that Kafka keeps nothing of the group
        listed = {found["queue"]: found for found in headrace("queue", "list", "--json").json}
        assert_one_sentence(headrace("queue", "purge", name, "--yes"), f"group '{name}' has 1 member")
    (group,) = listed[name]["groups"]
    assert (group["group"], group["members"], group["depth"]) == (name, 1, 7)
    assert (group["in_flight"], group["redeliveries"], group["dead_letters"]) == (None, None, None)
    assert headrace("group", "reset", name, "--all-topics", "--to", "earliest", "--yes").code == 0
    assert peeked(headrace, name) == [(offset, None, None) for offset in range(8)]
    assert headrace("queue", "describe", name).code == 0

    # Nothing is finished out of order: all can be moved.
    assert headrace("queue", "move", name, target, "--yes").out == f"moved 8 messages from {name} to {target}\n"
    assert values(headrace, target) == [f'{{"n": {number}}}' for number in range(8)]
    assert only_group(headrace, name)["depth"] == 0
    assert f"headrace-move.{name}.{name}" not in headrace("group", "list").out

    assert headrace("group", "reset", name, "--all-topics", "--to", "earliest", "--yes").code == 0
    with worker(kafka, name, name) as sharer:
        sharer.acknowledge((3, 3, [ACCEPT]))
    refused = headrace("queue", "move", name, target, "--yes")
    assert_one_sentence(refused, "does not tell which messages", "move them with a consumer of the group")
    assert headrace("queue", "purge", name, "--yes").code == 0
    assert only_group(headrace, name)["depth"] == 0
    assert headrace("group", "delete", name, "--yes").code == 0
    headrace("topic", "delete", name, target, "--yes")
