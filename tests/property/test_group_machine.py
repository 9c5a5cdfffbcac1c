"""A classic group under hypothesis: members that join, sync, read, commit, leave, stall and die, at any moment.

The clients here are honest ones: they do what the coordinator's answers tell them, as the Java consumer does. What is
checked after every step: a partition has one reader in a generation; generations only grow; what was acknowledged is
what is read. At the end: whoever waits is answered, and whoever is alive gets its share.
"""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.coordinator.group.classic.state import Phase
from headrace.coordinator.group.events import TransactionEnded
from headrace.coordinator.group.settings import GroupSettings
from headrace.protocol.errors import ErrorCode
from tests.group_requests import REBALANCE_MS, SESSION_MS, commit, fetched, heartbeat, join, leave, sync, txn_commit
from tests.group_shell import GroupShell
from tests.property.storage_model import examples

PARTITIONS = range(3)
HEARTBEAT_ERRORS = {
    ErrorCode.NONE,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_INSTANCE_ID,
}


class Client:
    """A consumer: where it is in the protocol, and the request that it waits with."""

    def __init__(self, name, instance):
        self.name = name
        self.instance = instance
        self.member_id = ""
        self.waiting = None  # the token of its JoinGroup or SyncGroup
        self.joined = None  # the answer to its JoinGroup
        self.partitions = None  # what it reads; None as long as it does not know
        self.is_fenced = False

    @property
    def identity(self):
        return self.instance or self.member_id

    @property
    def generation(self):
        return self.joined.generation_id

    def start_over(self, *, keep_id=True):
        self.waiting = self.joined = self.partitions = None
        if not keep_id:
            self.member_id = ""


