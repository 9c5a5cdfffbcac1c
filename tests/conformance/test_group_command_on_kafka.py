"""`headrace group` on a real Kafka: the same as on our broker."""

import time
import uuid
from functools import partial
from types import SimpleNamespace

import pytest

from tests.integration.cli_runs import assert_one_sentence, run_cli
from tests.integration.test_cli_group import (
    BASE_MS,
    check_a_share_group,
    commit,
    committed,
    first_read,
    member,
    produce,
)

pytestmark = pytest.mark.java


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_look_move_delete(real_kafka, protocol):
    kafka = SimpleNamespace(bootstrap_servers=real_kafka)
    headrace = partial(run_cli, bootstrap=real_kafka)
    name = f"group-{uuid.uuid4().hex[:8]}"
    headrace("topic", "create", name, "--partitions", 2, "--config", "retention.ms=-1")
    produce(headrace, name, [(partition, BASE_MS + 1000 * n) for n in range(10) for partition in (0, 1)])
    commit(kafka, {0: 4, 1: 10}, group=name, topic=name)

    with member(kafka, topic=name, group=name, group_protocol=protocol):
        described = headrace("group", "describe", name, "--json").json
        refused = headrace("group", "reset", name, "--all-topics", "--to", "earliest", "--yes")
        assert_one_sentence(refused, f"group '{name}' has 1 member ({name}-client at 127.0.0.1)")
        assert_one_sentence(headrace("group", "delete", name, "--yes"), f"group '{name}' has 1 member")
    assert (described["type"], described["state"]) == (protocol, "Stable")
    (found,) = described["members"]
    assert found["partitions"] == [{"topic": name, "partition": 0}, {"topic": name, "partition": 1}]
    behind, done = described["partitions"]
    assert (behind["lag_records"], behind["next_timestamp_ms"]) == (6, BASE_MS + 4000)
    assert behind["lag_seconds"] == pytest.approx(time.time() - (BASE_MS + 4000) / 1000, abs=60)
    assert behind["lag_bytes_estimated"] == behind["size_bytes"] * 6 // 10 > 0
    assert (done["lag_records"], done["lag_seconds"]) == (0, 0)
    assert described["warnings"] == []

    assert headrace("group", "reset", name, "--topic", f"{name}:0", "--to", "-3", "--yes").code == 0
    assert committed(headrace, name) == {0: 1, 1: 10}
    assert headrace("group", "reset", name, "--all-topics", "--to", "2023-11-14T22:13:22.500Z", "--yes").code == 0
    assert first_read(kafka, topic=name, group=name) == {0: 3, 1: 3}

    listed = {group["group"]: group for group in headrace("group", "list", "--state", "empty", "--json").json}
    assert listed[name]["state"] == "Empty"
    assert headrace("group", "delete", name, "--yes").out == f"deleted {name}\n"
    assert_one_sentence(headrace("group", "describe", name), f"group '{name}' does not exist")
    headrace("topic", "delete", name, "--yes")


def test_a_share_group(real_kafka):
    kafka = SimpleNamespace(bootstrap_servers=real_kafka)
    headrace = partial(run_cli, bootstrap=real_kafka)
    name = f"share-{uuid.uuid4().hex[:8]}"
    headrace("topic", "create", name, "--partitions", 2, "--config", "retention.ms=-1")
    produce(headrace, name, [(partition, BASE_MS + 1000 * n) for n in range(10) for partition in (0, 1)])
    check_a_share_group(headrace, kafka, name, name)
    headrace("topic", "delete", name, "--yes")
