"""Textual checkpoints: written as Kafka does, and refused with file and line."""

import pytest

from headrace.model import TopicPartition
from headrace.storage.checkpoint import CLEANER, CorruptCheckpoint, read_offsets, write_offsets
from headrace.testing import MemoryFileSystem

PATH = "recovery-point-offset-checkpoint"


def _file(text):
    filesystem = MemoryFileSystem()
    filesystem.open(PATH, create=True).write_at([text], 0)
    return filesystem


def test_the_file_is_kafkas():
    filesystem = MemoryFileSystem()
    offsets = {TopicPartition("b.c", 10): 2**62, TopicPartition("a-b", 0): 0, TopicPartition("b.c", 9): 1}
    write_offsets(filesystem, PATH, offsets)
    assert filesystem.read(PATH) == b"0\n3\na-b 0 0\nb.c 9 1\nb.c 10 4611686018427387904\n"
    assert read_offsets(filesystem, PATH) == offsets
    write_offsets(filesystem, PATH, {})
    assert filesystem.read(PATH) == b"0\n0\n"
    assert read_offsets(filesystem, PATH) == {}
    assert filesystem.list("/") == [PATH], "nothing temporary stays"


def test_no_file_is_no_offsets():
    assert read_offsets(MemoryFileSystem(), PATH) == {}


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (b"", 1, "expected version 0, found 'an empty file'"),
        (b"1\n0\n", 1, "expected version 0, found '1'"),
        (b"\xff\xfe", 1, "expected version 0"),
        (b"0\n", 2, "number of entries does not match"),
        (b"0\nx\n", 2, "number of entries"),
        (b"0\n2\na 0 1\n", 2, "number of entries"),
        (b"0\n0\na 0 1\n", 2, "number of entries"),
        (b"0\n1\na 0\n", 3, "'a 0' is not 'topic partition offset'"),
        (b"0\n2\na 0 1\na x 1\n", 4, "'a x 1' is not"),
        (b"0\n1\na 0 1 2\n", 3, "is not"),
    ],
)
def test_what_is_no_checkpoint_is_refused_with_file_and_line(text, line, reason):
    with pytest.raises(CorruptCheckpoint) as caught:
        read_offsets(_file(text), PATH)
    assert str(caught.value).startswith(f"{PATH}:{line}: ")
    assert reason in str(caught.value)
    assert str(caught.value).endswith(": remove the file to have it made anew from the logs")
    assert (caught.value.path, caught.value.line) == (PATH, line)


def test_kafkas_cleaner_checkpoint_is_empty_until_something_was_compacted():
    filesystem = MemoryFileSystem()
    filesystem.open(CLEANER, create=True).write_at([b""], 0)
    assert read_offsets(filesystem, CLEANER) == {}
