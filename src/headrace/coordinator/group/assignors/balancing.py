"""Even loads where members want different topics.

Who holds what is a bipartite graph, and the most even loads are those of an optimal semi-matching (Harvey, Ladner,
Lovász, Tamir 2003): there is no path along which a partition could be handed on, from member to member, from one that
holds two more than the last. First each partition that nobody has goes to the least loaded of its subscribers, then
members hand over directly to one that holds at least two less, the most loaded first, and at last along longer paths.
What is even already does not move. The number of rounds and of long paths is limited, so that a group with wild
subscriptions costs no more than it must; in the tests' many random groups the limit is never reached.
"""

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush, heapreplace

from headrace.protocol.schema import Uuid

Partition = tuple[Uuid, int]

_MOST_ROUNDS = 16


def balance(
    held: dict[str, list[Partition]], wanted: Mapping[str, frozenset[Uuid]], unassigned: Iterable[Partition]
) -> None:
    """Give away what is unassigned, and move partitions until the loads are even; `held` is changed in place."""
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
    """Who holds what, and how much that is."""

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
