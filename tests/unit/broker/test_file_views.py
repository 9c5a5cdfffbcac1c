"""The bytes of a slice for the kernel: all of them, or an error, also where the file was cut meanwhile."""

import contextlib
import os

import pytest

from headrace.broker.file_views import READ_UP_TO, WINDOW, view_of
from headrace.storage.filesystem import OsFileSystem
from headrace.storage.segment import FileSlice
from headrace.testing import MemoryFileSystem


@pytest.fixture(params=["os", "memory"])
def file(request, tmp_path):
    filesystem = OsFileSystem() if request.param == "os" else MemoryFileSystem()
    return filesystem.open(str(tmp_path / "a.log") if request.param == "os" else "a.log", create=True)


@pytest.mark.parametrize("size", [1, 100, READ_UP_TO, READ_UP_TO + 1, WINDOW + 1])
@pytest.mark.parametrize("position", [0, 5000])
def test_a_slice_is_seen_from_its_beginning(file, size, position):
    data = bytes(range(251)) * ((position + size) // 251 + 1)
    file.write_at([data], 0)
    view = view_of(FileSlice(file, position, size))
    assert view == data[position : position + min(size, WINDOW)]


@pytest.mark.parametrize("size", [1, 100, READ_UP_TO, READ_UP_TO + 1, WINDOW + 1])
@pytest.mark.parametrize("left", [0, 5000, 5050])
def test_a_slice_of_a_file_that_was_cut_is_an_error_and_never_empty(file, size, left):
    file.write_at([bytes(5000 + size)], 0)
    file.truncate(min(left, 5000 + size - 1))
    with pytest.raises(OSError, match=r"cut"):
        view_of(FileSlice(file, 5000, size))


def test_a_large_slice_is_seen_without_a_descriptor_left_to_map_it(tmp_path, few_files):
    file = OsFileSystem().open(str(tmp_path / "a.log"), create=True)
    data = bytes(range(251)) * (WINDOW // 251 + 1)
    file.write_at([data], 0)
    others = []
    with contextlib.suppress(OSError):
        while True:
            others.append(os.open(os.devnull, os.O_RDONLY))
    try:
        view = view_of(FileSlice(file, 0, WINDOW))
    finally:
        for other in others:
            os.close(other)
    assert view == data[:WINDOW]
