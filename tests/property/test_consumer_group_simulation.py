"""Many members of one group in any order: they join, beat, crash, leave and come back, and topics grow meanwhile.

A member here is as honest as a real client: it has what it was assigned until it is told otherwise, gives up partitions
when it gets round to it, and says so in its next heartbeat. Answers get lost. After every step nobody has a partition
that somebody else has, and epochs have not shrunk; in the end, when everybody keeps beating, all have their share.
Some of the members speak the classic protocol, eager or cooperative.
"""

from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule

from headrace.coordinator.group.consumer.embedded import EmbeddedSubscription, NamedPartitions, read_assignment
from headrace.coordinator.group.consumer.state import GroupState
from headrace.coordinator.group.settings import GroupSettings
from headrace.protocol import codec
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.protocol.messages.sync_group import SyncGroupRequest
from tests.property.storage_model import examples
from tests.unit.coordinator.group_consumer.harness import GROUP, Shell, topic_id

TOPICS = ("orders", "orders.eu", "payments", "refunds")
SUBSCRIPTIONS = st.sampled_from(
    [
        {"subscribed_topic_names": ["orders"]},
        {"subscribed_topic_names": ["orders", "payments"]},
        {"subscribed_topic_names": ["refunds"]},
        {"subscribed_topic_names": ["payments", "refunds", "orders"]},
        {"subscribed_topic_names": [], "subscribed_topic_regex": "orders.*"},
        {"subscribed_topic_names": ["refunds"], "subscribed_topic_regex": r"orders\..+"},
    ]
)
REFUSED = (
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.ILLEGAL_GENERATION,
)


@dataclass(eq=False)
class Client:
    """A consumer: what it has, and what it was told to have."""

    member_id: str
    subscription: dict
    instance_id: str | None = None
    assignor: str | None = None
    epoch: int = 0
    has: dict = field(default_factory=dict)
    told: dict = field(default_factory=dict)
    classic: str | None = None  # how it speaks the classic protocol, if it does
    is_gone: bool = False  # crashed or left: it reads nothing any more
    must_tell_all: bool = False  # the last answer was lost

    def everything(self) -> dict:
        return {"rebalance_timeout_ms": 60_000, "server_assignor": self.assignor, **self.subscription}

    def hear(self, response) -> None:
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.told = {t.topic_id: frozenset(t.partitions) for t in response.assignment.topic_partitions}
        # What it is not to have it still has, until it gets round to giving it up.
        for topic, partitions in self.told.items():
            self.has[topic] = self.has.get(topic, frozenset()) | partitions

    def give_up(self) -> None:
        self.has = dict(self.told)

    def start_over(self) -> None:
        self.epoch, self.has, self.told = 0, {}, {}


