"""One client's side of the protocol without a socket: bytes in, frames in order; answers in order, bytes out.

The shell (`connection.py`) reads into `room()`, says how much came, takes frames, opens a slot for each answer and
fills it when the answer is there, and writes what `gather` gives it.

What always holds:
- answers leave in the order in which their slots were opened, however long one of them is waited for;
- with too many answers under way, or too many bytes that the client does not read, there is no next frame: what has
  come waits where it is, and the shell reads no more;
- all channels receive into one shared buffer, which is nobody's between two reads: `put_away` moves what is left of
  one client's bytes to a buffer of its own before another client's come;
- that buffer grows with what has come, not with what a length announces, and goes when it is no longer needed;
- a frame of more than `SHARED_BUFFER_BYTES` lies in the channel's own buffer, and stays there as it is until the next
  frame is asked for.
"""

from collections import deque
from collections.abc import Callable
from struct import Struct

from headrace.broker.metrics import QUICK_S, ApiStats
from headrace.broker.turns import Deferred
from headrace.protocol.errors import FrameTooLarge, MalformedMessage
from headrace.storage.segment import FileSlice

SHARED_BUFFER_BYTES = 256 * 1024
MAX_UNDER_WAY = 128  # requests of one connection; Kafka's clients have five
MAX_UNSENT_BYTES = 1024 * 1024
KEPT_BUFFER_BYTES = 4 * 1024 * 1024  # a larger one is made for a single frame, and goes with it
_FIRST_BUFFER_BYTES = 16 * 1024
MAX_PARTS = 64  # in one call of sendmsg

_SIZE = Struct(">i")

Sendable = bytes | bytearray | memoryview
Part = Sendable | FileSlice


class Slot:
    """An answer's place in the order of answers, and when its request was received, begun and handled."""

    __slots__ = ("began_s", "handled_s", "is_ready", "parts", "promise", "received_s", "stats")

    def __init__(self) -> None:
        self.is_ready = False
        self.parts: list[Part] = []
        self.promise: Deferred[object] | None = None  # who is told that nobody waits any more
        self.stats: ApiStats | None = None  # where the times are counted, which are set with it
        self.received_s: float
        self.began_s: float
        self.handled_s = 0.0  # when it was found that the answer has to wait, if it has


