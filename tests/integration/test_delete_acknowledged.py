"""Space that is freed once every share group has finished what takes it, and what is kept for whom."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import alter_configs
from headrace.client.cluster import Cluster
from headrace.protocol.messages.delete_groups import DeleteGroupsRequest
from tests.conformance.clients.sharing import ACCEPT, RELEASE, Sharer, set_group
from tests.conformance.clients.wire import Wire
from tests.conformance.comparison import wait_until
from tests.integration.test_bindings import bind, read_until
from tests.integration.test_overflow import EARLIEST, FEW_BOOKS, LATEST, offset_of, put
from tests.integration.test_queue_delivery import Group, batch, message, now_ms

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_S = 60
RECORDS = 30
SETTINGS = {"headrace.queue.delete.acknowledged": "true", "internal.segment.bytes": "30000"}  # three records
QUEUE = {**SETTINGS, "headrace.queue": "true"}


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
    size = 0
    for file in Path(broker.data_dir).glob(f"{topic}-0/*.log"):
        with suppress(FileNotFoundError):  # it was freed since it was listed
            size += file.stat().st_size
    return size


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


# --- what followers of a log still need


def test_a_queue_is_freed_and_what_waits_comes_once_though_the_broker_is_killed(tmp_path: Path) -> None:
    topic = "freed-queue"
    with Broker(tmp_path, own_process=True, settings=FEW_BOOKS) as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create(topic, configs=QUEUE)
        group = Group(wire, topic, topic)
        late = message(b"late", deliver_at=str(now_ms() + 2000))
        assert not wire.produce(topic, batch(late, message(b"now"))).error_code
        group.take_until(b"now")
        wait_for_start(wire, topic, 2)  # of the message that waits, too: it is in the schedule
        os.kill(broker.pid, signal.SIGKILL)
    with Broker(tmp_path, settings=FEW_BOOKS) as broker, Wire(broker.bootstrap_servers) as wire:
        group = Group(wire, topic, topic)
        group.take_until(b"late")
        wait_for_start(wire, topic, 3)
    with Broker(tmp_path, settings=FEW_BOOKS) as broker, Wire(broker.bootstrap_servers) as wire:
        group = Group(wire, topic, topic)
        wire.produce(topic, batch(message(b"end")))
        assert [record.value for record in group.take_until(b"end")] == [b"end"]


def test_ids_are_kept_for_as_long_as_their_window(tmp_path: Path) -> None:
    """They are read again after a restart, which needs the records that have them."""
    with Broker(tmp_path, settings=FEW_BOOKS) as broker, Wire(broker.bootstrap_servers) as wire:
        for topic, window_ms in (("long", "86400000"), ("short", "1")):
            wire.create(topic, configs={**QUEUE, "headrace.queue.dedup.window.ms": window_ms})
            assert not wire.produce(topic, batch(message(b"first", dedup_id="1"))).error_code
            Group(wire, topic, topic).take_until(b"first")
        wait_for_start(wire, "short", 1)  # by then the other would have been freed as well
        assert offset_of(wire, "long", EARLIEST) == 0
    with Broker(tmp_path, settings=FEW_BOOKS) as broker, Wire(broker.bootstrap_servers) as wire:
        group = Group(wire, "long", "long")
        wire.produce("long", batch(message(b"second", dedup_id="1"), message(b"end")))
        assert [record.value for record in group.take_until(b"end")] == [b"end"]


def test_what_is_to_be_copied_is_kept_until_it_is(wire: Wire) -> None:
    source, target, other = "bound", "bound-to-later", "not-bound"
    wire.create(source, configs={**SETTINGS, **bind({"to": target})})
    wire.create(other, configs=SETTINGS)
    for topic in (source, other):
        assert not wire.produce(topic, batch(message(b"0"), message(b"1"))).error_code
        Group(wire, topic, topic).take_until(b"0", b"1")
    wait_for_start(wire, other, 2)  # by then the source would have been freed as well
    assert offset_of(wire, source, EARLIEST) == 0
    wire.create(target)
    assert [record.value for record in read_until(wire, target, b"1")] == [b"0", b"1"]
    wait_for_start(wire, source, 2)


def test_copies_are_kept_until_it_is_written_that_they_were_made(tmp_path: Path) -> None:
    """After a crash they are looked for: of one that was finished and freed meanwhile there would be another."""
    source, target, full, other = "bound-twice", "freed-target", "full-target", "freed-alone"
    with Broker(tmp_path, own_process=True, settings=FEW_BOOKS) as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create(full, configs={"headrace.overflow": "reject", "headrace.overflow.records": "1"})
        assert not wire.produce(full, batch(message(b"full"))).error_code
        wire.create(source, configs=bind({"to": target}, {"to": full}))
        for topic in (target, other):
            wire.create(topic, configs=SETTINGS)
        for topic in (source, other):
            assert not wire.produce(topic, batch(message(b"0"))).error_code
        for topic in (target, other):
            Group(wire, topic, topic).take_until(b"0")
        wait_for_start(wire, other, 1)  # by then the copy would have been freed as well
        assert offset_of(wire, target, EARLIEST) == 0
        os.kill(broker.pid, signal.SIGKILL)
    with Broker(tmp_path, settings=FEW_BOOKS) as broker, Wire(broker.bootstrap_servers) as wire:
        with Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
            alter_configs(cluster, full, changes={"headrace.overflow.records": "10"})
        assert not wire.produce(source, batch(message(b"1"))).error_code
        assert [record.value for record in read_until(wire, full, b"1")] == [b"full", b"0", b"1"]
        assert [record.value for record in Group(wire, target, target).take_until(b"1")] == [b"1"]
        wait_for_start(wire, target, 2)
