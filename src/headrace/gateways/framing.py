"""Where one record ends and the next begins in a stream of bytes: a delimiter, a count in digits, or a length. Pure.

    a line\\n                       `DelimiterFramer`: any delimiter; with a line feed, a carriage return before it goes
    6 a line                       `OctetFramer`: digits and a space before each (RFC 6587); lines between, if allowed
    \\0\\0\\0\\6a line                `LengthFramer`: one, two or four bytes, the greatest first (big-endian)

What always holds: the frames are the same however the bytes were cut on their way; no framer holds more than the limit
of a frame and a few bytes besides; a frame of more than the limit is cut there, and said to be; and where a count
cannot be read the framing is lost: the frames before it stand, the reason is said once, nothing behind it is read.
"""

import re
from dataclasses import dataclass, field
from typing import Final, Protocol

from headrace.gateways.errors import GatewayError

LENGTHS: Final = (1, 2, 4)
_MOST_DIGITS: Final = 10
_COUNT: Final = re.compile(rb"([1-9][0-9]*|0) ")
_NO_COUNT: Final = re.compile(rb"0[0-9]| |[1-9][0-9]{10}|[0-9]{0,10}[^0-9 ]")
_ENDS_OF_LINE: Final = b"\n\0"
_END_OF_LINE: Final = re.compile(rb"[\n\0]")


@dataclass(frozen=True, slots=True)
class Frames:
    """What some bytes made complete: the frames, the places in that list of those that were cut, and what is wrong."""

    frames: list[bytes] = field(default_factory=list)
    cut: list[int] = field(default_factory=list)
    problem: str = ""


class Framer(Protocol):
    """For one stream."""

    def feed(self, data: bytes) -> Frames:
        """The frames that end within these bytes."""
        ...

    def finish(self) -> Frames:
        """What the end of the stream makes complete; a frame whose count says that more was to come is a problem."""
        ...


class DelimiterFramer:
    """Frames that end with a delimiter; the last one needs none."""

    def __init__(self, limit: int, delimiter: bytes = b"\n") -> None:
        if not delimiter:
            raise GatewayError("the delimiter is empty: give at least one byte")
        self._limit = limit
        self._delimiter = delimiter
        self._drops_return = delimiter == b"\n"
        # So much may stand behind a frame of the limit before it is certain that more belongs to it.
        self._slack = len(delimiter) - 1 + self._drops_return
        self._held = bytearray()
        self._is_skipping = False

    def feed(self, data: bytes) -> Frames:
        unseen = max(0, len(self._held) - len(self._delimiter) + 1)
        self._held += data
        if self._held.find(self._delimiter, unseen) < 0:
            return self._overlong()
        frames = bytes(self._held).split(self._delimiter)
        self._held = bytearray(frames.pop())
        if self._is_skipping:
            del frames[0]
            self._is_skipping = False
        found = self._bounded(frames)
        more = self._overlong()
        if more.frames:
            found.cut.append(len(found.frames))
            found.frames.extend(more.frames)
        return found

    def finish(self) -> Frames:
        rest, self._held = bytes(self._held), bytearray()
        if self._is_skipping or not rest:
            self._is_skipping = False
            return Frames()
        return self._bounded([rest])

    def _bounded(self, frames: list[bytes]) -> Frames:
        if self._drops_return:
            frames = [frame.removesuffix(b"\r") for frame in frames]
        if not frames or max(map(len, frames)) <= self._limit:
            return Frames(frames)
        cut = [place for place, frame in enumerate(frames) if len(frame) > self._limit]
        return Frames([frame[: self._limit] for frame in frames], cut)

    def _overlong(self) -> Frames:
        """Let go of what is held, where it is certain to be more than may be kept."""
        if not self._is_skipping and len(self._held) <= self._limit + self._slack:
            return Frames()
        found = Frames() if self._is_skipping else Frames([bytes(self._held[: self._limit])], [0])
        self._is_skipping = True
        kept = len(self._delimiter) - 1
        del self._held[: len(self._held) - kept]
        return found


