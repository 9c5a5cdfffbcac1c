"""Which files a follower reads, and from where: decided from what is known and what is seen. Pure.

A file is known by its device and inode and, because inodes are used again and files are emptied, by its first bytes.
Each look answers what becomes of every file that there is:

- one whose first bytes are still those, and which is not shorter than what was read, goes on, whatever it is called
  now: a file that was rotated away is read to its end, and again when somebody still writes to it;
- one that was emptied (copytruncate) begins anew; what was not read of it is in the copy beside it, which has the same
  first bytes, and is read there from where we were;
- a copy that is there while its original has not been emptied yet is left alone, and so is an empty one;
- one that has all that was read of a file that is in no folder, and its path and inode on another device, is that file:
  a file system that is mounted anew, as at each start of a machine or a container, may have another number;
- any other file is new and read from its beginning, also one that came and was rotated away between two looks; only at
  the first look of all are rotated files taken for done, and with `from end` the others as well.

What always holds: of bytes that are in a file or in its copy when a look sees them, each is read once.
"""

import os.path
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

LINE_BYTES: Final = 256 * 1024  # of a line are kept, unless it is said otherwise
HEAD_BYTES: Final = 1024  # by which one generation of a log is told from the next
_NUMBER: Final = re.compile(r"(?<![0-9])[0-9]{1,5}(?![0-9])")  # and not a date


class Identity(NamedTuple):
    device: int
    inode: int


@dataclass(frozen=True, slots=True)
class Seen:
    """A file in a folder; `base` is the path that is followed, `is_live` whether the file has that path now.

    `pattern` is what the path was found by.
    """

    identity: Identity
    path: str
    base: str
    is_live: bool
    size: int
    modified_ns: int
    head: bytes
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class Tracked:
    """A file that is read: up to `offset`, behind a line's end, or within a line that is too long and skipped."""

    identity: Identity
    path: str
    base: str
    offset: int = 0
    head: bytes = b""  # what stood in front of the offset, at most so many bytes of it
    is_skipping: bool = False

    def is_intact(self, seen: Seen) -> bool:
        """Whether what was read of it still stands there."""
        return seen.size >= self.offset and seen.head.startswith(self.head)

    def moved(self, offset: int, head: bytes, *, is_skipping: bool) -> "Tracked":
        return replace(self, offset=offset, head=head[: min(offset, HEAD_BYTES)], is_skipping=is_skipping)


class Look(NamedTuple):
    """What is read from now on; `emptied` are files whose rest is in no copy, `gone` those that are in no folder.

    `held` are read only after another look: it is not clear yet whether a file beside them is a copy, or lines that
    come before theirs.
    """

    tracked: dict[Identity, Tracked]
    emptied: list[Tracked]
    gone: list[Tracked]
    held: set[Identity]


def look(
    known: Mapping[Identity, Tracked], seen: Iterable[Seen], *, begun: Collection[str], from_end: bool = False
) -> Look:
    """What becomes of each file; `begun` are the patterns by which files were looked for before."""
    result: dict[Identity, Tracked] = {}
    emptied: list[Tracked] = []
    new: list[Seen] = []
    held: set[Identity] = set()
    intact: list[Seen] = []
    files = in_order(seen)
    for one in files:
        before = known.get(one.identity)
        if before is not None and before.is_intact(one):
            result[one.identity] = replace(before, path=one.path, base=one.base)
            intact.append(one)
            continue
        if before is not None:
            emptied.append(before)
        new.append(one)
    there = {one.identity for one in files}
    # A file that was emptied and removed leaves its copy as well.
    gone = [file for identity, file in known.items() if identity not in there]
    for one in new:
        if (same := _on_another_device(one, gone)) is not None:
            gone.remove(same)
            result[one.identity] = replace(same, identity=one.identity, path=one.path)
            continue
        if not one.is_live and not one.head:
            continue  # a copy that is being made: what it is of shows once there is something in it
        if not one.is_live and (origin := _original(one, [*emptied, *gone])) is not None:
            (emptied if origin in emptied else gone).remove(origin)
            result[one.identity] = replace(origin, identity=one.identity, path=one.path, base=one.base)
        elif not one.is_live and (like := [other for other in [*intact, *new] if _is_like(one, other)]):
            held |= {other.identity for other in like if not other.head.startswith(one.head)}
        elif one.pattern not in begun and (from_end or not one.is_live):
            result[one.identity] = Tracked(one.identity, one.path, one.base, one.size, one.head[: one.size])
        else:
            result[one.identity] = Tracked(one.identity, one.path, one.base)
    # Of a file of which nothing was read yet, a copy may come up now: it is new, and yet its lines are the older ones.
    ordered = {one.identity: result[one.identity] for one in files if one.identity in result}
    return Look(ordered, [file for file in emptied if file.offset], gone, held)


