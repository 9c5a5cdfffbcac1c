"""Topics made, grown and deleted: whole or not at all, whatever the disk or the limits of the process say."""

import errno
from uuid import uuid4

import pytest

from headrace.broker.errors import BrokerError
from headrace.broker.settings.setting import InvalidSetting
from headrace.broker.topics import TopicCatalog, TopicFile, read_topic_files
from headrace.coordinator.metadata import METADATA_TOPIC
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.storage.atomic_file import make_folder
from headrace.storage.directory import LogDirectory
from headrace.storage.errors import StorageError
from headrace.storage.filesystem import OsFileSystem
from headrace.testing import FakeClock, MemoryFileSystem, crash_points
from tests.small_logs import append, records_from, some_records


def _open(filesystem, path="data"):
    """The topics in a data directory, as a broker opens them."""
    make_folder(filesystem, path)
    files = read_topic_files(filesystem, path)
    directory = LogDirectory.open(path, filesystem=filesystem, clock=FakeClock())
    catalog = TopicCatalog(directory, filesystem, {})
    catalog.load(files)
    return catalog, directory


def _folders(filesystem):
    return sorted(name for name in filesystem.list("data") if "-" in name and not name.endswith("checkpoint"))


# --- names


@pytest.mark.parametrize("length", [1, 200, 213, 214, 220, 244, 245, 246, 247, 249])
def test_a_topic_with_a_name_of_any_legal_length_is_made_and_deleted(length):
    filesystem = MemoryFileSystem()
    catalog, directory = _open(filesystem)
    name = "n" * length
    catalog.create(name, 2, {"retention.ms": "1000"})
    log = directory.log(TopicPartition(name, 1))
    append(log, some_records(3))
    log.flush()
    catalog, directory = _open(filesystem.crash(mode="lose_everything"))
    assert catalog.by_name[name].settings == {"retention.ms": "1000"}
    assert len(records_from(directory.log(TopicPartition(name, 1)))) == 3
    catalog.delete(name)
    after = directory._filesystem.crash(mode="lose_everything")
    catalog, directory = _open(after)
    assert (catalog.by_name, _folders(after)) == ({}, [])
    catalog.create(name, 1, {})
    assert not records_from(directory.log(TopicPartition(name, 0)))


def test_a_long_name_that_could_not_be_deleted_before_is_deleted_at_the_next_start():
    """A data directory in which an earlier version marked the topic as deleted, and could not remove it."""
    filesystem = MemoryFileSystem()
    catalog, directory = _open(filesystem)
    name = "n" * 240
    topic = catalog.create(name, 1, {})
    catalog._write(name, catalog._file_of(topic)._replace(deleted=True))
    directory.close()
    catalog, directory = _open(filesystem)
    assert (catalog.by_name, directory.logs, _folders(filesystem)) == ({}, {}, [])


@pytest.mark.parametrize("name", ["__headrace.metadata", "_.headrace_metadata", "__consumer.offsets"])
def test_no_client_takes_a_name_that_would_keep_the_broker_from_making_its_own_topics(name):
    catalog, _ = _open(MemoryFileSystem())
    with pytest.raises(BrokerError, match="collides with existing topic"):
        catalog.create(name, 1, {})
    own = name.replace(".", "_")
    catalog.create(name, 1, {}, by_broker=True)  # as an earlier version let clients do
    catalog.create(own, 1, {}, by_broker=True)
    assert catalog.owned(own).name == own
    with pytest.raises(BrokerError, match="already exists"):
        catalog.create(own, 1, {}, by_broker=True)


