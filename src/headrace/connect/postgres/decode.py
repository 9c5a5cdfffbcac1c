"""pgoutput, protocol 1 to 4: from messages to events in commit order. Pure: bytes in, events out.

`Decoder.feed` takes one message of the stream and puts what it means onto `events`. Transactions that arrive in pieces
before their end (streamed) or are prepared first (two-phase) are held by `assembly` and decoded when they commit.

What always holds: events are in the order of commits; a transaction that ended before `start` is left out, and of the
one that `start` stands inside only what comes behind; a change is counted whether or not its table is captured, so that
a count means the same after a change of settings.
"""

import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, TypeAlias

from headrace.connect.change import (
    CREATE,
    DELETE,
    TRUNCATE,
    UPDATE,
    Change,
    Event,
    Message,
    Origin,
    Place,
    TransactionEnd,
)
from headrace.connect.postgres.assembly import Assembly, Piece
from headrace.connect.postgres.relation import (
    CorruptMessage,
    LogPosition,
    Parse,
    Relation,
    read_relation,
    read_text,
    tuple_parser,
)
from headrace.connect.table import UNCHANGED, Row, Table

POSTGRES_EPOCH_US: Final = 946_684_800_000_000
# What the shell makes of an announced relation: the table, or None if nobody wants it; events may come with it. The
# last argument says that it stands before the start, and that what follows from it was drawn before.
Resolve: TypeAlias = Callable[[Relation, Origin, Place, bool], tuple[Table | None, Iterable[Event]]]

_BEGIN: Final = struct.Struct(">QqI").unpack_from  # commit LSN, time, xid
_COMMIT: Final = struct.Struct(">BQQq").unpack_from  # flags, commit LSN, end LSN, time
_STREAM_COMMIT: Final = struct.Struct(">IBQQq").unpack_from
_PREPARE: Final = struct.Struct(">QQqI").unpack_from  # prepare LSN, end LSN, time, xid
_ID: Final = struct.Struct(">I").unpack_from
_NEW, _KEY, _OLD = ord("N"), ord("K"), ord("O")
_INSERT, _UPDATE, _DELETE, _TRUNCATE, _MESSAGE = (ord(letter) for letter in "IUDTM")
_IN_A_STREAM: Final = frozenset(b"IUDTMRYO")
_new: Final = tuple.__new__  # a change without the detour through its keyword arguments
_ALL: Final = 1 << 62  # more changes than any transaction has
_OWN: Final = ("sequence", "lsn")
_NOBODY: Final = Origin(None, 0, own=("lsn",))
_REMEMBERED: Final = 4096  # transactions that went by


