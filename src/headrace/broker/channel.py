"""One client's side of the protocol without a socket: bytes in, frames in order; answers in order, bytes out.

The shell (`connection.py`) reads into `room()`, says how much came, takes frames, opens a slot for each answer and
fills it when the answer is there, and writes what `gather` gives it, or has a thread write what `lend` does.

What always holds:
- answers leave in the order in which their slots were opened, however long one of them is waited for;
- with too many answers under way, or too many bytes that the client does not read, there is no next frame: what has
  come waits where it is, and the shell reads no more;
- all channels receive into one shared buffer, which is nobody's between two reads: `put_away` moves what is left of
  one client's bytes to a buffer of its own before another client's come;
- that buffer grows with what has come, not with what a length announces, and goes when it is no longer needed; what
  all channels hold in theirs is bounded (`load.py`), and a channel that may hold no more has no room;
- a frame of more than `KEPT_BUFFER_BYTES` comes into memory of its own size that the system hands out page by page as
  it is filled: nothing of it is copied on the way;
- a frame of more than `SHARED_BUFFER_BYTES` lies in the channel's own buffer, and stays there as it is until the next
  frame is asked for.
"""

import mmap
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from struct import Struct

from headrace.broker.file_views import LENT_WINDOW, READ_FOR_THREAD_UP_TO
from headrace.broker.load import FLOOR_BYTES, Share
from headrace.broker.metrics import QUICK_S, ApiStats
from headrace.broker.turns import Deferred, Steps, run_through
from headrace.protocol.errors import FrameTooLarge, MalformedMessage
from headrace.storage.segment import FileSlice

SHARED_BUFFER_BYTES = 256 * 1024
MAX_UNDER_WAY = 128  # requests of one connection; Kafka's clients have five
MAX_UNSENT_BYTES = 1024 * 1024
KEPT_BUFFER_BYTES = 4 * 1024 * 1024  # a larger one is made for a single frame, and goes with it
MAX_UNDER_WAY_BYTES = 1024 * 1024  # of requests of one connection; a larger one is under way alone
MAX_OTHER_BYTES = 16 * 1024 * 1024  # of a request that produces nothing: 50,000 of the longest names
_SMALL_BYTES = 4 * 1024  # a request up to this is only counted
_MAPPED_STEP_BYTES = 256 * 1024  # so much of a large frame is held and read at a time: each 4 KiB is a page to find
_UNMAPPED_STEP_BYTES = 1024 * 1024
MAX_PARTS = 64  # in one call of sendmsg
MAX_GATHERED_BYTES = 1024 * 1024 + 64 * 1024  # a window of a file, and what is around it: half a turn's work
LENT_FROM_BYTES = 2 * 1024 * 1024  # less, as what a consumer fetches by default, costs less to send than to lend
LENT_AT_LEAST_BYTES = 512 * 1024  # and this much where many fetch it
_LENT_IN_MEMORY_BYTES = 64 * 1024  # that are read or ours: what is lent is mapped for the most part

_MAPPED = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_SIZE = Struct(">i")

Sendable = bytes | bytearray | memoryview
Part = Sendable | FileSlice


class Slot:
    """An answer's place in the order of answers, and when its request was received, begun and handled."""

    __slots__ = (
        "began_s",
        "handled_s",
        "is_ready",
        "parts",
        "promise",
        "received_s",
        "request_bytes",
        "size_bytes",
        "stats",
    )

    def __init__(self, request_bytes: int) -> None:
        self.is_ready = False
        self.request_bytes = request_bytes
        self.size_bytes = 0  # of the answer
        self.parts: Sequence[Part] = ()
        self.promise: Deferred[object] | None = None  # who is told that nobody waits any more
        self.stats: ApiStats | None = None  # where the times are counted, which are set with it
        self.received_s: float
        self.began_s: float
        self.handled_s = 0.0  # when it was found that the answer has to wait, if it has


def _in_memory(parts: Iterable[Part]) -> int:
    """How many bytes are ours, and not a file's."""
    return sum(len(part) for part in parts if not isinstance(part, FileSlice))