@pytest.mark.parametrize("has_file", [True, False])
def test_a_topic_of_a_client_under_the_name_of_the_metadata_is_not_taken_for_it(has_file):
    """An earlier version let clients make it: whoever knew the records could write itself every permission."""
    filesystem = MemoryFileSystem()
    catalog, directory = _open(filesystem)
    file = TopicFile(uuid4(), 1, {})
    if has_file:
        catalog._write(METADATA_TOPIC, file)
    directory.create_all([TopicPartition(METADATA_TOPIC, 0)], catalog.config_of({}), file.id)
    directory.close()
    with pytest.raises(BrokerError, match=f"{METADATA_TOPIC} was made by a client.* move data/topics/"):
        _open(filesystem)


def test_the_metadata_is_known_again_by_its_id():
    filesystem = MemoryFileSystem()
    catalog, directory = _open(filesystem)
    catalog.create(METADATA_TOPIC, 1, {}, by_broker=True)
    directory.close()
    catalog, directory = _open(filesystem)
    assert catalog.owned(METADATA_TOPIC) is not None
    directory.close()
    filesystem.remove(f"data/topics/{METADATA_TOPIC}.json")  # as somebody does who is told that it is damaged
    catalog, _ = _open(filesystem)
    assert catalog.owned(METADATA_TOPIC) is not None
    assert METADATA_TOPIC not in catalog.by_name


# --- a disk that refuses


@pytest.mark.parametrize("kind", ["write", "sync", "sync_directory", "open", "replace", "make_directory"])
def test_a_topic_that_could_not_be_made_is_not_there_and_can_be_made_at_once(kind):
    seen = set()
    for skip in range(30):
        filesystem = MemoryFileSystem()
        catalog, directory = _open(filesystem)
        catalog.create("kept", 1, {})
        fault = filesystem.fail(kind, skip=skip)
        try:
            catalog.create("orders", 3, {})
            seen.add("made")
        except StorageError:
            seen.add("refused")
            assert "orders" not in catalog.by_name
            assert not [partition for partition in directory.logs if partition.topic == "orders"]
            assert _folders(filesystem) == ["kept-0"]
            filesystem.heal(fault)
            catalog.create("orders", 3, {})
        filesystem.heal(fault)
        append(directory.log(TopicPartition("orders", 2)), some_records(1))
        directory.log(TopicPartition("orders", 2)).flush()
        catalog, directory = _open(filesystem.crash(mode="lose_everything"))
        assert {name: len(topic.partitions) for name, topic in catalog.by_name.items()} == {"orders": 3, "kept": 1}
        assert len(records_from(directory.log(TopicPartition("orders", 2)))) == 1
    assert seen == {"made", "refused"}


@pytest.mark.parametrize("kind", ["write", "sync", "sync_directory", "replace", "remove", "remove_directory", "list"])
def test_a_disk_that_refuses_everything_from_some_step_on_leaves_nothing_in_the_way(kind):
    """The undoing fails as well; the name can be used as soon as the disk is well again."""
    for skip in range(0, 40, 3):
        filesystem = MemoryFileSystem()
        catalog, directory = _open(filesystem)
        fault = filesystem.fail(kind, times=None, skip=skip)
        for deed in (
            lambda catalog=catalog: catalog.create("orders", 3, {}),
            lambda catalog=catalog: catalog.add_partitions("orders", 5),
            lambda catalog=catalog: catalog.delete("orders"),
        ):
            try:
                deed()
            except (StorageError, KeyError):
                break
        filesystem.heal(fault)
        if "orders" not in catalog.by_name:
            catalog.create("orders", 3, {})
        catalog.add_partitions("orders", 6)
        log = directory.log(TopicPartition("orders", 4))
        assert log.end_offset == 0
        append(log, some_records(1))
        log.flush()
        catalog, directory = _open(filesystem.crash(mode="lose_everything"))
        assert len(catalog.by_name["orders"].partitions) == 6
        assert len({directory.topic_id(partition) for partition in directory.logs}) == 1
        assert len(records_from(directory.log(TopicPartition("orders", 4)))) == 1