class GroupMachine(RuleBasedStateMachine):
    clients = Bundle("clients")

    @initialize(counts=st.lists(st.integers(0, 5), min_size=4, max_size=4))
    def begin(self, counts):
        # A group of classic members alone would leave this kind of groups; here it stays.
        self.shell = Shell(GroupSettings(group_consumer_migration_policy="disabled"))
        self.shell.checks_replay = False  # it is checked when the broker restarts, and when all is settled
        self.counts = dict(zip(TOPICS, counts, strict=True))
        self.everybody: list[Client] = []
        self.group_epoch = self.assignment_epoch = self.count = 0
        self.epochs: dict[str, int] = {}
        self._tell_topics()

    def _tell_topics(self):
        self.shell.set_topics(**{name: count for name, count in self.counts.items() if count})

    def _beat_classic(self, client: Client):
        if not self._has_group():
            client.start_over()
            return
        if client.epoch > 0:
            beat = HeartbeatRequest(group_id=GROUP, member_id=client.member_id, generation_id=client.epoch)
            error = self.shell.ask(beat, 4).error_code
            if error in REFUSED:
                client.start_over()
            if error != ErrorCode.REBALANCE_IN_PROGRESS:
                return
        if client.classic == "eager":
            client.has = {}
        names = {topic_id(name): name for name in TOPICS}
        owned = [NamedPartitions(topic=names[topic], partitions=sorted(had)) for topic, had in client.has.items()]
        subscription = EmbeddedSubscription(
            topics=client.subscription["subscribed_topic_names"], owned_partitions=owned
        )
        metadata = b"\0\1" + codec.encode(subscription, 1)
        joined = self.shell.ask(
            JoinGroupRequest(
                group_id=GROUP,
                session_timeout_ms=45_000,
                rebalance_timeout_ms=60_000,
                member_id=client.member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="some", metadata=metadata)],
            ),
            5,
        )
        assert joined.error_code == 0, ErrorCode(joined.error_code)
        client.epoch = joined.generation_id
        synced = self.shell.ask(
            SyncGroupRequest(group_id=GROUP, member_id=client.member_id, generation_id=client.epoch), 4
        )
        assert synced.error_code == 0, ErrorCode(synced.error_code)
        client.told = dict(read_assignment(synced.assignment, self.shell.topics))
        for topic, partitions in client.told.items():
            client.has[topic] = client.has.get(topic, frozenset()) | partitions

    def _has_group(self):
        return self.shell.kind.holds(GROUP) and not self.shell.kind.is_empty(GROUP)

    def _beat(self, client: Client, *, is_lost: bool = False):
        if client.classic is not None:
            self._beat_classic(client)
            return
        fields = {"instance_id": client.instance_id}
        if client.epoch == 0 or client.must_tell_all:
            fields |= client.everything()
        # A client reports what it has when that has changed, or when it tells everything; here it always does.
        response = self.shell.beat(client.member_id, client.epoch, client.has, **fields)
        if response.error_code in REFUSED:
            client.start_over()
            return
        if response.error_code == ErrorCode.UNRELEASED_INSTANCE_ID:
            return
        assert response.error_code == 0, (ErrorCode(response.error_code), response.error_message)
        client.must_tell_all = is_lost
        if not is_lost:
            client.hear(response)

    def _new(self, subscription, assignor, instance_id=None) -> Client:
        self.count += 1
        client = Client(f"member-{self.count}", subscription, instance_id, assignor)
        self.everybody.append(client)
        self._beat(client)
        return client

    @rule(target=clients, subscription=SUBSCRIPTIONS, assignor=st.sampled_from([None, "uniform", "range"]))
    def join(self, subscription, assignor):
        return self._new(subscription, assignor)

    @rule(target=clients, subscription=SUBSCRIPTIONS, instance=st.sampled_from(["i-1", "i-2"]))
    def join_as_static(self, subscription, instance):
        return self._new(subscription, None, instance)

    @precondition(lambda self: self._has_group())
    @rule(
        target=clients,
        topics=st.lists(st.sampled_from(TOPICS), min_size=1, unique=True),
        classic=st.sampled_from(["eager", "cooperative"]),
    )
    def join_as_classic(self, topics, classic):
        self.count += 1
        client = Client(f"member-{self.count}", {"subscribed_topic_names": topics}, classic=classic)
        self.everybody.append(client)
        self._beat(client)
        return client

    @rule(client=clients, is_lost=st.booleans())
    def beat(self, client, is_lost):
        if not client.is_gone:
            self._beat(client, is_lost=is_lost)

    @rule(client=clients)
    def give_up_and_beat(self, client):
        if not client.is_gone:
            client.give_up()
            self._beat(client)

    @rule(client=clients, subscription=SUBSCRIPTIONS)
    def change_subscription(self, client, subscription):
        if not client.is_gone and client.epoch > 0 and client.classic is None:
            client.subscription = {"subscribed_topic_regex": "", **subscription}
            client.must_tell_all = True
            self._beat(client)

    @rule(client=consumes(clients))
    def crash(self, client):
        client.is_gone = True
        client.has = {}

    @rule(client=consumes(clients), for_a_while=st.booleans())
    def leave(self, client, for_a_while):
        if client.classic is not None and self._has_group():
            leaving = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=client.member_id)])
            self.shell.ask(leaving, 4)
        elif not client.is_gone and client.epoch > 0:
            epoch = -2 if for_a_while and client.instance_id else -1
            self.shell.beat(client.member_id, epoch, instance_id=client.instance_id)
        client.is_gone = True
        client.has = {}

    @rule(topic=st.sampled_from(TOPICS))
    def grow_topic(self, topic):
        self.counts[topic] = min(self.counts[topic] + 2, 9)
        self._tell_topics()

    @rule(topic=st.sampled_from(TOPICS))
    def delete_topic(self, topic):
        self.counts[topic] = 0
        self._tell_topics()
        for client in self.everybody:
            client.has.pop(topic_id(topic), None)  # there is nothing left to read

    @rule(ms=st.sampled_from([1_000, 20_000, 50_000]))
    def wait(self, ms):
        """Sessions end; a client whose session ended does not know it, but real ones stop reading before that."""
        self.shell.advance(ms)
        members = self.shell.group.members if self.shell.kind.holds(GROUP) else {}
        for client in self.everybody:
            if client.member_id not in members:
                client.start_over()

    @rule()
    def restart_broker(self):
        self._check_replay()
        self.shell.restart()

    def _check_replay(self):
        assert self.shell.replayed().picture() == self.shell.picture()

    @precondition(lambda self: any(not client.is_gone for client in self.everybody))
    @rule()
    def settle(self):
        """Everybody who is alive keeps beating, and the others' sessions end."""
        alive = [client for client in self.everybody if not client.is_gone]
        for _ in range(3):
            self.shell.advance(20_000)
            for client in alive:
                self._drive(client)
        for _ in range(len(alive) + 4):
            for client in alive:
                self._drive(client)
        if not self._has_group():
            return  # only classic members are left over, and they go elsewhere
        group = self.shell.group
        assert group.state is GroupState.STABLE, group.state
        for member in group.members.values():
            assert member.holding.assigned == group.target(member.member_id)
        inside = [client for client in alive if client.epoch > 0]
        assert {client.member_id for client in inside} == set(group.members)
        for client in inside:
            assert client.has == group.target(client.member_id)
            assert client.epoch == group.assignment_epoch == group.epoch
        self._all_partitions_have_an_owner(inside)
        self._check_replay()

    def _drive(self, client):
        client.give_up()
        self._beat(client)

    def _all_partitions_have_an_owner(self, inside):
        wanted = set()
        for client in inside:
            group = self.shell.group
            for name in group.topic_names(group.members[client.member_id]):
                wanted |= {(topic_id(name), partition) for partition in range(self.counts.get(name, 0))}
        had = [(topic, number) for client in inside for topic, numbers in client.has.items() for number in numbers]
        assert sorted(had) == sorted(wanted)

    @invariant()
    def nobody_has_what_another_has(self):
        seen: dict[tuple, str] = {}
        for client in self.everybody:
            for topic, partitions in client.has.items():
                for partition in partitions:
                    other = seen.setdefault((topic, partition), client.member_id)
                    assert other == client.member_id, f"{topic!r}-{partition}: {other} and {client.member_id}"

    @invariant()
    def epochs_only_grow(self):
        if not hasattr(self, "shell") or not self.shell.kind.holds(GROUP):
            return
        group = self.shell.group
        assert group.epoch >= self.group_epoch
        assert self.assignment_epoch <= group.assignment_epoch <= group.epoch
        self.group_epoch, self.assignment_epoch = group.epoch, group.assignment_epoch
        for member_id, member in group.members.items():
            if member.holding.epoch >= 0:
                assert self.epochs.get(member_id, 0) <= member.holding.epoch <= group.assignment_epoch
                self.epochs[member_id] = member.holding.epoch

    @invariant()
    def the_owners_are_those_who_hold(self):
        if not hasattr(self, "shell") or not self.shell.kind.holds(GROUP):
            return
        held = [
            ((topic, partition), member_id)
            for member_id, member in self.shell.group.members.items()
            for holding in (member.holding.assigned, member.holding.revoking)
            for topic, partitions in holding.items()
            for partition in partitions
        ]
        assert len(held) == len(dict(held))
        assert dict(held) == self.shell.group.owners


TestConsumerGroup = GroupMachine.TestCase
TestConsumerGroup.settings = examples(40, stateful_step_count=30)
