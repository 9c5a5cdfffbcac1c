"""The checksum, and how it is loaded."""

import subprocess
import sys

from crc32c import crc32c as whole

from headrace.records.checksum import crc32c


def test_it_is_crc_32c():
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"6789", crc32c(b"12345")) == 0xE3069283
    assert crc32c(memoryview(b"123456789")) == whole(b"123456789")


def test_records_are_loaded_without_what_looks_up_versions():
    loaded = "import sys, headrace.records; print('importlib.metadata' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True).stdout == "False\n"
    )


def test_the_whole_library_can_be_loaded_as_well():
    loaded = "import headrace.records, crc32c; print(crc32c.crc32c(b'123456789') == 0xE3069283)"
    assert subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True).stdout == "True\n"