class Channel:
    """What has come from a client and is not served yet, and what is to go to it."""

    def __init__(self, shared: bytearray, max_frame_bytes: int) -> None:
        self._shared = shared
        self.max_frame_bytes = max_frame_bytes
        self.max_under_way = MAX_UNDER_WAY
        self.is_muted = False  # whether the client has to wait since it used too much
        self._own: bytearray | None = None
        self._start = 0  # the bytes that are not served yet are from here …
        self._end = 0  # … to here, in our own buffer if there is one, else in the shared one
        self._slots: deque[Slot] = deque()
        self._out: deque[Part] = deque()
        self.unsent_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether the client has to take answers before anything more is served."""
        return len(self._slots) >= self.max_under_way or self.unsent_bytes > MAX_UNSENT_BYTES

    @property
    def buffer_bytes(self) -> int:
        """What this client's received bytes occupy, beside the buffer that all share."""
        return len(self._own) if self._own is not None else 0

    # --- in

    def room(self) -> memoryview:
        """Where the next bytes go; to be filled from its beginning, and followed by `received`."""
        own = self._own
        if own is None:
            return memoryview(self._shared)
        wanted = self._begun_frame_size()
        if self._start + wanted > len(own) or self._end == len(own):
            own = self._make_room(own, wanted)
        return memoryview(own)[self._end :]

    def _begun_frame_size(self) -> int:
        """How large the frame is that has begun to come, its size included; 4 as long as that is not known."""
        if self._end - self._start < _SIZE.size:
            return _SIZE.size
        size: int = _SIZE.unpack_from(self._own or self._shared, self._start)[0]
        return _SIZE.size + size

    def _make_room(self, own: bytearray, wanted: int) -> bytearray:
        """Move an unfinished frame to the front, and to a buffer of twice the size once it has filled this one."""
        left = self._end - self._start
        if left == len(own) or (self._end == len(own) and len(own) < SHARED_BUFFER_BYTES):
            # Room for two frames: the next one begins in the same read, and need not be moved.
            grown = bytearray(min(2 * len(own), max(2 * wanted, SHARED_BUFFER_BYTES)))
            grown[:left] = memoryview(own)[self._start : self._end]
            self._own = own = grown
        elif self._start:
            own[:left] = own[self._start : self._end]
        self._start, self._end = 0, left
        return own

    def received(self, count: int) -> None:
        self._end += count

    def next_frame(self) -> memoryview | None:
        """The next whole frame, without its size; None if there is none, or the client has to read or to wait first."""
        start = self._start + _SIZE.size
        if start > self._end or self.is_muted:
            return None
        if len(self._slots) >= self.max_under_way or self.unsent_bytes > MAX_UNSENT_BYTES:  # `is_full`, without a call
            return None
        buffer = self._own if self._own is not None else self._shared
        (size,) = _SIZE.unpack_from(buffer, self._start)
        if size < 0:
            raise MalformedMessage(f"a frame's size is {size}", self._start)
        if size > self.max_frame_bytes:
            raise FrameTooLarge(size, self.max_frame_bytes)
        end = start + size
        if end > self._end:
            return None
        self._start = end
        return memoryview(buffer)[start:end]

    def put_away(self) -> None:
        """Leave the shared buffer to others. Nothing may be in use of a frame that lies there."""
        left = self._end - self._start
        own = self._own
        if own is None:
            if left:
                self._own = bytearray(max(2 * left, _FIRST_BUFFER_BYTES))
                self._own[:left] = memoryview(self._shared)[self._start : self._end]
            self._start, self._end = 0, left
        elif not left:
            self._start = self._end = 0
            if len(own) > KEPT_BUFFER_BYTES:
                self._own = None

    def release_buffer(self) -> None:
        """Let go of a buffer that nothing is in: the client has been silent for a while."""
        if self._start == self._end:
            self._own = None
            self._start = self._end = 0

    # --- order

    def has_slots(self, but: Callable[[Slot], bool]) -> bool:
        """Whether answers are waited for, other than those that `but` names."""
        return not all(but(slot) for slot in self._slots)

    def open_slot(self) -> Slot:
        """The place of the answer to the frame that was taken last."""
        slot = Slot()
        self._slots.append(slot)
        return slot

    def fill(self, slot: Slot, parts: list[Part], now_s: float) -> bool:
        """Put an answer in its place; whether there is something to send that was not before."""
        slot.parts = parts
        slot.is_ready = True
        slot.promise = None
        if slot.handled_s and slot.stats is not None:
            slot.stats.wait.observe(now_s - slot.handled_s)
        else:
            slot.handled_s = now_s
        slots = self._slots
        if not slots or slots[0] is not slot:
            return False
        out = self._out
        while slots and slots[0].is_ready:
            slot = slots.popleft()
            size_bytes = 0
            for part in slot.parts:
                out.append(part)
                size_bytes += len(part)
            self.unsent_bytes += size_bytes
            stats = slot.stats
            if stats is not None:
                stats.response_bytes += size_bytes
                took_s = now_s - slot.received_s
                if took_s > QUICK_S:
                    stats.finish(slot.received_s, slot.began_s, slot.handled_s, now_s)
                else:
                    stats.quick += 1
                    stats.quick_s += took_s
        return True

    # --- out

    @property
    def has_unsent(self) -> bool:
        return bool(self._out)

    def gather(self, view_of: Callable[[FileSlice], memoryview], max_parts: int = MAX_PARTS) -> list[Sendable]:
        """What one system call is to send: as many parts as it takes, up to the beginning of a large slice.

        They are to be given back with `sent`.
        """
        out = self._out
        parts: list[Sendable] = []
        while out and len(parts) < max_parts:
            part = out.popleft()
            if not isinstance(part, FileSlice):
                parts.append(part)
                continue
            view = view_of(part)
            parts.append(view)
            if len(view) < part.size:
                out.appendleft(FileSlice(part.file, part.position + len(view), part.size - len(view)))
                break
        return parts

    def sent(self, parts: list[Sendable], count: int) -> None:
        """The socket took so many bytes of what was gathered; the rest goes back to the front."""
        self.unsent_bytes -= count
        for index, part in enumerate(parts):
            if count < len(part):
                # What is mapped stays mapped until it is sent: mapping it again would cost more than sending it.
                self._out.extendleft(reversed([memoryview(part)[count:], *parts[index + 1 :]]))
                return
            count -= len(part)

    # --- the end

    def close(self) -> None:
        """Forget everything, and tell those who still work on an answer that nobody waits for it."""
        slots, self._slots = self._slots, deque()
        self._out.clear()
        self._own = None
        self._start = self._end = 0
        for slot in slots:
            if slot.promise:
                slot.promise.abandon()