def test_partitions_that_could_not_be_added_can_be_added_later():
    filesystem = MemoryFileSystem()
    catalog, _ = _open(filesystem)
    catalog.create("orders", 2, {})
    filesystem.fail("open", "data/orders-3/*.log")
    with pytest.raises(StorageError):
        catalog.add_partitions("orders", 4)
    assert len(catalog.by_name["orders"].partitions) == 2
    assert _folders(filesystem) == ["orders-0", "orders-1"]
    restarted, _ = _open(filesystem.crash(mode="keep_everything"))
    assert len(restarted.by_name["orders"].partitions) == 2


def test_a_topic_that_is_deleted_half_way_stays_deleted_and_its_name_is_free():
    filesystem = MemoryFileSystem()
    catalog, directory = _open(filesystem)
    first = catalog.create("orders", 3, {})
    append(directory.log(TopicPartition("orders", 1)), some_records(3))
    filesystem.fail("replace", "data/orders-1*")
    with pytest.raises(StorageError):
        catalog.delete("orders")
    assert "orders" not in catalog.by_name
    second = catalog.create("orders", 3, {})
    assert second.id != first.id
    assert [log.end_offset for log in second.partitions] == [0, 0, 0]
    again, directory = _open(filesystem.crash(mode="lose_everything"))
    assert again.by_name["orders"].id == second.id
    assert {directory.topic_id(partition).bytes for partition in directory.logs} == {second.id}


def test_a_deleted_topic_that_cannot_be_removed_does_not_stop_a_start():
    filesystem = MemoryFileSystem()
    catalog, directory = _open(filesystem)
    catalog.create("orders", 1, {})
    catalog.create("kept", 1, {})
    filesystem.fail("replace", "data/orders-0*", times=2)
    with pytest.raises(StorageError):
        catalog.delete("orders")
    directory.close()
    catalog, directory = _open(filesystem)
    assert list(catalog.by_name) == ["kept"]
    directory.close()
    _, directory = _open(filesystem)
    assert list(directory.logs) == [TopicPartition("kept", 0)]


@pytest.mark.parametrize(
    "change",
    [
        lambda catalog: catalog.add_partitions("t", 3),
        lambda catalog: catalog.alter("t", {"retention.ms": "1"}),
        lambda catalog: catalog.delete("t"),
    ],
)
def test_a_topic_that_is_deleted_while_a_change_of_it_waits_is_unknown(change):
    catalog, _ = _open(MemoryFileSystem())
    catalog.create("t", 1, {})
    catalog.delete("t")
    with pytest.raises(BrokerError, match="'t' was deleted") as refused:
        change(catalog)
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_topic_that_was_meant_is_deleted_and_not_its_successor():
    catalog, _ = _open(MemoryFileSystem())
    first = catalog.create("orders", 1, {})
    catalog.delete("orders", first.id)
    second = catalog.create("orders", 1, {})
    with pytest.raises(BrokerError, match="'orders' was deleted"):
        catalog.delete("orders", first.id)
    assert catalog.by_name["orders"].id == second.id


# --- crashes


def test_a_topic_is_made_and_deleted_wholly_at_every_step():
    def prepare(filesystem):
        _open(filesystem)[1].close()

    def run(filesystem):
        catalog, _ = _open(filesystem)
        catalog.create("orders", 2, {})
        catalog.delete("orders")

    for stopped in crash_points(run, prepare=prepare):
        for mode in ("lose_everything", "keep_everything"):
            catalog, directory = _open(stopped.crash(mode=mode))
            topic = catalog.by_name.get("orders")
            assert len(directory.logs) == (2 if topic else 0)
            if topic is None:
                topic = catalog.create("orders", 2, {})
            assert len(topic.partitions) == 2
            directory.close()


# --- limits of the process


