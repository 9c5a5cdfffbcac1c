"""Which epoch wrote what, and where it ended: the answers of OffsetForLeaderEpoch."""

import pytest

from headrace.storage.checkpoint import CorruptCheckpoint, EpochStart, LeaderEpochs
from headrace.testing import MemoryFileSystem


@pytest.fixture
def filesystem():
    filesystem = MemoryFileSystem()
    filesystem.make_directory("log")
    return filesystem


@pytest.fixture
def epochs(filesystem):
    epochs = LeaderEpochs(filesystem, "log")
    for epoch, offset in ((2, 10), (4, 20), (5, 30)):
        assert epochs.note(epoch, offset)
    return epochs


def test_only_a_newer_epoch_is_news(epochs):
    assert not epochs.note(5, 40)
    assert not epochs.note(3, 40)
    assert epochs.entries == ((2, 10), (4, 20), (5, 30))
    assert epochs.latest == 5


def test_an_epoch_that_wrote_nothing_is_replaced(epochs):
    assert epochs.note(6, 30)
    assert epochs.entries == ((2, 10), (4, 20), (6, 30))


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        (-1, (-1, -1)),  # unknown
        (0, (0, 10)),  # older than all: it ended where the first that is known begins
        (1, (1, 10)),
        (2, (2, 20)),
        (3, (2, 20)),  # never wrote here: the largest one below it
        (4, (4, 30)),
        (5, (5, 47)),  # the latest ends at the log's end
        (6, (-1, -1)),  # from the future: we are behind
    ],
)
def test_where_an_epoch_ended(epochs, epoch, answer):
    assert epochs.end_of(epoch, log_end=47) == answer


def test_without_epochs_nothing_is_known(filesystem):
    epochs = LeaderEpochs(filesystem, "log")
    assert epochs.end_of(0, 10) == (-1, -1)
    assert (epochs.latest, epochs.epoch_at(5), epochs.entries) == (-1, -1, ())


def test_the_epoch_of_an_offset(epochs):
    assert [epochs.epoch_at(offset) for offset in (9, 10, 19, 20, 29, 30, 999)] == [-1, 2, 2, 4, 4, 5, 5]


def test_cutting_and_dropping(epochs):
    epochs.truncate_to(30)
    assert epochs.entries == ((2, 10), (4, 20))
    epochs.drop_before(15)
    assert epochs.entries == ((2, 15), (4, 20))
    epochs.drop_before(20)
    assert epochs.entries == ((4, 20),)
    epochs.drop_before(100)
    assert epochs.entries == ((4, 100),)
    assert LeaderEpochs(MemoryFileSystem(), "x").entries == ()


def test_the_file_is_kafkas(epochs, filesystem):
    epochs.save()
    assert filesystem.read("log/leader-epoch-checkpoint") == b"0\n3\n2 10\n4 20\n5 30\n"
    again = LeaderEpochs(filesystem, "log")
    again.load()
    assert again.entries == epochs.entries
    assert isinstance(again.entries[0], EpochStart)


@pytest.mark.parametrize("line", ["x 1", "1", "1 2 3", ""])
def test_a_line_that_is_none_is_named(filesystem, line):
    filesystem.open("log/leader-epoch-checkpoint", create=True).write_at([f"0\n2\n1 2\n{line}\n".encode()], 0)
    with pytest.raises(CorruptCheckpoint, match=r"^log/leader-epoch-checkpoint:4: .*: remove the file"):
        LeaderEpochs(filesystem, "log").load()
