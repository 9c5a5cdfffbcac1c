"""A member of a group in a process of its own: to be killed (a crash), to stall, or to leave.

It reads, tells what it read, and commits that with a note; every message between the two sides is a tuple whose first
part says what it is. The processes are forked from one that has imported the clients already.
"""

from __future__ import annotations

import logging
import multiprocessing
import time
from typing import TYPE_CHECKING, Any, Self

from tests.conformance.clients.members import MEMBERS, Asked, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from multiprocessing.connection import Connection

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload([__name__])


class MemberProcess:
    """What the test sees of the process: what it holds, what it has read, what it was told."""

    def __init__(self, client: str, asked: Asked, note: str = "") -> None:
        self._pipe, theirs = _forks.Pipe()
        self._process = _forks.Process(target=_run, args=(client, asked, note, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self.held: frozenset[int] = frozenset()
        self.changes = 0
        self.reads: list[tuple[float, int, int]] = []
        """When, partition and offset, in the order in which they were read."""
        self.told: dict[str, Any] = {}

    def listen(self) -> None:
        """Take in what it has said."""
        try:
            while self._pipe.poll():
                what, said = self._pipe.recv()
                if what == "held":
                    self.held, self.changes = said, self.changes + 1
                elif what == "read":
                    self.reads += said
                else:
                    self.told[what] = said
        except (EOFError, ConnectionError):
            pass  # it has ended

    def tell(self, command: str) -> None:
        self._pipe.send(command)

    def answer(self, what: str) -> Any:
        """Wait until it has said this."""
        wait_for([self], lambda: what in self.told, what)
        return self.told.pop(what)

    def leave(self) -> None:
        """Close the client, as a program that ends does."""
        self.tell("leave")
        self.answer("left")
        self._end()

    def crash(self) -> None:
        """Kill it: nobody is told."""
        self._process.kill()
        self._end()

    def _end(self) -> None:
        self._process.join(30)
        self.listen()
        self.held = frozenset()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.crash()
        self._process.close()
        self._pipe.close()


def wait_for(members: Iterable[MemberProcess], is_so: Callable[[], bool], what: str, *, timeout_s: float = 90) -> None:
    """Listen to the members until something is so."""
    deadline = time.monotonic() + timeout_s
    members = list(members)
    while True:
        for each in members:
            each.listen()
        if is_so():
            return
        assert time.monotonic() < deadline, f"{what}: {[(sorted(each.held), each.told) for each in members]}"
        time.sleep(0.01)  # the pause of a poll


class _Worker:
    """The other side: reads and commits until it is told otherwise."""

    def __init__(self, client: str, asked: Asked, note: str, pipe: Connection) -> None:
        self._pipe, self._note = pipe, note
        self._uncommitted: dict[int, int] = {}
        self._is_stalling = False
        self._member = MEMBERS[client](asked, self._before_revoked)

    def _before_revoked(self) -> None:
        if self._uncommitted and not self._is_stalling:
            self._commit()

    def _commit(self) -> str:
        error = self._member.commit(self._uncommitted, self._note)
        if error == "NONE":
            self._uncommitted = {}
        return error

    def run(self) -> None:
        held: set[int] = set()
        while True:
            try:
                reads = self._member.poll()
            except Refused as refused:
                self._pipe.send(("refused", str(refused)))
                continue
            held, before = self._member.held(), held
            if held != before:
                self._pipe.send(("held", frozenset(held)))
            self._take(reads, held)
            if self._is_stalling and reads:
                self._stall()
            self._member.done()
            if self._pipe.poll() and self._obeys_leave(self._pipe.recv()):
                return

    def _take(self, reads: list[tuple[int, int, bytes]], held: set[int]) -> None:
        now = time.monotonic()
        self._uncommitted = {partition: at for partition, at in self._uncommitted.items() if partition in held}
        if reads:
            self._pipe.send(("read", [(now, partition, offset) for partition, offset, _ in reads]))
            self._uncommitted |= {partition: offset + 1 for partition, offset, _ in reads}
        if self._uncommitted and not self._is_stalling:
            self._commit()  # refused in the middle of a rebalance: tried again after the next poll

    def _obeys_leave(self, command: str) -> bool:
        if command == "leave":
            self._member.leave()
            self._pipe.send(("left", True))
            return True
        if command == "committed":
            self._pipe.send(("committed", self._member.committed(sorted(self._member.held()))))
        elif command == "stall":
            self._is_stalling = True  # with the next records
        return False

    def _stall(self) -> None:
        """Not poll until told to; then commit, too late."""
        self._pipe.send(("stalled", True))
        assert self._pipe.recv() == "resume"
        self._pipe.send(("late commit", self._commit()))
        self._uncommitted, self._is_stalling = {}, False


def _run(client: str, asked: Asked, note: str, pipe: Connection) -> None:
    logging.disable()  # clients log every rebalance as a warning
    _Worker(client, asked, note, pipe).run()
