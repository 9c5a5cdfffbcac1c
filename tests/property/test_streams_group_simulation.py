"""Many members of one streams group in any order: they join, beat, crash, leave and come back, topics come and go.

A member is as honest as a real client: it has what it was assigned until it is told otherwise, gives up tasks when it
gets round to it, and says so in its next heartbeat. Answers get lost, and the broker restarts. After every step no
active task is with two members and no process has a task twice, and epochs have not shrunk; in the end, when everybody
keeps beating, each task is active once, and has its standby copies as far as there are processes for them.
"""

from collections import Counter
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule

from headrace.coordinator.group.settings import GroupSettings
from headrace.coordinator.group.streams.group import GroupState
from headrace.coordinator.group.streams.tasks import NO_TASKS, Task, Tasks, Worker, assign_tasks
from headrace.protocol.errors import ErrorCode
from tests.property.storage_model import examples
from tests.unit.coordinator.group_consumer.harness import GROUP
from tests.unit.coordinator.group_streams.harness import StreamsShell, told, word_count

REFUSED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)
PROCESSES = ("p-1", "p-2", "p-3")


@dataclass(eq=False)
class Client:
    """A thread of an application: what it has, and what it was told to have."""

    member_id: str
    process_id: str
    epoch: int = 0
    has: Tasks = NO_TASKS
    told: Tasks = NO_TASKS
    is_gone: bool = False
    must_tell_all: bool = False  # the last answer was lost

    def hear(self, response) -> None:
        self.epoch = response.member_epoch
        given_tasks = told(response)
        if given_tasks is not None:
            self.told = given_tasks
        self.has = self.has.with_all(self.told)

    def start_over(self) -> None:
        self.epoch, self.has, self.told = 0, NO_TASKS, NO_TASKS


class StreamsGroupMachine(RuleBasedStateMachine):
    clients = Bundle("clients")

    @initialize(count=st.integers(1, 4), standby=st.integers(0, 2), delay_ms=st.sampled_from([0, 3_000]))
    def begin(self, count, standby, delay_ms):
        settings = GroupSettings(
            group_streams_num_standby_replicas=standby, group_streams_initial_rebalance_delay_ms=delay_ms
        )
        self.standby = standby
        self.shell = StreamsShell(settings)
        self.shell.checks_replay = False  # it is checked when the broker restarts, and when all is settled
        self.topics = {"lines": count}
        self.everybody: list[Client] = []
        self.count = self.group_epoch = self.assignment_epoch = 0
        self.epochs: dict[str, int] = {}
        self.shell.set_topics(**self.topics)

    def _beat(self, client, *, is_lost=False):
        if client.epoch == 0:
            response = self.shell.join(client.member_id, word_count(), process_id=client.process_id)
        else:
            everything = {"rebalance_timeout_ms": 60_000} if client.must_tell_all else {}
            response = self.shell.beat(client.member_id, client.epoch, client.has, **everything)
        if response.error_code in REFUSED:
            client.start_over()
            return
        if response.error_code == ErrorCode.INVALID_REQUEST:  # it still has tasks that there no longer are
            client.has = client.has.kept_in(client.told)
            return
        assert response.error_code == 0, (ErrorCode(response.error_code), response.error_message)
        self._make_topics()
        client.must_tell_all = is_lost
        if not is_lost:
            client.hear(response)

    def _make_topics(self):
        """As the broker does before it answers."""
        missing = {topic.name: topic.partitions for topic in self.shell.kind.missing_topics(GROUP)}
        if missing:
            self.topics |= missing
            self.shell.set_topics(**self.topics)

    @rule(target=clients, process=st.sampled_from(PROCESSES))
    def join(self, process):
        self.count += 1
        client = Client(f"member-{self.count}", process)
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
            self._drive(client)

    def _drive(self, client):
        client.has = client.told
        self._beat(client)

    @rule(client=consumes(clients))
    def crash(self, client):
        client.is_gone = True
        client.has = NO_TASKS

    @rule(client=consumes(clients))
    def leave(self, client):
        if not client.is_gone and client.epoch > 0:
            self.shell.beat(client.member_id, -1)
        client.is_gone = True
        client.has = NO_TASKS

    @rule(name=st.sampled_from(["lines", "words", "counts"]))
    def delete_topic(self, name):
        self.topics.pop(name, None)
        self.shell.set_topics(**self.topics)

    @rule(count=st.integers(1, 5))
    def make_source_again(self, count):
        """With other partitions, the topics of the application no longer fit."""
        self.topics["lines"] = count
        self.shell.set_topics(**self.topics)

    @rule(ms=st.sampled_from([1_000, 20_000, 50_000]))
    def wait(self, ms):
        """Sessions end; a client whose session ended does not know it, but real ones stop working before that."""
        self.shell.advance(ms)
        members = self.shell.group.members if self.shell.kind.holds(GROUP) else {}
        for client in self.everybody:
            if client.member_id not in members:
                client.start_over()

    @rule()
    def restart_broker(self):
        assert self.shell.replayed().picture() == self.shell.picture()
        self.shell.restart()

    @precondition(lambda self: any(not client.is_gone for client in self.everybody))
    @rule()
    def settle(self):
        """All topics are right, everybody who is alive keeps beating, and the others' sessions end."""
        alive = [client for client in self.everybody if not client.is_gone]
        count = self.topics.get("lines", 2)
        self.topics = {"lines": count, "words": count, "counts": count}
        self.shell.set_topics(**self.topics)
        for _ in range(3):
            self.shell.advance(20_000)
            for client in alive:
                self._drive(client)
        for _ in range(len(alive) + 4):
            for client in alive:
                self._drive(client)
        group = self.shell.group
        assert group.state is GroupState.STABLE, group.state
        assert {client.member_id for client in alive} == set(group.members)
        for client in alive:
            assert client.has == group.target(client.member_id) == group.members[client.member_id].holding.assigned
            assert client.epoch == group.assignment_epoch == group.epoch
        every = [Task(name, number) for name in "01" for number in range(count)]
        assert sorted(task for client in alive for task in client.has.active) == every
        copies = min(self.standby, len({client.process_id for client in alive}) - 1)
        standby = Counter(task for client in alive for task in client.has.standby)
        assert standby == Counter({task: copies for task in every if task.subtopology_id == "1" and copies})
        assert self.shell.replayed().picture() == self.shell.picture()

    @invariant()
    def nobody_has_what_another_has(self):
        active = Counter(task for client in self.everybody for task in client.has.active)
        assert all(count == 1 for count in active.values()), active

    @invariant()
    def no_process_holds_a_task_twice(self):
        if not hasattr(self, "shell") or not self.shell.kind.holds(GROUP):
            return
        group = self.shell.group
        held = Counter()
        owners = {}
        for member in group.members.values():
            for tasks in (member.holding.assigned, member.holding.revoking):
                held.update((member.profile.process_id, task) for task in tasks.each())
                owners |= dict.fromkeys(tasks.active, member.member_id)
        assert held == group.copies
        assert owners == group.owners
        assert all(count == 1 for count in held.values()), held

    @invariant()
    def epochs_only_grow(self):
        if not hasattr(self, "shell") or not self.shell.kind.holds(GROUP):
            return
        group = self.shell.group
        assert group.epoch >= self.group_epoch
        assert self.assignment_epoch <= group.assignment_epoch <= group.epoch
        self.group_epoch, self.assignment_epoch = group.epoch, group.assignment_epoch
        for member_id, member in group.members.items():
            assert self.epochs.get(member_id, 0) <= member.holding.epoch <= max(group.assignment_epoch, 1)
            self.epochs[member_id] = member.holding.epoch


