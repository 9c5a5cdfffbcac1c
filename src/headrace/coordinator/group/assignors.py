"""Server-side assignors (KIP-848): pure functions that say which member of a group shall have which partitions.

`range` cuts each topic into as many contiguous ranges as it has subscribers. `uniform` is as even as can be, and then
moves as little as can be. So are share groups, in which several members may have the same partition (KIP-932).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from types import MappingProxyType

from headrace.protocol.schema import Uuid

# Topic id → partitions, without empty sets.
Assignment = Mapping[Uuid, frozenset[int]]

NO_PARTITIONS: Assignment = {}


@dataclass(frozen=True, slots=True)
class Subscriber:
    """What an assignor has to know about a member; `has` is its share of the last target assignment."""

    topics: frozenset[Uuid]
    has: Assignment = field(default_factory=dict)
    instance_id: str | None = None


# An assignor is a function of the members by their id and of the topics' partition counts. Every partition of a topic
# that has a subscriber goes to exactly one of them; a topic without a count does not exist, and is passed over. What
# comes out names every member, and depends on nothing but the arguments' values: not on the order of a mapping.
Assignor = Callable[[Mapping[str, Subscriber], Mapping[Uuid, int]], dict[str, Assignment]]


def assign_ranges(members: Mapping[str, Subscriber], partition_counts: Mapping[Uuid, int]) -> dict[str, Assignment]:
    """Give each member a contiguous range of each topic that it subscribes to.

    Where all members want the same topics, and these have equally many partitions, a member gets the same partition
    numbers of each topic: that is what a join of two topics by key needs. Static members stand first, in the order of
    their instance ids, so that a restart under a new member id moves nothing.
    """
    subscribers: dict[Uuid, list[str]] = {}
    for member_id in sorted(members, key=lambda member_id: _static_first(member_id, members[member_id])):
        for topic in members[member_id].topics:
            subscribers.setdefault(topic, []).append(member_id)
    shares: dict[str, dict[Uuid, frozenset[int]]] = {member_id: {} for member_id in members}
    for topic in sorted(subscribers):
        quota, extra = divmod(partition_counts.get(topic, 0), len(subscribers[topic]))
        start = 0
        for place, member_id in enumerate(subscribers[topic]):
            end = start + quota + (place < extra)
            if end > start:
                shares[member_id][topic] = frozenset(range(start, end))
            start = end
    return {member_id: shares[member_id] for member_id in sorted(shares)}


def _static_first(member_id: str, member: Subscriber) -> tuple[bool, str, str]:
    return (member.instance_id is None, member.instance_id or "", member_id)


Partition = tuple[Uuid, int]

_MOST_ROUNDS = 16


def balance(
    held: dict[str, list[Partition]], wanted: Mapping[str, frozenset[Uuid]], unassigned: Iterable[Partition]
) -> None:
    """Even loads where members want different topics; `held` is changed in place.

    Who holds what is a bipartite graph, and the most even loads are those of an optimal semi-matching (Harvey, Ladner,
    Lovász, Tamir 2003): there is no path along which a partition could be handed on, from member to member, from one
    that holds two more than the last. First each partition that nobody has goes to the least loaded of its subscribers,
    then members hand over directly to one that holds at least two less, the most loaded first, and at last along longer
    paths. What is even already does not move. The number of rounds and of long paths is limited, so that a group with
    wild subscriptions costs no more than it must; in the tests' many random groups the limit is never reached.
    """
    loads = _Loads(held, wanted)
    loads.fill(unassigned)
    for _ in range(_MOST_ROUNDS):
        if not loads.hand_over():
            break
    for _ in range(len(held)):
        if not loads.hand_along_a_path():
            break
    for member_id, topics in loads.holdings.items():
        held[member_id] = [(topic, number) for topic, numbers in topics.items() for number in numbers]


class _Loads:
    def __init__(self, held: Mapping[str, list[Partition]], wanted: Mapping[str, frozenset[Uuid]]) -> None:
        self.load = {member_id: len(partitions) for member_id, partitions in held.items()}
        self.holdings: dict[str, dict[Uuid, list[int]]] = {member_id: {} for member_id in held}
        for member_id, partitions in held.items():
            for topic, number in partitions:
                self.holdings[member_id].setdefault(topic, []).append(number)
        self.subscribers: dict[Uuid, tuple[str, ...]] = {}
        wanting: dict[Uuid, list[str]] = {}
        for member_id in sorted(wanted):
            for topic in wanted[member_id]:
                wanting.setdefault(topic, []).append(member_id)
        # Topics that the same members want share one tuple, and with it one heap of its members by load.
        shared: dict[tuple[str, ...], tuple[str, ...]] = {}
        for topic in sorted(wanting):
            members = tuple(wanting[topic])
            self.subscribers[topic] = shared.setdefault(members, members)

    def fill(self, unassigned: Iterable[Partition]) -> None:
        """Give each partition to the least loaded of its subscribers; those with the least choice first."""
        by_topic: dict[Uuid, list[int]] = {}
        for topic, number in unassigned:
            by_topic.setdefault(topic, []).append(number)
        least_loaded = _LeastLoaded(self.load)
        for topic in sorted(by_topic, key=lambda topic: (len(self.subscribers.get(topic, ())), topic)):
            if members := self.subscribers.get(topic):
                for number in by_topic[topic]:
                    receiver = least_loaded.of(members)[1]
                    self.holdings[receiver].setdefault(topic, []).append(number)
                    self.load[receiver] += 1

    def hand_over(self) -> bool:
        """Let members hand over to those that hold at least two less, the most loaded first; whether anything moved.

        During one round a member's smaller load is not seen by those that hand over after it: then the known loads only
        grow, and a heap's stale entries are mended when they come to its top.
        """
        if self._is_even():
            return False
        least_loaded = _LeastLoaded(dict(self.load))
        has_moved = False
        choices: dict[str, list[tuple[tuple[int, str], Uuid]]] = {}
        givers = [(-load, member_id) for member_id, load in self.load.items()]
        heapify(givers)
        while givers:
            load, giver = heappop(givers)
            if -load != self.load[giver]:
                continue
            if giver not in choices:
                choices[giver] = [(least_loaded.of(self.subscribers[topic]), topic) for topic in self.holdings[giver]]
                heapify(choices[giver])
            if (choice := _best(choices[giver], self.subscribers, least_loaded)) is None:
                continue
            (receiver_load, receiver), topic = choice
            if self.load[giver] - receiver_load < 2:
                continue
            self._move(topic, giver, receiver)
            least_loaded.load[receiver] += 1
            has_moved = True
            if topic not in self.holdings[giver]:
                heappop(choices[giver])
            choices.pop(receiver, None)  # it may hold a topic that it did not hold before
            heappush(givers, (-self.load[giver], giver))
            heappush(givers, (-self.load[receiver], receiver))
        return has_moved

    def hand_along_a_path(self) -> bool:
        """Find a member that could give one partition to a much less loaded one through others, and do it."""
        if self._is_even():
            return False
        explored: set[Uuid] = set()
        for giver in sorted(self.load, key=lambda member_id: (-self.load[member_id], member_id)):
            # What a more loaded member has reached without success is of no use to this one.
            reached: dict[str, tuple[str, Uuid]] = {}
            queue = [giver]
            for member_id in queue:
                for topic in sorted(self.holdings[member_id].keys() - explored):
                    explored.add(topic)
                    for other in self.subscribers[topic]:
                        if other != giver and other not in reached:
                            reached[other] = (member_id, topic)
                            queue.append(other)
            if reached:
                last = min(reached, key=lambda member_id: (self.load[member_id], member_id))
                if self.load[giver] - self.load[last] >= 2:
                    while last != giver:
                        member_id, topic = reached[last]
                        self._move(topic, member_id, last)
                        last = member_id
                    return True
        return False

    def _is_even(self) -> bool:
        return max(self.load.values()) - min(self.load.values()) < 2

    def _move(self, topic: Uuid, giver: str, receiver: str) -> None:
        numbers = self.holdings[giver][topic]
        self.holdings[receiver].setdefault(topic, []).append(numbers.pop())
        if not numbers:
            del self.holdings[giver][topic]
        self.load[giver] -= 1
        self.load[receiver] += 1


class _LeastLoaded:
    """The least loaded of some members, while their loads only grow; those asked about often are kept in a heap."""

    def __init__(self, load: dict[str, int]) -> None:
        self.load = load
        self._heaps: dict[int, list[tuple[int, str]]] = {}

    def of(self, members: tuple[str, ...]) -> tuple[int, str]:
        heap = self._heaps.get(id(members))
        if heap is None:
            heap = self._heaps[id(members)] = [(self.load[member_id], member_id) for member_id in members]
            heapify(heap)
        while heap[0][0] < (actual := self.load[heap[0][1]]):
            heapreplace(heap, (actual, heap[0][1]))
        return heap[0]


def _best(
    choices: list[tuple[tuple[int, str], Uuid]], subscribers: Mapping[Uuid, tuple[str, ...]], least_loaded: _LeastLoaded
) -> tuple[tuple[int, str], Uuid] | None:
    """The topic whose least loaded subscriber has least; it stands at the top of the heap then."""
    while choices:
        known, topic = choices[0]
        actual = least_loaded.of(subscribers[topic])
        if actual == known:
            return choices[0]
        heapreplace(choices, (actual, topic))
    return None


def assign_uniformly(members: Mapping[str, Subscriber], partition_counts: Mapping[Uuid, int]) -> dict[str, Assignment]:
    """Spread the partitions over the members evenly, and leave them where they are if that is possible.

    Where all members want the same topics, the loads differ by one at most, and exactly those partitions move that have
    to: the members that hold most are those that may keep one more. Where they want different topics, see `balance`.
    """
    kept = _keep(members, partition_counts)
    first, *others = (member.topics & partition_counts.keys() for member in members.values()) if members else ((),)
    if all(topics == first for topics in others):
        _spread(kept, _unassigned(kept, frozenset(first), partition_counts))
    else:
        balance(
            kept,
            {member_id: members[member_id].topics for member_id in kept},
            _unassigned(kept, frozenset().union(*(member.topics for member in members.values())), partition_counts),
        )
    return {member_id: _by_topic(partitions) for member_id, partitions in kept.items()}


def _keep(members: Mapping[str, Subscriber], partition_counts: Mapping[Uuid, int]) -> dict[str, list[tuple[Uuid, int]]]:
    """What each member has and may still have, in order; of two that have the same partition the first one keeps it."""
    taken: set[tuple[Uuid, int]] = set()
    kept: dict[str, list[tuple[Uuid, int]]] = {}
    for member_id in sorted(members):
        member = members[member_id]
        mine = kept[member_id] = []
        for topic in sorted(member.topics & member.has.keys()):
            count = partition_counts.get(topic, 0)
            mine += [
                (topic, partition)
                for partition in sorted(member.has[topic])
                if partition < count and (topic, partition) not in taken
            ]
        taken.update(mine)
    return kept


def _unassigned(
    kept: Mapping[str, list[tuple[Uuid, int]]], topics: frozenset[Uuid], partition_counts: Mapping[Uuid, int]
) -> list[tuple[Uuid, int]]:
    taken = {partition for mine in kept.values() for partition in mine}
    return [
        (topic, partition)
        for topic in sorted(topics)
        for partition in range(partition_counts.get(topic, 0))
        if (topic, partition) not in taken
    ]


def _spread(kept: dict[str, list[tuple[Uuid, int]]], unassigned: list[tuple[Uuid, int]]) -> None:
    """Bring every member to its quota, all of them wanting the same topics."""
    if not kept:
        return
    quota, extra = divmod(sum(map(len, kept.values())) + len(unassigned), len(kept))
    by_load = sorted(kept, key=lambda member_id: (-len(kept[member_id]), member_id))
    quotas = {member_id: quota + (place < extra) for place, member_id in enumerate(by_load)}
    for member_id, mine in kept.items():
        unassigned += mine[quotas[member_id] :]
        del mine[quotas[member_id] :]
    left = iter(unassigned)
    for member_id, mine in kept.items():
        mine += [next(left) for _ in range(quotas[member_id] - len(mine))]


def assign_shared(
    members: Mapping[str, Subscriber], partition_counts: Mapping[Uuid, int], whole: frozenset[Uuid] = frozenset()
) -> dict[str, Assignment]:
    """Have every member of a share group share in something, and every partition in the hands of somebody.

    Members that want the same topics share them among themselves; who wants others does not matter to them. Topics that
    are to stay whole go to everybody who wants them: who has no partition of an urgent level would do the rest instead.

    A partition that moves leaves records in the hands of the one that had it, and Java's client does not acknowledge
    those any more, so that they come again only when their locks have lapsed. So nobody is moved who need not be.
    """
    alike: dict[frozenset[Uuid], dict[str, Subscriber]] = {}
    for member_id in sorted(members):
        member = members[member_id]
        wanted = member.topics.intersection(partition_counts)
        alike.setdefault(wanted, {})[member_id] = Subscriber(wanted - whole, member.has)
    shares: dict[str, Assignment] = {}
    for wanted, some in alike.items():
        partitions = _unassigned({}, wanted - whole, partition_counts)
        share = _place_each if len(some) >= len(partitions) else assign_uniformly
        all_of = {topic: frozenset(range(partition_counts[topic])) for topic in sorted(wanted & whole)}
        shares |= {member_id: {**mine, **all_of} for member_id, mine in share(some, partition_counts).items()}
    return {member_id: shares[member_id] for member_id in sorted(shares)}


def _place_each(members: Mapping[str, Subscriber], partition_counts: Mapping[Uuid, int]) -> dict[str, Assignment]:
    """Give each of many members one partition, of which there are no more, so that all have as many takers.

    A member stays where it is unless more than their share are there; of several partitions it keeps the one with
    fewest takers.
    """
    topics = next(iter(members.values())).topics
    takers = dict.fromkeys(_unassigned({}, topics, partition_counts), 0)
    if not takers:
        return dict.fromkeys(members, NO_PARTITIONS)
    quota, extra = divmod(len(members), len(takers))
    placed: dict[str, tuple[Uuid, int]] = {}
    for member_id, member in members.items():
        had = [(topic, index) for topic, indexes in member.has.items() for index in indexes]
        stays = min((where for where in had if where in takers), key=lambda where: (takers[where], where), default=None)
        if stays is None or takers[stays] >= quota + (extra > 0):
            continue
        extra -= takers[stays] == quota
        takers[stays] += 1
        placed[member_id] = stays
    fewest = [(count, where) for where, count in takers.items()]
    heapify(fewest)
    for member_id in members:
        if member_id not in placed:
            count, placed[member_id] = fewest[0]
            heapreplace(fewest, (count + 1, placed[member_id]))
    return {member_id: _by_topic([where]) for member_id, where in placed.items()}


def _by_topic(partitions: list[tuple[Uuid, int]]) -> Assignment:
    grouped: dict[Uuid, list[int]] = {}
    for topic, partition in sorted(partitions):
        grouped.setdefault(topic, []).append(partition)
    return {topic: frozenset(numbers) for topic, numbers in grouped.items()}


# By the names that clients give in `group.remote.assignor`; the first is what a group has that names none.
ASSIGNORS: Mapping[str, Assignor] = MappingProxyType({"uniform": assign_uniformly, "range": assign_ranges})
DEFAULT_ASSIGNOR = "uniform"