class GroupMachine(RuleBasedStateMachine):
    @initialize(delay_ms=st.sampled_from([0, 3_000]), max_size=st.sampled_from([2, 100]))
    def begin(self, delay_ms, max_size):
        self.shell = GroupShell(GroupSettings(group_initial_rebalance_delay_ms=delay_ms, group_max_size=max_size))
        self.max_size = max_size
        self.clients = []
        self.started = 0
        self.abandoned = []  # requests of clients that are gone, but are owed an answer
        self.readers = {}  # by generation: who reads each partition
        self.generation = 0
        self.commits = 0
        self.offsets = {}  # by partition: the number of the commit, and what it said
        self.transactions = {}  # the same, by producer id

    def group(self):
        kind = self.shell.coordinator._classic
        return kind.group("g") if kind.holds("g") else None

    # What clients do:

    @rule(instances=st.lists(st.sampled_from([None, None, "i", "j"]), min_size=1, max_size=3))
    @precondition(lambda self: len(self.clients) < 4)
    def start(self, instances):
        for instance in instances:
            self.started += 1
            self.clients.append(Client(f"c{self.started}", instance))

    @rule(data=st.data())
    @precondition(lambda self: self.clients)
    def act(self, data):
        self._act(data.draw(st.sampled_from(self.clients), label="client"))

    @rule(rounds=st.integers(1, 6), delay_ms=st.sampled_from([0, 0, 1_000]), backwards=st.booleans())
    @precondition(lambda self: self.clients)
    def act_in_turn(self, rounds, delay_ms, backwards):
        for _ in range(rounds):
            for client in reversed(self.clients) if backwards else self.clients:
                self._act(client)
            self.shell.advance(delay_ms)

    @rule(rounds=st.integers(1, 3))
    @precondition(lambda self: len(self.clients) > 1)
    def act_without_one(self, rounds):
        for _ in range(rounds):
            for client in self.clients[1:]:
                self._act(client)

    @rule(data=st.data(), times=st.integers(1, 20))
    @precondition(lambda self: any(client.joined for client in self.clients))
    def dawdle(self, data, times):
        """A client that is alive, but does not go on: its heartbeats come from a thread of their own."""
        client = data.draw(st.sampled_from([client for client in self.clients if client.joined]), label="client")
        for _ in range(times):
            self.shell.advance(SESSION_MS // 2)
            asked = heartbeat(client.member_id, client.generation, instance=client.instance)
            assert self.shell.ask(asked, 4).error_code in HEARTBEAT_ERRORS

    def _act(self, client):
        """One step of an honest client."""
        self._listen(client)
        if client.is_fenced or client.waiting is not None:
            return
        if client.joined is None:
            client.waiting = self.shell.send(join(client.member_id, instance=client.instance), 9, client_id=client.name)
        elif client.partitions is None:
            parts = self._assign(client) if client.joined.leader == client.member_id else {}
            asked = sync(client.member_id, client.generation, parts, instance=client.instance)
            client.waiting = self.shell.send(asked, 5)
        else:
            asked = heartbeat(client.member_id, client.generation, instance=client.instance)
            self._heed(client, self.shell.ask(asked, 4).error_code)
        self._listen(client)

    def _assign(self, client):
        if client.joined.skip_assignment:
            return {}
        members = sorted(member.member_id for member in client.joined.members)
        return {
            member_id: bytes(partition for partition in PARTITIONS if partition % len(members) == place)
            for place, member_id in enumerate(members)
        }

    def _listen(self, client):
        if client.waiting not in self.shell.answers:
            return
        answer = self.shell.answers[client.waiting]
        client.waiting = None
        if answer.error_code:
            self._heed(client, answer.error_code, answer)
        elif client.joined is None:
            assert client.member_id in ("", answer.member_id)
            client.member_id = answer.member_id
            client.joined = answer
        else:
            client.partitions = set(answer.assignment)
            readers = self.readers.setdefault(client.generation, {})
            for partition in client.partitions:
                assert readers.setdefault(partition, client.identity) == client.identity, "two read one partition"

    def _heed(self, client, error, answer=None):
        match error:
            case ErrorCode.NONE:
                pass
            case ErrorCode.MEMBER_ID_REQUIRED:
                client.member_id = answer.member_id
            case ErrorCode.REBALANCE_IN_PROGRESS | ErrorCode.ILLEGAL_GENERATION:
                client.start_over()
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.GROUP_MAX_SIZE_REACHED | ErrorCode.GROUP_ID_NOT_FOUND:
                client.start_over(keep_id=False)
            case ErrorCode.FENCED_INSTANCE_ID:
                assert client.instance is not None
                client.is_fenced = True
            case _:
                raise AssertionError(f"an honest client was told {error!r}")

    @rule(data=st.data())
    @precondition(lambda self: self.clients)
    def die(self, data):
        client = data.draw(st.sampled_from(self.clients), label="client")
        self.clients.remove(client)
        if client.waiting is not None:
            self.abandoned.append(client.waiting)

    @rule(data=st.data())
    @precondition(lambda self: self.clients)
    def leave(self, data):
        client = data.draw(st.sampled_from(self.clients), label="client")
        self.clients.remove(client)
        if client.waiting is not None:
            self.abandoned.append(client.waiting)
        if client.member_id and self.group() is not None:
            (outcome,) = self.shell.ask(leave(client.member_id), 5).members
            assert outcome.error_code in (0, ErrorCode.UNKNOWN_MEMBER_ID)

    @rule(data=st.data(), offset=st.integers(0, 1000), metadata=st.text(max_size=3))
    @precondition(lambda self: any(client.partitions for client in self.clients))
    def commit(self, data, offset, metadata):
        client = data.draw(st.sampled_from([client for client in self.clients if client.partitions]), label="client")
        partition = data.draw(st.sampled_from(sorted(client.partitions)), label="partition")
        asked = commit(
            offset,
            member_id=client.member_id,
            generation=client.generation,
            group_instance_id=client.instance,
            partition=partition,
            epoch=3,
            metadata=metadata,
        )
        error = self.shell.ask(asked, 9).topics[0].partitions[0].error_code
        if error == 0:
            assert client.generation == self.group().generation, "a member of the past has committed"
            self._acknowledged(self.offsets, partition, (offset, 3, metadata, 0))
        self._heed(client, error)

    @rule(offset=st.integers(0, 1000))
    def commit_from_outside(self, offset):
        error = self.shell.ask(commit(offset), 9).topics[0].partitions[0].error_code
        group = self.group()
        assert (error == 0) == (group.phase is Phase.EMPTY)
        if error == 0:
            self._acknowledged(self.offsets, 0, (offset, -1, "", 0))

    def _acknowledged(self, offsets, partition, told):
        self.commits += 1
        offsets[partition] = (self.commits, told)

    @rule(offset=st.integers(0, 1000), partition=st.sampled_from([0, 0, 1, 2]), producer_id=st.integers(1, 2))
    def commit_in_transaction(self, offset, partition, producer_id):
        asked = txn_commit(offset, producer_id, partition=partition)
        assert self.shell.ask(asked, 2).topics[0].partitions[0].error_code == 0
        self._acknowledged(self.transactions.setdefault(producer_id, {}), partition, (offset, -1, "", 0))

    @rule(producer_id=st.integers(1, 2), committed=st.booleans())
    def end_transaction(self, producer_id, committed):
        self.shell.tell(TransactionEnded(producer_id, 3, committed))
        ended = self.transactions.pop(producer_id, {})
        for partition, offset in ended.items():
            if committed:  # of two commits the later counts, whenever its transaction ends
                self.offsets[partition] = max(self.offsets.get(partition, offset), offset)

    # What happens to everybody:

    @rule(delay_ms=st.sampled_from([1, 1_000, SESSION_MS // 2, SESSION_MS, REBALANCE_MS]))
    def wait(self, delay_ms):
        self.shell.advance(delay_ms)

    @rule()
    def restart(self):
        self.shell.restart()
        self.abandoned.clear()
        for client in self.clients:
            if client.waiting is not None and client.waiting not in self.shell.answers:
                client.start_over()  # its connection broke
        # A generation that nobody was given an assignment in was never stored, and its number is used again.
        group = self.group()
        self.generation = 0 if group is None else group.generation

    # What always holds:

    @invariant()
    def generations_only_grow(self):
        group = self.group()
        if group is None:  # forgotten after a while, if it had no members and no offsets
            self.generation = 0
            self.readers.clear()
        else:
            assert group.generation >= self.generation
            self.generation = group.generation
            assert (group.leader in group.members) == bool(group.members)
            assert (group.phase is Phase.EMPTY) <= (not group.members)
            assert group.pending_syncs <= group.members.keys()
            assert not group.pending_joins & group.members.keys()

    @invariant()
    def what_was_acknowledged_is_what_is_read(self):
        expected = {("t", partition): told for partition, (_, told) in self.offsets.items()}
        assert fetched(self.shell) == expected
        pending = {partition for offsets in self.transactions.values() for partition in offsets}
        for (_, partition), offset in fetched(self.shell, {"t": PARTITIONS}, require_stable=True).items():
            assert (offset[3] == ErrorCode.UNSTABLE_OFFSET_COMMIT) == (partition in pending)

    @invariant()
    def a_member_that_does_not_wait_is_watched(self):
        group = self.group()
        watched = {key.member_id for key in self.shell.timers if type(key).__name__ == "SessionTimer"}
        for member in group.members.values() if group else ():
            assert member.is_excused or member.member_id in watched

    def teardown(self):
        if not hasattr(self, "shell"):
            return
        self._everybody_alive_gets_a_share()
        for client in self.clients:
            if client.waiting is not None:
                self.abandoned.append(client.waiting)
        self.shell.advance(20 * REBALANCE_MS)
        assert all(token in self.shell.answers for token in self.abandoned), "a request waits for ever"
        group = self.group()
        assert group is None or group.phase is Phase.EMPTY

    def _everybody_alive_gets_a_share(self):
        for _ in range(60):
            self.shell.advance(SESSION_MS // 4)
            for client in self.clients:
                self._act(client)
            alive = [client for client in self.clients if not client.is_fenced]
            if len(alive) > self.max_size or (alive and self._is_settled(alive)):
                return
        assert not alive, "the group does not settle"

    def _is_settled(self, alive):
        group = self.group()
        if group is None or group.phase is not Phase.STABLE or group.members.keys() != {c.member_id for c in alive}:
            return False
        shares = [client.partitions or set() for client in alive if client.joined is not None]
        return sorted(partition for share in shares for partition in share) == list(PARTITIONS)


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = examples(60, stateful_step_count=40)