def test_more_partitions_than_files_may_be_open(tmp_path, few_files):
    path = str(tmp_path / "data")
    catalog, directory = _open(OsFileSystem(), path)
    catalog.create("wide", few_files, {})
    for log in catalog.by_name["wide"].partitions:
        append(log, some_records(12))
        log.flush()
    directory.abandon()
    catalog, directory = _open(OsFileSystem(), path)
    assert [len(records_from(log)) for log in catalog.by_name["wide"].partitions] == [12] * few_files
    directory.abandon()


def test_partitions_that_the_limit_of_open_files_does_not_allow_are_refused_whole():
    filesystem = MemoryFileSystem()
    catalog, directory = _open(filesystem)
    filesystem.fail("open", "data/wide-7/*.log", error=errno.EMFILE, times=None)
    with pytest.raises(StorageError, match=r"Too many open files.*: raise the limit of open files \(ulimit -n\)"):
        catalog.create("wide", 10, {})
    assert (directory.logs, _folders(filesystem), catalog.by_name) == ({}, [], {})
    again, _ = _open(filesystem.crash(mode="keep_everything"))
    assert again.by_name == {}


def test_a_topic_that_is_there_is_not_made_again():
    catalog, _ = _open(MemoryFileSystem())
    catalog.create("orders", 1, {})
    with pytest.raises(BrokerError, match="already exists"):
        catalog.create("orders", 1, {})


# --- directories of others


def test_a_directory_that_another_broker_wrote_is_taken_in_with_gaps_and_without_ids():
    """As one broker of a cluster leaves it, older than topic ids: every record is there, and no two topics are one."""
    filesystem = MemoryFileSystem()
    catalog, directory = _open(filesystem)
    for name in ("orders", "payments"):
        for log in catalog.create(name, 3, {}).partitions:
            append(log, some_records(2))
            log.flush()
    directory.close()
    for path in [f"data/{folder}/partition.metadata" for folder in _folders(filesystem)]:
        filesystem.remove(path)
    for folder in ("data/topics", "data/orders-1"):
        for name in filesystem.list(folder):
            filesystem.remove(f"{folder}/{name}")
        filesystem.remove_directory(folder)
    for _ in range(2):
        catalog, directory = _open(filesystem)
        counts = [len(records_from(log)) for log in catalog.by_name["orders"].partitions]
        assert counts == [2, 0, 2]
        ids = {name: topic.id for name, topic in catalog.by_name.items()}
        assert sorted(catalog.by_id) == sorted(ids.values())
        assert bytes(16) not in catalog.by_id
        directory.close()
    catalog, _ = _open(filesystem)
    assert {name: topic.id for name, topic in catalog.by_name.items()} == ids
    catalog.add_partitions("orders", 4)
    assert [len(records_from(log)) for log in catalog.by_name["orders"].partitions] == [2, 0, 2, 0]


# --- bindings


def test_bindings_that_lead_back_or_to_the_brokers_books_are_refused_and_nothing_is_written():
    filesystem = MemoryFileSystem()
    catalog, _ = _open(filesystem)
    bindings = "headrace.bindings"
    catalog.create("a", 1, {bindings: '[{"to": "b"}]'})
    with pytest.raises(InvalidSetting, match="b → a → b"):
        catalog.create("b", 1, {bindings: '[{"to": "a"}]'})
    catalog.create("b", 1, {})
    for refused, words in (
        ('[{"to": "a"}]', "b → a → b"),
        ('[{"to": "__consumer_offsets"}]', "__consumer_offsets"),
        ('[{"to": "__headrace_schedule"}]', "__headrace_schedule"),
        ("b", "JSON"),
    ):
        for validate_only in (True, False):
            with pytest.raises(InvalidSetting, match=words):
                catalog.alter("b", {bindings: refused}, validate_only=validate_only)
    assert catalog.by_name["b"].settings == {}
    catalog.alter("a", {})
    catalog.alter("b", {bindings: '[{"to": "a"}]'})
    catalog, _ = _open(filesystem.crash(mode="lose_everything"))
    assert catalog.by_name["b"].settings == {bindings: '[{"to": "a"}]'}
