"""Space that is freed once every share group has finished what takes it, and what is kept for whom."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace import Broker
from headrace.protocol.messages.delete_groups import DeleteGroupsRequest
from tests.conformance.clients.sharing import ACCEPT, RELEASE, Sharer, set_group
from tests.conformance.clients.wire import Wire
from tests.conformance.comparison import wait_until
from tests.integration.test_overflow import EARLIEST, FEW_BOOKS, LATEST, offset_of, put

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_S = 60
RECORDS = 30
SETTINGS = {"headrace.queue.delete.acknowledged": "true", "internal.segment.bytes": "30000"}  # three records


@pytest.fixture(scope="module", params=["fsync", "os"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(durability=request.param, settings=FEW_BOOKS) as broker:
        yield broker


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.bootstrap_servers) as wire:
        yield wire


def fill(wire: Wire, topic: str) -> str:
    wire.create(topic, configs=SETTINGS)
    for number in range(RECORDS):
        assert put(wire, topic, b"x" * 9000) == ("NONE", number)
    return topic


def join(wire: Wire, group: str, topic: str) -> Sharer:
    set_group(wire, group, share_auto_offset_reset="earliest")
    sharer = Sharer(wire, group, topic)
    sharer.join()
    return sharer


def take(sharer: Sharer, kind: int, count: int = RECORDS) -> None:
    """Acquire so many records, and say the same of each of them."""
    done = 0
    while done < count:
        for run in (
            sharer.fetch_some(max_records=count - done, share_acquire_mode=1)
            .responses[0]
            .partitions[0]
            .acquired_records
        ):
            told = sharer.acknowledge((run.first_offset, run.last_offset, [kind]))
            assert told.responses[0].partitions[0].error_code == 0
            done += run.last_offset - run.first_offset + 1


def bytes_on_disk(broker: Broker, topic: str) -> int:
    return sum(file.stat().st_size for file in Path(broker.data_dir).glob(f"{topic}-0/*.log"))


def wait_for_start(wire: Wire, topic: str, offset: int) -> None:
    assert wait_until(lambda: offset_of(wire, topic, EARLIEST), offset, timeout_s=PATIENCE_S) == offset


def test_what_is_accepted_by_every_group_is_freed_and_no_more(broker: Broker, wire: Wire) -> None:
    topic = fill(wire, "two-groups")
    full = bytes_on_disk(broker, topic)
    with Wire(broker.bootstrap_servers) as first, Wire(broker.bootstrap_servers) as second:
        quick, slow = join(first, "quick", topic), join(second, "slow", topic)
        take(quick, ACCEPT)
        take(slow, ACCEPT, 10)
        wait_for_start(wire, topic, 10)
        wait_until(lambda: bytes_on_disk(broker, topic) < full, True, timeout_s=PATIENCE_S)
        assert wire.fetch(topic, 10).error_code == 0
        take(slow, RELEASE, 1)
        take(slow, ACCEPT, 20)
        wait_for_start(wire, topic, RECORDS)
        assert wait_until(lambda: bytes_on_disk(broker, topic), 0, timeout_s=PATIENCE_S) == 0
    assert put(wire, topic, b"next") == ("NONE", RECORDS)


def test_a_group_that_was_deleted_holds_nothing_any_more(broker: Broker, wire: Wire) -> None:
    topic = fill(wire, "deleted-group")
    with Wire(broker.bootstrap_servers) as first, Wire(broker.bootstrap_servers) as second:
        stays, goes = join(first, "stays", topic), join(second, "goes", topic)
        take(goes, ACCEPT, 1)
        take(stays, ACCEPT)
        wait_for_start(wire, topic, 1)
        goes.beat(-1)
    (gone,) = wire.ask(DeleteGroupsRequest(groups_names=["goes"])).results
    assert gone.error_code == 0
    wait_for_start(wire, topic, RECORDS)


def test_a_group_that_comes_later_begins_with_what_is_left(broker: Broker, wire: Wire) -> None:
    topic = fill(wire, "later-group")
    assert offset_of(wire, topic, EARLIEST) == 0  # nobody has subscribed yet
    with Wire(broker.bootstrap_servers) as first, Wire(broker.bootstrap_servers) as second:
        take(join(first, "before", topic), ACCEPT, 12)
        wait_for_start(wire, topic, 12)
        late = join(second, "after", topic)
        runs = late.fetch_some().responses[0].partitions[0].acquired_records
        assert runs[0].first_offset == 12


def test_nothing_is_freed_where_nobody_asked_for_it(broker: Broker, wire: Wire) -> None:
    wire.create("kept")
    fill(wire, "asked-for")
    assert put(wire, "kept", *[b"x"] * 5) == ("NONE", 0)
    with Wire(broker.bootstrap_servers) as first, Wire(broker.bootstrap_servers) as second:
        take(join(first, "of-kept", "kept"), ACCEPT, 5)
        take(join(second, "of-asked-for", "asked-for"), ACCEPT)
        wait_for_start(wire, "asked-for", RECORDS)  # by then the other would have been freed as well
    assert (offset_of(wire, "kept", EARLIEST), offset_of(wire, "kept", LATEST)) == (0, 5)
