"""Stretches of a segment that are no valid batches although they were durable once: a disk's fault, not a crash's.

They are found at recovery, remembered in a file `damaged-ranges` beside the segments (a Kafka broker ignores it), and
never served: a read stops before them, and a read into them is told where they are and where to read on.
"""

from collections.abc import Iterable
from typing import NamedTuple

from crc32c import crc32c

from headrace.storage.checkpoint import CorruptCheckpoint, read_lines, write_lines
from headrace.storage.errors import DamagedLog
from headrace.storage.filesystem import FileSystem

FILE_NAME = "damaged-ranges"


class Damage(NamedTuple):
    """Bytes of the segment `segment`, and the offsets that were there."""

    segment: int
    position: int
    size: int
    first_offset: int
    next_offset: int

    def refuse(self, offset: int, path: str) -> None:
        """Raise if `offset` is one of the lost ones."""
        if self.first_offset <= offset < self.next_offset:
            raise DamagedLog(path, self.position, self.size, self.first_offset, self.next_offset)


def read_damage(filesystem: FileSystem, directory: str) -> list[Damage]:
    path = f"{directory}/{FILE_NAME}"
    damage = []
    for number, line in enumerate(read_lines(filesystem, path), start=3):
        numbers, _, checksum = line.rpartition(" ")
        try:
            entry = Damage(*map(int, numbers.split(" ")))
        except (TypeError, ValueError):
            raise CorruptCheckpoint(path, number, f"{line!r} is not six numbers") from None
        if checksum != str(crc32c(numbers.encode())):
            raise CorruptCheckpoint(path, number, f"the checksum of {line!r} does not match")
        damage.append(entry)
    return damage


def write_damage(filesystem: FileSystem, directory: str, damage: Iterable[Damage]) -> None:
    """Remember what is damaged; a log without damage has no file."""
    path = f"{directory}/{FILE_NAME}"
    lines = [f"{numbers} {crc32c(numbers.encode())}" for numbers in (" ".join(map(str, entry)) for entry in damage)]
    if lines:
        write_lines(filesystem, path, lines)
    elif filesystem.exists(path):
        filesystem.remove(path)