class _CountedFramer:
    """Frames that say beforehand how long they are."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = bytearray()
        self._left = 0  # of a frame that was cut: bytes that are passed over
        self._problem = ""

    def feed(self, data: bytes) -> Frames:
        if self._problem:
            return Frames()
        found = Frames()
        self._held += data
        problem = self._go_through(found)
        if not problem:
            return found
        self._held.clear()
        return Frames(found.frames, found.cut, problem)

    def _go_through(self, found: Frames) -> str:
        at = 0
        while at < len(self._held):
            if self._left:
                passed = min(self._left, len(self._held) - at)
                at += passed
                self._left -= passed
                continue
            end = self._frame(at, found)
            if end is None:
                break
            at = end
        del self._held[:at]
        return self._problem

    def finish(self) -> Frames:
        if self._problem or not (self._held or self._left):
            return Frames()
        self._problem = "the stream ended within a frame"
        self._held.clear()
        return Frames(problem=self._problem)

    def _frame(self, at: int, found: Frames) -> int | None:
        """Add the frame that begins there, and answer the place behind what was read; None until more is there."""
        size, begin = self._size(at)
        if size is None:
            return None
        kept = min(size, self._limit)
        if len(self._held) - begin < kept:
            return None
        if size > kept:
            found.cut.append(len(found.frames))
            self._left = size - kept
        found.frames.append(bytes(self._held[begin : begin + kept]))
        return begin + kept

    def _size(self, at: int) -> tuple[int | None, int]:
        raise NotImplementedError


class LengthFramer(_CountedFramer):
    """Frames with their length before them, in so many bytes."""

    def __init__(self, limit: int, length_bytes: int = 4) -> None:
        super().__init__(limit)
        if length_bytes not in LENGTHS:
            raise GatewayError(f"a length has {length_bytes} bytes: choose 1, 2 or 4")
        self._length_bytes = length_bytes

    def _size(self, at: int) -> tuple[int | None, int]:
        begin = at + self._length_bytes
        return (int.from_bytes(self._held[at:begin], "big"), begin) if len(self._held) >= begin else (None, at)


class OctetFramer(_CountedFramer):
    """Frames with a count before them, as RFC 6587 has it.

    With `also_lines`, what begins with no count ends with its line (or with a NUL), and ends of lines between frames
    are passed over: so a listener need not know how its senders frame, and one sender may do both.
    """

    def __init__(self, limit: int, *, also_lines: bool = False) -> None:
        super().__init__(limit)
        self._also_lines = also_lines
        self._is_in_line = False  # that was cut
        self._seen = 0  # bytes of a line, none of which is its end

    def finish(self) -> Frames:
        if not (self._also_lines and self._held and not self._left and self._is_line(0)):
            return super().finish()
        rest, self._held, self._seen = bytes(self._held).removesuffix(b"\r"), bytearray(), 0
        return Frames([rest[: self._limit]], [0] if len(rest) > self._limit else [])

    def _frame(self, at: int, found: Frames) -> int | None:
        if self._also_lines and (self._is_in_line or self._held[at] in _ENDS_OF_LINE or self._is_line(at)):
            return self._line(at, found)
        return super()._frame(at, found)

    def _line(self, at: int, found: Frames) -> int | None:
        if not self._is_in_line and self._held[at] in _ENDS_OF_LINE:
            return at + 1
        end = _END_OF_LINE.search(self._held, at + self._seen)
        if end is not None:
            if not self._is_in_line:
                line = bytes(self._held[at : end.start()]).removesuffix(b"\r")
                if len(line) > self._limit:
                    found.cut.append(len(found.frames))
                found.frames.append(line[: self._limit])
            self._is_in_line, self._seen = False, 0
            return end.end()
        self._seen = len(self._held) - at
        if not self._is_in_line:
            if self._seen <= self._limit + 1:  # the last of them may be a carriage return
                return None
            found.cut.append(len(found.frames))
            found.frames.append(bytes(self._held[at : at + self._limit]))
            self._is_in_line = True
        self._seen = 0
        return len(self._held)

    def _is_line(self, at: int) -> bool:
        """Whether it is certain that no count stands there."""
        return _NO_COUNT.match(self._held, at, at + _MOST_DIGITS + 1) is not None

    def _size(self, at: int) -> tuple[int | None, int]:
        if (count := _COUNT.match(self._held, at, at + _MOST_DIGITS + 1)) is not None:
            return int(count[1]), count.end()
        if (other := _NO_COUNT.match(self._held, at, at + _MOST_DIGITS + 1)) is not None:
            self._problem = f"a count and a space were to stand before the frame, where {bytes(other[0])!r} stands"
        return None, at