class Decoder:
    """One replication stream."""

    def __init__(self, resolve: Resolve, start: LogPosition, *, assembly: Assembly | None = None) -> None:
        self.events: list[Event] = []
        self.went_by: deque[str] = deque(maxlen=_REMEMBERED)  # the transactions that were told last
        self.has_marks = False  # whether there were messages or truncates, so far
        self.has_short_moves = False  # whether rows moved to another key without all of them being sent, so far
        self._resolve = resolve
        self._start = start
        self._assembly = assembly or Assembly()
        self._tables: dict[int, tuple[Table, Parse] | None] = {}
        self._done_lsn = start.lsn  # the end of the last transaction that was decoded whole
        self._commit_lsn = 0  # of the transaction that is being decoded; 0 between transactions
        self._count = 0  # of the changes in it so far
        self._skipped = 0  # how many of them were handed out before the start
        self._origin = _NOBODY
        self._streamed_xid: int | None = None  # inside a piece of a streamed transaction
        self._preparing: int | None = None  # inside a transaction that is being prepared
        self._holds = False  # inside either
        self._replayed: Iterator[Piece] | None = None  # what is left of a held transaction that has committed
        self._replayed_end = 0
        self._lsn = 0
        self._others = {
            ord("B"): self._begin,
            ord("C"): self._commit,
            ord("O"): self._replicated,
            ord("R"): self._relation,
            ord("Y"): self._type,
            ord("S"): self._stream_start,
            ord("E"): self._stream_stop,
            ord("c"): self._stream_commit,
            ord("A"): self._stream_abort,
            ord("b"): self._begin_prepare,
            ord("P"): self._prepare,
            ord("K"): self._commit_prepared,
            ord("r"): self._rollback_prepared,
            ord("p"): self._stream_prepare,
        }

    @property
    def position(self) -> LogPosition:
        """Behind the last event."""
        if self._commit_lsn and self._skipped < _ALL:
            count = max(self._count, self._skipped)  # what was handed out before the start stays so
            if count:
                return LogPosition(self._done_lsn, self._commit_lsn, count)
        return self._start if self._start_is_ahead() else LogPosition(self._done_lsn)

    @property
    def in_transaction(self) -> bool:
        return bool(self._commit_lsn)

    @property
    def is_replaying(self) -> bool:
        """Whether a held transaction that has committed is not decoded to its end."""
        return self._replayed is not None

    @property
    def held_lsn(self) -> int | None:
        """Where the oldest prepared transaction that has not ended stands: nothing from there on is to be forgotten."""
        return self._assembly.oldest_prepared

    def feed(self, data: bytes, at: int, lsn: int) -> bool:
        """Decode the message at `at`; `lsn` is its place in the log. Whether `advance` comes before the next one."""
        kind = data[at]
        if self._holds and kind in _IN_A_STREAM:
            self._hold(data, at, lsn)
        elif kind == _INSERT:
            # What there is most of, without a call more than it needs.
            self._count += 1
            if self._count > self._skipped:
                known = self._tables[_ID(data, at + 1)[0]]
                if known is not None:
                    table, parse = known
                    after, _ = parse(data, data.decode("latin-1"), at + 6)
                    self.events.append(_new(Change, (table, CREATE, None, after, self._origin, lsn)))
        elif kind == _UPDATE:
            self._update(data, at, lsn)
        elif kind == _DELETE:
            self._delete(data, at, lsn)
        elif kind == _TRUNCATE:
            self._truncate(data, at, lsn)
        elif kind == _MESSAGE:
            self._message(data, at, lsn)
        else:
            other = self._others.get(kind)
            if other is None:
                raise CorruptMessage(f"the replication stream has a message of the unknown kind {chr(kind)!r}")
            self._lsn = lsn
            other(data, at + 1)
            return self._replayed is not None
        return False

    def move_on(self, lsn: int) -> None:
        """Between transactions, take note that there is nothing of interest up to here."""
        if not self._commit_lsn and lsn > self._done_lsn and not self._start_is_ahead():
            self._done_lsn = lsn

    def _start_is_ahead(self) -> bool:
        return bool(self._start.commit_lsn) and self._done_lsn == self._start.lsn

    # --- changes

    def _hold(self, data: bytes, at: int, lsn: int) -> None:
        """Keep a message of a transaction that is not decided."""
        if self._streamed_xid is not None:
            xid = _ID(data, at + 1)[0]
            self._assembly.add(self._streamed_xid, Piece(xid, lsn, data[at : at + 1] + data[at + 5 :]))
        elif self._preparing is not None:
            self._assembly.add(self._preparing, Piece(self._preparing, lsn, data[at:]))

    def _update(self, data: bytes, at: int, lsn: int) -> None:
        self._count += 1
        if self._count <= self._skipped:
            return
        known = self._tables[_ID(data, at + 1)[0]]
        if known is None:
            return
        table, parse = known
        text = data.decode("latin-1")
        before: Row | None = None
        at += 5
        if data[at] != _NEW:
            is_whole = data[at] == _OLD
            before, at = parse(data, text, at + 1)
            after = parse(data, text, at + 1)[0]
            is_short = UNCHANGED in after
            if is_short:
                after = _completed(before, after)
            if not is_whole:
                if table.key_of(before) == table.key_of(after):
                    before = None  # only the key was sent, and it is the same
                elif is_short:
                    self.has_short_moves = True
        else:
            after = parse(data, text, at + 1)[0]
        self.events.append(_new(Change, (table, UPDATE, before, after, self._origin, lsn)))

    def _delete(self, data: bytes, at: int, lsn: int) -> None:
        self._count += 1
        if self._count <= self._skipped:
            return
        known = self._tables[_ID(data, at + 1)[0]]
        if known is not None:
            table, parse = known
            before = parse(data, data.decode("latin-1"), at + 6)[0]
            self.events.append(Change(table, DELETE, before, None, self._origin, lsn))

    def _truncate(self, data: bytes, at: int, lsn: int) -> None:
        self.has_marks = True
        self._count += 1
        if self._count <= self._skipped:
            return
        for index in range(_ID(data, at + 1)[0]):
            known = self._tables.get(_ID(data, at + 6 + 4 * index)[0])
            if known is not None:
                self.events.append(Change(known[0], TRUNCATE, None, None, self._origin, lsn))

    def _message(self, data: bytes, at: int, lsn: int) -> None:
        self.has_marks = True
        is_transactional = bool(data[at + 1] & 1)
        message_lsn = int.from_bytes(data[at + 2 : at + 10])
        if is_transactional:
            self._count += 1
            if self._count <= self._skipped:
                return
        else:
            # It counts where it stands, whatever becomes of the transactions around it.
            start = self._start.commit_lsn if self._start_is_ahead() else 0
            if message_lsn < max(self._done_lsn, start):
                return
            if not self._commit_lsn:
                self._done_lsn = message_lsn + 1
        prefix, at = read_text(data, at + 10)
        size = _ID(data, at)[0]
        content = data[at + 4 : at + 4 + size]
        origin = self._origin
        if not is_transactional and self._commit_lsn:
            origin = Origin(None, 0, own=_OWN, committed_lsn=self._origin.committed_lsn)
        self.events.append(Message(prefix, content, is_transactional, origin, lsn or message_lsn))

    # --- relations

    def _relation(self, data: bytes, at: int) -> None:
        relation = read_relation(data, at)
        is_known = self._count < self._skipped
        table, events = self._resolve(relation, self._origin, self._lsn, is_known)
        self.events.extend(events)
        self._tables[relation.id] = None if table is None else (table, tuple_parser(len(relation.columns)))

    def _type(self, _data: bytes, _at: int) -> None:
        """The name of a type; the catalog says more about it, and is asked when a relation needs it."""

    def _replicated(self, _data: bytes, _at: int) -> None:
        """This transaction came from another server, whose name stands here; a change is a change all the same."""

    # --- transactions

    def _begin(self, data: bytes, at: int) -> None:
        commit_lsn, time, xid = _BEGIN(data, at)
        self._enter(commit_lsn, time, xid)

    def _enter(self, commit_lsn: int, time: int, xid: int) -> None:
        ts_us = time + POSTGRES_EPOCH_US
        self._origin = Origin(str(xid), ts_us, "false", {"txId": xid, "xmin": None}, _OWN, self._done_lsn)
        self._commit_lsn = commit_lsn
        self._count = 0
        if commit_lsn < self._done_lsn:
            self._skipped = _ALL
        elif commit_lsn == self._start.commit_lsn:
            self._skipped = self._start.count
        else:
            self._skipped = 0

    def _commit(self, data: bytes, at: int) -> None:
        self._leave(_COMMIT(data, at)[2])

    def _leave(self, end_lsn: int) -> None:
        if end_lsn > self._done_lsn:
            self.events.append(TransactionEnd(self._origin))
            self.went_by.append(str(self._origin.transaction_id))
            self._done_lsn = end_lsn
        self._commit_lsn = 0
        self._origin = _NOBODY

    # --- transactions in pieces

    def _stream_start(self, data: bytes, at: int) -> None:
        self._streamed_xid = _ID(data, at)[0]
        self._holds = True

    def _stream_stop(self, _data: bytes, _at: int) -> None:
        self._streamed_xid = None
        self._holds = False

    def _stream_abort(self, data: bytes, at: int) -> None:
        self._assembly.abort(_ID(data, at)[0], _ID(data, at + 4)[0])

    def _stream_commit(self, data: bytes, at: int) -> None:
        xid, _flags, commit_lsn, end_lsn, time = _STREAM_COMMIT(data, at)
        self._replay(xid, commit_lsn, end_lsn, time)

    def _replay(self, xid: int, commit_lsn: int, end_lsn: int, time: int) -> None:
        self._enter(commit_lsn, time, xid)
        self._replayed = self._assembly.take(xid)
        self._replayed_end = end_lsn

    def advance(self, messages: int) -> bool:
        """Decode some messages of a held transaction that has committed; whether there is nothing more of it.

        It may be larger than memory, so who calls `feed` calls this until it is true before the next `feed`.
        """
        if self._replayed is None:
            return True
        for piece in islice(self._replayed, messages):
            self.feed(piece.data, 0, piece.lsn)
            messages -= 1
        if messages == 0:
            return False
        self._replayed = None
        self._leave(self._replayed_end)
        return True

    def _begin_prepare(self, data: bytes, at: int) -> None:
        self._preparing = _PREPARE(data, at)[3]
        self._holds = True

    def _prepare(self, data: bytes, at: int) -> None:
        prepare_lsn, _end, _time, xid = _PREPARE(data, at + 1)
        self._preparing = None
        self._holds = False
        self._assembly.prepare(xid, prepare_lsn)

    def _stream_prepare(self, data: bytes, at: int) -> None:
        prepare_lsn, _end, _time, xid = _PREPARE(data, at + 1)
        self._assembly.prepare(xid, prepare_lsn)

    def _commit_prepared(self, data: bytes, at: int) -> None:
        commit_lsn, end_lsn, time, xid = _PREPARE(data, at + 1)
        self._replay(xid, commit_lsn, end_lsn, time)

    def _rollback_prepared(self, data: bytes, at: int) -> None:
        self._assembly.abort(_ID(data, at + 33)[0], _ID(data, at + 33)[0])


def _completed(before: Row, after: Row) -> Row:
    """A row with the values that were not sent again taken from the old one, as far as that was sent."""
    return tuple(old if new is UNCHANGED and old is not None else new for old, new in zip(before, after, strict=True))
