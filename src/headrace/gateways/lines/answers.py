"""What a client is told of what it sent: pure.

Per line, `OK PARTITION OFFSET` or `ERR SENTENCE`, in the order in which the lines came. Per batch (an empty line ends
one), `OK COUNT` once all of it is durable, or `ERR SENTENCE`, and then nothing is promised of any of it.

What always holds: each line, or each batch that was ended, has exactly one answer, however its bytes were cut on their
way; what is refused before it is written is not in the records that are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from headrace.gateways.framing import Frames


class Where(Protocol):
    """A record's place."""

    @property
    def partition(self) -> int: ...

    @property
    def offset(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Wanted:
    """Records that are to be written, and how their answers are said once it is known what became of them."""

    records: list[bytes]
    slots: list[str] = field(default_factory=list)
    """By line: empty for one that is written, or why it is not."""
    is_batch: bool = False
    refused: int = 0
    """How many lines, or batches, are refused before anything is written, for what they are."""

    def said(self, placed: Sequence[Where]) -> bytes:
        """The answers, where all records were written."""
        if self.is_batch:
            return b"".join(_err(slot) if slot else b"OK %d\n" % len(placed) for slot in self.slots)
        places = iter(placed)
        return b"".join(_err(slot) if slot else _ok(next(places)) for slot in self.slots)

    def failed(self, reason: str) -> bytes:
        """The answers, where they were not."""
        return b"".join(_err(slot or reason) for slot in self.slots)


class PerLine:
    """Each line has its answer."""

    def __init__(self, limit: int) -> None:
        self._limit = limit

    def take(self, found: Frames, *, is_end: bool = False) -> list[Wanted]:  # noqa: ARG002 - as `PerBatch` has it
        slots = [""] * len(found.frames)
        for place in found.cut:
            slots[place] = f"the line has more than {self._limit} bytes"
        if found.problem:
            slots.append(found.problem)
        if not slots:
            return []
        kept = [frame for frame, slot in zip(found.frames, slots, strict=False) if not slot]
        return [Wanted(kept, slots, refused=len(found.cut))]


class PerBatch:
    """Lines are gathered up to an empty one, which is no record."""

    def __init__(self, limit: int, batch_bytes: int) -> None:
        self._limit = limit
        self._batch_bytes = batch_bytes
        self._gathered: list[bytes] = []
        self._size = 0
        self._problem = ""

    def take(self, found: Frames, *, is_end: bool = False) -> list[Wanted]:
        batches = []
        cut = set(found.cut)
        for place, frame in enumerate(found.frames):
            if not frame and place not in cut:
                batches.append(self._ended())
            elif place in cut:
                self._refuse(f"a line has more than {self._limit} bytes")
            elif not self._problem:
                self._gathered.append(frame)
                self._size += len(frame) + 64
                if self._size > self._batch_bytes:
                    self._refuse(f"the batch has more than {self._batch_bytes} bytes")
        if found.problem:
            self._refuse(found.problem)
            batches.append(replace(self._ended(), refused=0))  # it was counted where the framing was lost
        elif is_end and (self._gathered or self._problem):
            self._refuse("the connection ended before the batch: an empty line ends one")
            batches.append(self._ended())
        return batches

    def _refuse(self, reason: str) -> None:
        self._problem = self._problem or reason
        self._gathered = []

    def _ended(self) -> Wanted:
        batch = Wanted(self._gathered, [self._problem], is_batch=True, refused=bool(self._problem))
        self._gathered, self._size, self._problem = [], 0, ""
        return batch


def _ok(where: Where) -> bytes:
    return b"OK %d %d\n" % (where.partition, where.offset)


def _err(sentence: str) -> bytes:
    return b"ERR " + " ".join(sentence.split()).encode(errors="replace") + b"\n"