def _behind(part: Part, count: int) -> Part:
    if isinstance(part, FileSlice):
        return FileSlice(part.file, part.position + count, part.size - count)
    return memoryview(part)[count:]


def _unmapping(mapped: mmap.mmap) -> Steps[None]:
    """Give back the memory of a large frame: 100 MB at once take the system ten milliseconds."""
    try:
        while len(mapped) > _UNMAPPED_STEP_BYTES:
            mapped.resize(len(mapped) - _UNMAPPED_STEP_BYTES)
            yield
    except BufferError:
        return  # somebody is still at it, and it goes when they are through


class Channel:
    """What has come from a client and is not served yet, and what is to go to it."""

    def __init__(
        self, shared: bytearray, max_frame_bytes: int, share: Share, run: Callable[[Steps[None]], None] = run_through
    ) -> None:
        """`run` takes turns: memory that is given back in steps."""
        self._run = run
        self._shared = shared
        self._share = share
        self._load = share.load
        self.max_frame_bytes = max_frame_bytes
        self.max_under_way = MAX_UNDER_WAY
        self.is_muted = False  # whether the client has to wait since it used too much
        self._own: bytearray | mmap.mmap | None = None
        self._start = 0  # the bytes that are not served yet are from here …
        self._end = 0  # … to here, in our own buffer if there is one, else in the shared one
        self._slots: deque[Slot] = deque()
        self._out: deque[Part] = deque()
        self._lent: list[Part] = []  # what is being sent, before all that is to go out
        self.unsent_bytes = 0  # of answers that are there, whether it is their turn or not
        self._frame_bytes = 0  # of the frame that was taken last
        self._under_way_bytes = 0  # of the frames whose answers are not there yet

    @property
    def is_full(self) -> bool:
        """Whether the client has to take answers before anything more is served."""
        under_way = len(self._slots)
        return self.unsent_bytes > MAX_UNSENT_BYTES or (
            under_way > 0
            and (
                under_way >= self.max_under_way or self._under_way_bytes > MAX_UNDER_WAY_BYTES or self._load.is_crowded
            )
        )

    @property
    def buffer_bytes(self) -> int:
        """What this client's received bytes occupy, beside the buffer that all share."""
        return self._share.held_bytes

    # --- in

    def room(self) -> memoryview:
        """Where the next bytes go; to be filled from its beginning, and followed by `received`.

        It is empty if this channel may hold no more now: it is woken when it may.
        """
        own = self._own
        if own is None:
            # What is left of it when the others' turn comes has to be held in any case.
            return memoryview(self._shared)[: FLOOR_BYTES if self._load.is_tight else None]
        if isinstance(own, mmap.mmap):
            return self._mapped_room(own)
        wanted = self._begun_frame_size()
        if self._start + wanted > len(own) or self._end == len(own):
            return self._make_room(own, wanted)
        return memoryview(own)[self._end :]

    def _begun_frame_size(self) -> int:
        """How large the frame is that has begun to come, its size included; 4 as long as that is not known."""
        if self._end - self._start < _SIZE.size:
            return _SIZE.size
        size: int = _SIZE.unpack_from(self._own or self._shared, self._start)[0]
        return _SIZE.size + size

    def _make_room(self, own: bytearray, wanted: int) -> memoryview:
        """Move an unfinished frame to the front, and to a buffer of twice the size once it has filled this one."""
        left = self._end - self._start
        if left == len(own) or (self._end == len(own) and len(own) < SHARED_BUFFER_BYTES):
            # Room for two frames: the next one begins in the same read, and need not be moved.
            size = min(2 * len(own), max(2 * wanted, SHARED_BUFFER_BYTES))
            # As soon as much of it has come: a buffer that doubles is copied, and cleared, for milliseconds.
            is_mapped = wanted > KEPT_BUFFER_BYTES and size > SHARED_BUFFER_BYTES
            if not self._share.hold(left + _MAPPED_STEP_BYTES if is_mapped else size):
                return memoryview(b"")
            grown: bytearray | mmap.mmap
            grown = mmap.mmap(-1, wanted, flags=_MAPPED) if is_mapped else bytearray(size)
            memoryview(grown)[:left] = memoryview(own)[self._start : self._end]
            self._own = grown
        elif self._start:
            grown = own
            own[:left] = own[self._start : self._end]
        else:
            grown = own
        self._start, self._end = 0, left
        return self._mapped_room(grown) if isinstance(grown, mmap.mmap) else memoryview(grown)[left:]

    def _mapped_room(self, own: mmap.mmap) -> memoryview:
        """The next part of a large frame, which ends where its memory does."""
        if self._share.held_bytes < self._end + _MAPPED_STEP_BYTES // 2:
            self._share.hold(self._end + _MAPPED_STEP_BYTES)
        return memoryview(own)[self._end : max(self._share.held_bytes, self._end)]

    def received(self, count: int) -> None:
        self._end += count

    def next_frame(self) -> memoryview | None:
        """The next whole frame, without its size; None if there is none, or the client has to read or to wait first."""
        start = self._start + _SIZE.size
        if start > self._end or self.is_full or self.is_muted:
            return None
        buffer = self._own if self._own is not None else self._shared
        (size,) = _SIZE.unpack_from(buffer, self._start)
        if size < 0:
            raise MalformedMessage(f"a frame's size is {size}", self._start)
        if size > self.max_frame_bytes:
            raise FrameTooLarge(size, self.max_frame_bytes)
        if size > MAX_OTHER_BYTES and start + 2 <= self._end and (buffer[start] or buffer[start + 1]):
            raise FrameTooLarge(size, MAX_OTHER_BYTES)
        end = start + size
        if end > self._end:
            return None
        self._start = end
        # What is produced is in the log once it is handled; anything else may be kept until it is answered.
        self._frame_bytes = size if size > _SMALL_BYTES and (buffer[start] or buffer[start + 1]) else 0
        return memoryview(buffer)[start:end]

    def put_away(self, *, is_in_use: bool = False) -> None:
        """Leave the shared buffer to others. Nothing may be in use of a frame that lies there.

        One that lies in our own buffer may be.
        """
        left = self._end - self._start
        own = self._own
        if own is None:
            if left:
                size = max(2 * left if self._load.has_room(2 * left) else left, FLOOR_BYTES)
                self._share.hold_at_least(size)
                self._own = bytearray(size)
                self._own[:left] = memoryview(self._shared)[self._start : self._end]
            self._start, self._end = 0, left
        elif is_in_use:
            return
        elif not left:
            self._start = self._end = 0
            if len(own) > KEPT_BUFFER_BYTES or self._load.is_tight:
                self._drop_buffer()
        elif self._start:
            self._share.begin_anew()

    def release_buffer(self) -> None:
        """Let go of a buffer that nothing is in: the client has been silent for a while."""
        if self._start == self._end:
            self._start = self._end = 0
            self._drop_buffer()

    def _drop_buffer(self) -> None:
        own, self._own = self._own, None
        if own is not None:
            self._share.hold(0)
        if isinstance(own, mmap.mmap):
            self._run(_unmapping(own))

    # --- order

    def has_slots(self, but: Callable[[Slot], bool]) -> bool:
        """Whether answers are waited for, other than those that `but` names."""
        return not all(but(slot) for slot in self._slots)

    def open_slot(self) -> Slot:
        """The place of the answer to the frame that was taken last."""
        slot = Slot(self._frame_bytes)
        self._slots.append(slot)
        self._under_way_bytes += slot.request_bytes
        self._load.under_way += 1
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
        if not slots:
            return False
        self._under_way_bytes -= slot.request_bytes
        size_bytes = 0
        for part in parts:
            size_bytes += len(part)
        slot.size_bytes = size_bytes
        self.unsent_bytes += size_bytes
        if slots[0] is not slot:
            self._share.hold_unsent(self._share.unsent_bytes + _in_memory(parts))
            return False
        out = self._out
        before = len(slots)
        while slots and slots[0].is_ready:
            slot = slots.popleft()
            out.extend(slot.parts)
            stats = slot.stats
            if stats is not None:
                stats.response_bytes += slot.size_bytes
                took_s = now_s - slot.received_s
                if took_s > QUICK_S:
                    stats.finish(slot.received_s, slot.began_s, slot.handled_s, now_s)
                else:
                    stats.quick += 1
                    stats.quick_s += took_s
        self._load.under_way -= before - len(slots)
        return True

    # --- out

    @property
    def has_requests(self) -> bool:
        """Whether answers are not there yet."""
        return bool(self._slots)

    @property
    def has_unsent(self) -> bool:
        return bool(self._out or self._lent)

    def gather(self, view_of: Callable[[FileSlice], memoryview], max_parts: int = MAX_PARTS) -> list[Sendable]:
        """What one system call is to send: as many parts as it takes, up to the beginning of a large slice.

        They are to be given back with `take_back`.
        """
        out = self._out
        parts: list[Sendable] = []
        size = 0
        while out and len(parts) < max_parts and size < MAX_GATHERED_BYTES:
            part = out[0]
            size += len(part)
            view = self._hand_out(part, view_of)
            parts.append(view)
            if len(view) < len(part):
                break
        return parts

    def _hand_out(self, part: Part, view_of: Callable[[FileSlice], memoryview]) -> Sendable:
        """The bytes of the first part, or the first of them; the rest stays first."""
        self._out.popleft()
        if not isinstance(part, FileSlice):
            self._lent.append(part)
            return part
        view = view_of(part)
        if len(view) < part.size:
            self._out.appendleft(_behind(part, len(view)))
        # What is not sent is mapped again: each mapping takes a descriptor, and who reads slowly would keep it.
        self._lent.append(FileSlice(part.file, part.position, len(view)) if isinstance(view.obj, mmap.mmap) else view)
        return view

    def hold_unsent(self) -> None:
        """Count what waits to be sent as held: the socket takes no more, or has taken all."""
        waiting = sum(_in_memory(slot.parts) for slot in self._slots) if self._share.unsent_bytes else 0
        self._share.hold_unsent(_in_memory(self._lent) + _in_memory(self._out) + waiting)

    def lend(self, view_of: Callable[[FileSlice], memoryview], from_bytes: int = LENT_FROM_BYTES) -> list[memoryview]:
        """What a thread is to send: the first part of large answers, or nothing if they are not that large.

        Nothing is gathered until it is taken back.
        """
        if self.unsent_bytes < from_bytes:
            return []
        out = self._out
        count = size = in_memory = 0
        for part in out:
            if not isinstance(part, FileSlice) or part.size <= READ_FOR_THREAD_UP_TO:
                in_memory += len(part)
            if size >= LENT_WINDOW or count == MAX_PARTS or in_memory > _LENT_IN_MEMORY_BYTES:
                break
            size += len(part)
            count += 1
        if size < LENT_AT_LEAST_BYTES:
            return []
        views: list[memoryview] = []
        for _ in range(count):
            part = out[0]
            views.append(memoryview(self._hand_out(part, view_of)))
            if len(views[-1]) < len(part):
                break
        return views

    def take_back(self, count: int) -> bool:
        """So many bytes of what was gathered or lent were sent, and the rest is not under way; whether that is all."""
        lent, self._lent = self._lent, []
        self.unsent_bytes -= count
        for index, part in enumerate(lent):
            if count < len(part):
                self._out.extendleft(reversed([_behind(part, count), *lent[index + 1 :]]))
                return False
            count -= len(part)
        return True

    # --- the end

    def close(self) -> None:
        """Forget everything, and tell those who still work on an answer that nobody waits for it."""
        slots, self._slots = self._slots, deque()
        self._load.under_way -= len(slots)
        self._out.clear()
        self._lent.clear()
        self._drop_buffer()
        self._start = self._end = 0
        self._share.leave()
        for slot in slots:
            if slot.promise:
                slot.promise.abandon()
                slot.promise = None
