"""Share sessions: the partitions that members of share groups fetch from, and in which order their requests come.

A member has one session (KIP-932): epoch 0 opens it, each request after that has the next epoch, -1 closes it. It is
its user's and its connection's: for anybody else there is none, and with the connection it ends, so that what the
member had goes to others at once. The number of sessions and of their partitions is bounded; who comes too late is
told so.

A session knows of which of its partitions there may be something to acquire: those are `ready`. One where there was
nothing is watched instead, until there is news of it. So a fetch costs what there is news of, however many partitions
the session has.

What a session acquires it holds under a name of its own: what is taken back after its end, which takes a while, is not
what the same member has acquired in the next one.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.broker.errors import BrokerError
from headrace.broker.fetches import MAX_PARTITIONS, Waiting
from headrace.broker.turns import Steps
from headrace.coordinator.share.records import ShareKey
from headrace.protocol.errors import ErrorCode
from headrace.security.principal import Principal
from headrace.storage.log import Log

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
_MAX_EPOCH = 2**31 - 1
_WATCHES_A_STEP = 64


class Member(NamedTuple):
    group_id: str
    member_id: str


@dataclass(slots=True, eq=False)
class ShareSession:
    member: Member
    user: Principal
    holder: str  # of what it acquires
    epoch: int = 1
    partitions: set[ShareKey] = field(default_factory=set)
    ready: dict[ShareKey, None] = field(default_factory=dict)  # whoever was served goes to the end
    watches: dict[ShareKey, "Watch"] = field(default_factory=dict)
    waiting: dict[Callable[[ShareKey], None], None] = field(default_factory=dict)  # fetches that are told of news
    connection: dict[Hashable, Callable[[], object]] = field(default_factory=dict)  # what ends with the connection
    had: set[ShareKey] = field(default_factory=set)  # where the member may have records

    def add(self, keys: Iterable[ShareKey]) -> None:
        for key in keys:
            if key not in self.partitions:
                self.partitions.add(key)
                self.ready[key] = None

    def remove(self, keys: Iterable[ShareKey]) -> None:
        for key in keys:
            self.partitions.discard(key)
            self.ready.pop(key, None)
            if watch := self.watches.pop(key, None):
                watch.stop()

    def watch(self, key: ShareKey, log: Log, appends: Waiting, releases: Waiting) -> bool:
        """Have news of a partition noted, once; False if there is no room for that."""
        if key not in self.watches and key in self.partitions:
            if not appends.has_room(len(self.partitions) - len(self.watches)):
                return False
            self.watches[key] = Watch(self, key, log, appends, releases)
        return True


class Watch:
    """Waits for what is appended to a partition, or becomes available of it, on behalf of a session."""

    __slots__ = ("_appends", "_key", "_log", "_releases", "_session")

    def __init__(self, session: ShareSession, key: ShareKey, log: Log, appends: Waiting, releases: Waiting) -> None:
        self._session, self._key, self._log = session, key, log
        self._appends, self._releases = appends, releases
        appends.add(log, self)
        releases.add(key, self)

    def __call__(self) -> None:
        """There is news. Called by whoever appended or acknowledged, so nothing is raised."""
        self.stop()
        session = self._session
        if session.watches.pop(self._key, None):
            session.ready[self._key] = None
            for tell in tuple(session.waiting):
                tell(self._key)

    def stop(self) -> None:
        self._appends.remove(self._log, self)
        self._releases.remove(self._key, self)


class ShareSessions:
    def __init__(self, slots: int, run: Callable[[Steps[None]], None]) -> None:
        """`run` takes turns: a session may have very many partitions."""
        self._slots = slots
        self._run = run
        self._sessions: dict[Member, ShareSession] = {}
        self._partition_count = 0
        self._opened = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, group_id: str, member_id: str) -> ShareSession | None:
        return self._sessions.get(Member(group_id, member_id))

    def holds(self, session: ShareSession) -> bool:
        return self._sessions.get(session.member) is session

    def open(
        self,
        member: Member,
        user: Principal,
        partitions: Iterable[ShareKey],
        connection: dict[Hashable, Callable[[], object]],
    ) -> ShareSession:
        """Begin a session, in place of the member's last one, whose records it still has."""
        self._opened += 1
        holder = f"{member.member_id}/{self._opened}"
        session = ShareSession(member, user, holder, connection=connection)
        session.add(partitions)
        before = self._sessions.get(member)
        if before is not None:
            if before.user != user:
                raise BrokerError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "the member's session is somebody else's")
            self.close(before)
            session.had, session.holder = before.had, before.holder
        if len(self._sessions) >= self._slots or self._partition_count + len(session.partitions) > MAX_PARTITIONS:
            raise _too_many()
        self._sessions[member] = session
        self._partition_count += len(session.partitions)
        return session

    def go_on(self, member: Member, user: Principal, epoch: int) -> ShareSession:
        """The session of a request that does not begin one; the final one is left to be closed."""
        session = self._sessions.get(member)
        if session is None or session.user != user:
            raise BrokerError(ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.SHARE_SESSION_NOT_FOUND.meaning)
        if epoch == FINAL_EPOCH:
            return session
        if epoch != session.epoch:
            raise BrokerError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, ErrorCode.INVALID_SHARE_SESSION_EPOCH.meaning)
        session.epoch = 1 if session.epoch == _MAX_EPOCH else session.epoch + 1
        return session

    def change(self, session: ShareSession, added: Iterable[ShareKey], forgotten: Iterable[ShareKey]) -> None:
        """Add and remove partitions; if that makes too many, it is the end of the session."""
        before = len(session.partitions)
        session.add(added)
        session.remove(forgotten)
        self._partition_count += len(session.partitions) - before
        if self._partition_count > MAX_PARTITIONS:
            self.close(session)
            raise _too_many()

    def close(self, session: ShareSession) -> None:
        """Forget a session, if it has not ended already."""
        session.connection.pop(session, None)
        if self.holds(session):
            del self._sessions[session.member]
            self._partition_count -= len(session.partitions)
            watches, session.watches = session.watches, {}
            self._run(_stop_in_steps(watches.values()))


def _stop_in_steps(watches: Iterable[Watch]) -> Steps[None]:
    for number, watch in enumerate(watches):
        watch.stop()
        if not number % _WATCHES_A_STEP:
            yield


def _too_many() -> BrokerError:
    return BrokerError(ErrorCode.SHARE_SESSION_LIMIT_REACHED, "there are as many share sessions as there may be")
