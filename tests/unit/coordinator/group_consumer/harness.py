"""The shell around consumer groups that the tests use: it writes to a list, and its clock moves by hand.

After every decision it checks what always holds: deciding changes nothing, and whoever reads the written records from
the start, as bytes, comes to the same state.
"""

from collections.abc import Iterable

from headrace.coordinator.decision import CoordinatorRecord, Decision, RequestToken
from headrace.coordinator.group.assignors import Assignment
from headrace.coordinator.group.consumer.kind import ConsumerGroups
from headrace.coordinator.group.events import Loaded, Request, TimerFired, see_all
from headrace.coordinator.group.records import decode, encode
from headrace.coordinator.group.settings import GroupSettings
from headrace.coordinator.group.topics import Topic, Topics, TopicsChanged
from headrace.protocol import codec
from headrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from headrace.protocol.schema import Message, Uuid
from headrace.testing import FakeClock

GROUP = "billing"
SETTINGS = GroupSettings(group_consumer_session_timeout_ms=45_000, group_consumer_heartbeat_interval_ms=5_000)


def topic_id(name: str) -> Uuid:
    return Uuid(name.encode().ljust(16, b"\0"))


class Shell:
    groups = ConsumerGroups  # the kind of groups

    def __init__(self, settings: GroupSettings = SETTINGS, **topics: int) -> None:
        self.clock = FakeClock(1_000)
        self.settings = settings
        self.kind = self.groups(settings)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.timers: dict[object, int] = {}
        self.last = Decision()
        self.topics = Topics(0, {})
        self.fresh = 0
        self.checks_replay = True
        self.sees = see_all  # which topics whoever asks may know of
        self.set_topics(**topics)

    # What the shell does:

    def run(self, event: object) -> Decision:
        before = self.picture()
        decision = self.kind.decide(event, self.clock.now_ms())
        assert self.picture() == before, "deciding has changed something"
        for record in decision.records:
            if record.is_kept:
                self.log.append(encode(record))
                record = read_back(self.log[-1])
            self.kind.apply(record)
        for key, at_ms in decision.timers:
            if at_ms is None:
                self.timers.pop(key, None)
            else:
                self.timers[key] = at_ms
        self.last = decision
        if self.checks_replay:
            assert self.replayed().picture() == self.picture(), "replay gives another state"
        return decision

    def picture(self) -> dict[str, object]:
        return {group_id: self.kind.group(group_id).copy() for group_id in self.kind.group_ids()}

    def replayed(self) -> "Shell":
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, kind=type(self.kind)(self.settings), timers={}, log=list(self.log))
        for entry in self.log:
            other.kind.apply(read_back(entry))
        return other

    def restart(self) -> None:
        self.kind = self.replayed().kind
        self.timers = {}
        self.run(Loaded())
        self.run(TopicsChanged(self.topics))

    def set_topics(self, **counts: int) -> None:
        names = {name.replace("__", "."): count for name, count in counts.items()}
        by_name = {name: Topic(topic_id(name), count) for name, count in names.items()}
        self.topics = Topics(self.topics.version + 1, by_name)
        self.run(TopicsChanged(self.topics))

    def advance(self, ms: int) -> list[object]:
        """Let time pass, and every timer that is due fire at its time; which ones did."""
        end, fired = self.clock.now_ms() + ms, []
        while due := sorted((at_ms, repr(key), key) for key, at_ms in self.timers.items() if at_ms <= end):
            at_ms, _, key = due[0]
            self.clock.advance(at_ms - self.clock.now_ms())
            del self.timers[key]
            fired.append(key)
            self.run(TimerFired(key))
        self.clock.advance(end - self.clock.now_ms())
        return fired

    # What clients do:

    def ask(self, message: Message, version: int = 1, client_id: str = "client") -> Message:
        self.fresh += 1
        fresh_id = f"fresh-{self.fresh}"
        request = Request(RequestToken(self.fresh), message, version, client_id, "/127.0.0.1", fresh_id, self.sees)
        decision = self.run(request)
        (answer,) = (answer for answer in decision.answers if answer.to == self.fresh)
        codec.encode(answer.response, version)
        return answer.response

    def beat(
        self, member_id: str, epoch: int, owned: Assignment | None = None, version: int = 1, **fields: object
    ) -> ConsumerGroupHeartbeatResponse:
        message = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=member_id,
            member_epoch=epoch,
            topic_partitions=None if owned is None else reported(owned),
            **fields,
        )
        return self.ask(message, version)

    def join(self, member_id: str, *topics: str, **fields: object) -> ConsumerGroupHeartbeatResponse:
        fields.setdefault("rebalance_timeout_ms", 60_000)
        if topics or "subscribed_topic_regex" not in fields:
            fields["subscribed_topic_names"] = list(topics)
        return self.beat(member_id, 0, {}, **fields)

    # What tests look at:

    @property
    def group(self):
        return self.kind.group(GROUP)

    def written(self) -> list[str]:
        """The kinds of the records that the last decision wrote; a minus stands before a tombstone."""
        return [shown(record) for record in self.last.records if record.is_kept]


def reported(owned: Assignment) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id=topic, partitions=sorted(partitions)) for topic, partitions in owned.items()]


def read_back(entry: tuple[bytes, bytes | None]) -> CoordinatorRecord:
    record = decode(*entry)
    assert record is not None
    return record


def shown(record: CoordinatorRecord) -> str:
    name = type(record.key).__name__.removeprefix("ConsumerGroup").removesuffix("Key")
    return name if record.value is not None else f"-{name}"


def assigned(response: ConsumerGroupHeartbeatResponse) -> dict[str, list[int]] | None:
    """What an answer assigns, by name; None if it says nothing about it."""
    assert response.error_code == 0, (response.error_code, response.error_message)
    if response.assignment is None:
        return None
    return by_name((topic.topic_id, topic.partitions) for topic in response.assignment.topic_partitions)


def by_name(partitions: Iterable[tuple[bytes, Iterable[int]]]) -> dict[str, list[int]]:
    return {topic.rstrip(b"\0").decode(): sorted(numbers) for topic, numbers in partitions}


def parts(**partitions: Iterable[int]) -> Assignment:
    return {topic_id(name.replace("__", ".")): frozenset(numbers) for name, numbers in partitions.items()}
