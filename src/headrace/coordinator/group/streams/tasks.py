"""Tasks, and who is to have which: active ones, and standby copies of those with state on other instances.

A task is a partition of a subtopology. The assignor is pure, and sticky before anything else: a member keeps its tasks
as far as the numbers stay even, then tasks go where a copy of their state is, and then to whoever has the least.
"""

import math
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple, Protocol

from headrace.protocol.messages.shared import TaskIds


class Task(NamedTuple):
    subtopology_id: str
    partition: int


class Tasks(NamedTuple):
    """Tasks by role. A warm-up is a copy that is to become active once it has caught up."""

    active: frozenset[Task] = frozenset()
    standby: frozenset[Task] = frozenset()
    warmup: frozenset[Task] = frozenset()

    def kept_in(self, other: "Tasks") -> "Tasks":
        """Those that the other has in the same role."""
        return Tasks(*(mine & theirs for mine, theirs in zip(self, other, strict=True)))

    def without(self, other: "Tasks") -> "Tasks":
        return Tasks(*(mine - theirs for mine, theirs in zip(self, other, strict=True)))

    def with_all(self, other: "Tasks") -> "Tasks":
        return Tasks(*(mine | theirs for mine, theirs in zip(self, other, strict=True)))

    @property
    def is_empty(self) -> bool:
        return not any(self)

    def each(self) -> Iterator[Task]:
        """Every task, once for each role that it is held in."""
        for tasks in self:
            yield from tasks


NO_TASKS = Tasks()


class TaskList(Protocol):
    """Tasks of a subtopology, as requests and records list them."""

    subtopology_id: str
    partitions: list[int]


def read_tasks(listed: Iterable[TaskList] | None) -> frozenset[Task]:
    return frozenset(Task(each.subtopology_id, number) for each in listed or () for number in each.partitions)


def list_tasks(tasks: Iterable[Task]) -> list[TaskIds]:
    return [TaskIds(subtopology_id=name, partitions=numbers) for name, numbers in by_subtopology(tasks).items()]


def by_subtopology(tasks: Iterable[Task]) -> dict[str, list[int]]:
    """The numbers of the tasks, in order."""
    numbers: dict[str, list[int]] = {}
    for name, number in sorted(tasks):
        numbers.setdefault(name, []).append(number)
    return numbers


# --- who is to have which


class Worker(NamedTuple):
    """A member as the assignor sees it: the process that it is a thread of, and what it was to have so far."""

    process_id: str
    previous: Tasks = NO_TASKS


def assign_tasks(
    workers: Mapping[str, Worker], counts: Mapping[str, int], stateful: Iterable[str], standby_replicas: int
) -> dict[str, Tasks]:
    """What each member is to have, of `counts` tasks of each subtopology.

    No member has more than one active task more than another. A standby copy is on another process than the task and
    than other copies of it; where there are too few processes there are fewer copies.
    """
    if not workers:
        return {}
    # Partition by partition, not subtopology by subtopology, so that what one member has to give up is of all of them.
    tasks = sorted((Task(name, n) for name, count in counts.items() for n in range(count)), key=lambda t: (t[1], t[0]))
    active = _assign_active(workers, tasks)
    owners = {task: member_id for member_id, owned in active.items() for task in owned}
    with_state = frozenset(stateful)
    copied = [task for task in tasks if task.subtopology_id in with_state]
    standby = _assign_standby(workers, copied, owners, standby_replicas)
    return {member_id: Tasks(frozenset(active[member_id]), frozenset(standby[member_id])) for member_id in workers}


class _Loads:
    """How much each member has, and each process; who has the least is found without looking at all of them.

    There is a heap of processes, each by its member that has the least, so that a process is passed over as a whole.
    What is in a heap may be out of date: loads only grow, so whoever has got more is put back in its turn.
    """

    def __init__(self, workers: Mapping[str, Worker], loads: Mapping[str, int]) -> None:
        self._process = {member_id: worker.process_id for member_id, worker in workers.items()}
        self.of = Counter(loads)
        self._of_process: Counter[str] = Counter()
        for member_id, load in loads.items():
            self._of_process[self._process[member_id]] += load
        self._members: dict[str, list[tuple[int, str]]] = {}
        for member_id, process_id in self._process.items():
            self._members.setdefault(process_id, []).append((self.of[member_id], member_id))
        for members in self._members.values():
            heapify(members)
        self._processes = [(self._key(process_id), process_id) for process_id in self._members]
        heapify(self._processes)

    def _key(self, process_id: str) -> tuple[int, int, str]:
        members = self._members[process_id]
        while (load := self.of[member_id := members[0][1]]) != members[0][0]:
            heapreplace(members, (load, member_id))
        return load, self._of_process[process_id], member_id

    def add(self, member_id: str) -> None:
        self.of[member_id] += 1
        self._of_process[self._process[member_id]] += 1

    def least(self, without: Container[str] = ()) -> str | None:
        """Whoever has the least, and whose process has, outside of some processes."""
        heap, passed, found = self._processes, [], None
        while heap and found is None:
            key, process_id = heap[0]
            now = self._key(process_id)
            if key != now:
                heapreplace(heap, (now, process_id))
            elif process_id in without:
                passed.append(heappop(heap))
            else:
                found = key[2]
        for entry in passed:
            heappush(heap, entry)
        return found


def _assign_active(workers: Mapping[str, Worker], tasks: list[Task]) -> dict[str, set[Task]]:
    assigned: dict[str, set[Task]] = {member_id: set() for member_id in sorted(workers)}
    least, larger = divmod(len(tasks), len(workers))  # so many members have one more than the others

    def take(member_id: str, task: Task) -> bool:
        nonlocal larger
        has = len(assigned[member_id])
        if has > least or (has == least and not larger):
            return False
        larger -= has == least
        assigned[member_id].add(task)
        return True

    for role in ("active", "warmup", "standby"):
        holders = _holders(workers, role)
        tasks = [task for task in tasks if not any(take(member_id, task) for member_id in holders.get(task, ()))]
    loads = _Loads(workers, {member_id: len(owned) for member_id, owned in assigned.items()})
    for task in sorted(tasks):  # and here subtopology by subtopology, so that everybody gets some of each
        chosen = loads.least()
        assert chosen is not None
        assigned[chosen].add(task)
        loads.add(chosen)
    return assigned


def _assign_standby(
    workers: Mapping[str, Worker], tasks: list[Task], owners: Mapping[Task, str], replicas: int
) -> dict[str, set[Task]]:
    assigned: dict[str, set[Task]] = {member_id: set() for member_id in sorted(workers)}
    loads = _Loads(workers, Counter(owners.values()))
    fair = math.ceil((len(owners) + len(tasks) * replicas) / len(workers))
    standbys, actives = _holders(workers, "standby"), _holders(workers, "active")
    for task in tasks:
        used = {workers[owners[task]].process_id}
        for _ in range(replicas):
            chosen: str | None = None
            for member_id in (*standbys.get(task, ()), *actives.get(task, ())):
                if workers[member_id].process_id not in used and loads.of[member_id] < fair:
                    chosen = member_id
                    break
            chosen = chosen or loads.least(without=used)
            if chosen is None:
                break
            assigned[chosen].add(task)
            loads.add(chosen)
            used.add(workers[chosen].process_id)
    return assigned


def _holders(workers: Mapping[str, Worker], role: str) -> dict[Task, list[str]]:
    """Who had each task in this role."""
    holders: dict[Task, list[str]] = {}
    for member_id in sorted(workers):
        for task in getattr(workers[member_id].previous, role):
            holders.setdefault(task, []).append(member_id)
    return holders
