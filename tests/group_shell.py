"""A group coordinator with its shell, for tests: a clock moved by hand, a log in memory, timers, and no IO.

Every step checks what always holds: deciding changes nothing, the records that are kept give the same state again, and
an answer can be written in the version in which it was asked for.
"""

from copy import deepcopy

from headrace.coordinator.decision import RequestToken
from headrace.coordinator.group.classic.state import Phase, group_record
from headrace.coordinator.group.consumer.kind import ConsumerGroups
from headrace.coordinator.group.coordinator import GroupCoordinator
from headrace.coordinator.group.events import Loaded, Request, TimerFired, TransactionEnded
from headrace.coordinator.group.kinds import GroupDeleted
from headrace.coordinator.group.offsets.commit import InTransaction
from headrace.coordinator.group.records import decode, encode
from headrace.coordinator.group.settings import GroupSettings
from headrace.coordinator.group.share.kind import MemberRemoved, ShareGroups
from headrace.coordinator.group.streams.kind import StreamsGroups
from headrace.coordinator.group.topics import Topic, Topics, TopicsChanged
from headrace.model import NO_PRODUCER_ID
from headrace.protocol import codec
from headrace.protocol.schema import Uuid

START_MS = 1_700_000_000_000


class GroupShell:
    """One coordinator, asked as the broker asks it."""

    def __init__(self, settings=None, *, check_replay=True, topics=None):
        """`topics` are partition counts by name: with them there are consumer and streams groups, too."""
        self.settings = settings or GroupSettings(group_initial_rebalance_delay_ms=0)
        self.now_ms = START_MS
        self.log = []  # (key, value, producer id) of each record; (marker,) of each end of a transaction
        self.timers = {}
        self.answers = {}
        self.check_replay = check_replay
        self.topics = topics
        self._topics_version = 0
        self._last_token = 0
        self._versions = {}
        self.last = None
        self.coordinator = self._new_coordinator()
        self._begin()

    def _new_coordinator(self):
        if self.topics is None:
            return GroupCoordinator(self.settings)
        kinds = (ConsumerGroups, ShareGroups, StreamsGroups)
        return GroupCoordinator(self.settings, *(kind(self.settings) for kind in kinds))

    def _begin(self):
        if self.topics is not None:
            self.set_topics(self.topics)
        self.tell(Loaded())

    def set_topics(self, topics):
        """Have topics of these names, with so many partitions, and no others."""
        self.topics = topics
        self._topics_version += 1
        by_name = {name: Topic(Uuid(name.encode().ljust(16)), count) for name, count in topics.items()}
        self.tell(TopicsChanged(Topics(self._topics_version, by_name)))

    # Events:

    def tell(self, event):
        """Have the coordinator decide, and carry the decision out."""
        before = deepcopy(state_of(self.coordinator))
        decision = self.coordinator.decide(event, self.now_ms)
        assert state_of(self.coordinator) == before, "deciding has changed the state"

        producer_id = NO_PRODUCER_ID
        for effect in decision.effects:
            if isinstance(effect, InTransaction):
                producer_id = effect.producer_id
            else:
                assert isinstance(effect, GroupDeleted | MemberRemoved)
        if isinstance(event, TransactionEnded):
            self.log.append((event,))
        for record in decision.records:
            if record.is_kept:
                self.log.append((*encode(record), producer_id))
            self.coordinator.apply(record, producer_id)
        for timer in decision.timers:
            self.timers.pop(timer.key, None)
            if timer.at_ms is not None:
                assert timer.at_ms >= self.now_ms
                self.timers[timer.key] = timer.at_ms
        for answer in decision.answers:
            assert answer.to not in self.answers, "a request was answered twice"
            codec.encode(answer.response, self._versions[answer.to])
            self.answers[answer.to] = answer.response
        self.last = decision
        if self.check_replay:
            self.assert_replay_is_equal()
        return decision

    def send(self, message, version, *, client_id="client"):
        """Ask, and return the token by which the answer is found."""
        self._last_token += 1
        token = RequestToken(self._last_token)
        self._versions[token] = version
        self.tell(Request(token, message, version, client_id, "/10.0.0.1", f"fresh{token}"))
        return token

    def ask(self, message, version, *, client_id="client"):
        """Ask, and return the answer, which has to come at once."""
        return self.answers[self.send(message, version, client_id=client_id)]

    def advance(self, delay_ms):
        """Let time pass, and every timer fire that falls due."""
        until_ms = self.now_ms + delay_ms
        while self.timers:
            key, at_ms = min(self.timers.items(), key=lambda timer: timer[1])
            if at_ms > until_ms:
                break
            del self.timers[key]
            self.now_ms = max(self.now_ms, at_ms)
            self.tell(TimerFired(key))
        self.now_ms = until_ms

    # What is left after a restart:

    def replayed(self):
        """A new coordinator that has read the log."""
        coordinator = self._new_coordinator()
        for entry in self.log:
            if isinstance(entry[0], TransactionEnded):
                for record in coordinator.decide(entry[0], self.now_ms).records:
                    coordinator.apply(record)
            else:
                key, value, producer_id = entry
                coordinator.apply(decode(key, value), producer_id)
        return coordinator

    def restart(self):
        """Lose everything but the log; requests that wait are never answered."""
        self.coordinator = self.replayed()
        self.timers.clear()
        self._begin()

    def assert_replay_is_equal(self):
        replayed = self.replayed()
        assert offsets_of(replayed) == offsets_of(self.coordinator)
        assert consumers_of(replayed) == consumers_of(self.coordinator)
        assert sharers_of(replayed) == sharers_of(self.coordinator)
        assert streams_of(replayed) == streams_of(self.coordinator)
        groups, stored = self.coordinator._classic._groups, replayed._classic._groups
        assert groups.keys() == stored.keys()
        for group_id, group in groups.items():
            if group.phase in (Phase.EMPTY, Phase.STABLE):
                assert group_record(group) == group_record(stored[group_id])
                assert group.phase is stored[group_id].phase
                assert group.topics == stored[group_id].topics

    # Looking inside:

    def group(self, group_id="g"):
        return self.coordinator._classic.group(group_id)

    @property
    def kept(self):
        """The records of the last decision that are written."""
        return [record for record in self.last.records if record.is_kept]


def offsets_of(coordinator):
    store = coordinator._offsets
    return store._committed, store._pending


def consumers_of(coordinator):
    return {} if coordinator._consumer is None else coordinator._consumer._groups


def sharers_of(coordinator):
    return {} if coordinator._share is None else coordinator._share._groups


def streams_of(coordinator):
    return {} if coordinator.streams is None else coordinator.streams._groups


def state_of(coordinator):
    beating = (consumers_of(coordinator), sharers_of(coordinator), streams_of(coordinator))
    groups = (coordinator._classic._groups, *beating)
    return *groups, *offsets_of(coordinator), coordinator._offsets._order