def in_order(seen: Iterable[Seen]) -> list[Seen]:
    """Rotated files first, the oldest before the others, so that lines keep their order."""
    return sorted(seen, key=lambda one: (one.is_live, one.modified_ns, -_turns(one), one.path))


def _turns(file: Seen) -> int:
    """How often a file was rotated, as its name says: it decides where two have the same time, which ticks slowly."""
    found = _NUMBER.search(file.path[len(os.path.splitext(file.base)[0]) :])
    return int(found[0]) if found is not None else 0


def _original(copy: Seen, candidates: Iterable[Tracked]) -> Tracked | None:
    """The file that this one is a copy of, as far as it was read; the one that was read furthest."""
    fitting = [file for file in candidates if file.head and file.base == copy.base and file.is_intact(copy)]
    return max(fitting, key=lambda file: file.offset, default=None)


def _on_another_device(one: Seen, gone: Iterable[Tracked]) -> Tracked | None:
    def is_same(file: Tracked) -> bool:
        return (
            file.identity.inode == one.identity.inode and file.base == one.base and bool(file.head)
            and file.is_intact(one)
        )  # fmt: skip

    return next(filter(is_same, gone), None)


def _is_like(one: Seen, live: Seen) -> bool:
    """Whether it may be a copy of a file that has its path: one of them begins as the other does."""
    shared = min(len(one.head), len(live.head))
    return live.is_live and shared > 0 and one.base == live.base and one.head[:shared] == live.head[:shared]


class Cut(NamedTuple):
    """Whole lines out of a piece of a file, and how far they reach."""

    lines: list[bytes]
    taken: int
    is_skipping: bool
    too_long: int


def cut_lines(piece: bytes, limit: int, *, is_skipping: bool = False, is_ended: bool = False) -> Cut:
    """The lines in a piece that begins at a line's beginning, or within one that is skipped.

    A line of more than `limit` bytes is cut there, and what follows up to its end is skipped. The last line of a file
    that has ended needs no line break.
    """
    lines: list[bytes] = []
    too_long = 0
    start = 0
    if is_skipping:
        end = piece.find(b"\n")
        if end < 0:
            return Cut([], len(piece), not is_ended, 0)
        start = end + 1
    stop = piece.rfind(b"\n") + 1
    if stop > start:
        lines = piece[start : stop - 1].split(b"\n")
        if b"\r" in piece:
            lines = [line.removesuffix(b"\r") for line in lines]
        if stop - start > limit and max(map(len, lines)) > limit:
            too_long = sum(len(line) > limit for line in lines)
            lines = [line[:limit] for line in lines]
        start = stop
    rest = len(piece) - start
    if rest > limit:
        return Cut([*lines, piece[start : start + limit]], len(piece), not is_ended, too_long + 1)
    if rest and is_ended:
        return Cut([*lines, piece[start:].removesuffix(b"\r")], len(piece), False, too_long)
    return Cut(lines, start, False, too_long)