TestStreamsGroup = StreamsGroupMachine.TestCase
TestStreamsGroup.settings = examples(40, stateful_step_count=30)


@st.composite
def assignments(draw):
    counts = draw(st.dictionaries(st.sampled_from("abc"), st.integers(1, 7), min_size=1))
    every = [Task(name, number) for name, count in counts.items() for number in range(count + 1)]
    some = st.frozensets(st.sampled_from(every))
    workers = draw(
        st.dictionaries(
            st.sampled_from([f"m{n}" for n in range(9)]),
            st.builds(Worker, st.sampled_from(PROCESSES), st.builds(Tasks, some, some, some)),
            min_size=1,
        )
    )
    return workers, counts, draw(st.sets(st.sampled_from("abc"))), draw(st.integers(0, 2))


@examples(200)
@given(assignments())
def test_tasks_are_shared_evenly_and_copies_are_elsewhere(drawn):
    workers, counts, stateful, replicas = drawn
    shared = assign_tasks(workers, counts, stateful, replicas)
    every = sorted(Task(name, number) for name, count in counts.items() for number in range(count))
    assert sorted(task for tasks in shared.values() for task in tasks.active) == every
    sizes = [len(tasks.active) for tasks in shared.values()]
    assert max(sizes) - min(sizes) <= 1
    copies = min(replicas, len({worker.process_id for worker in workers.values()}) - 1)
    standby = Counter(task for tasks in shared.values() for task in tasks.standby)
    assert standby == Counter({task: copies for task in every if task.subtopology_id in stateful and copies})
    on = Counter((workers[member].process_id, task) for member, tasks in shared.items() for task in tasks.each())
    assert all(count == 1 for count in on.values())
    # Assigned again, nothing moves.
    again = {member: worker._replace(previous=shared[member]) for member, worker in workers.items()}
    assert {m: t.active for m, t in assign_tasks(again, counts, stateful, replicas).items()} == {
        m: t.active for m, t in shared.items()
    }
