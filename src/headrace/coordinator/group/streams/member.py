"""A member: who it is (its profile), how far it has come (its holding), and its next step to what it is to have.

The first two are two records of the group's log, and change apart from each other.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.coordinator.group.heartbeats import JOIN_EPOCH, MemberState, fenced
from headrace.coordinator.group.streams.tasks import NO_TASKS, Task, Tasks


class Profile(NamedTuple):
    """Who a member is: a thread of a process, with the topology of its program."""

    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = 0
    process_id: str = ""
    endpoint: tuple[str, int] | None = None  # where it answers queries, if it does
    client_tags: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Holding:
    """How far a member has come: its epoch, what it has, and what it has been told to give up.

    `since` has exactly the active tasks, held or being given up, each with the epoch in which the member was given it.
    """

    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Tasks = NO_TASKS
    revoking: Tasks = NO_TASKS
    since: Mapping[Task, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        active = self.assigned.active | self.revoking.active
        object.__setattr__(self, "since", {task: self.since.get(task, self.epoch) for task in active})

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether it has all of the target assignment, and nothing else."""
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch


class Member(NamedTuple):
    member_id: str
    profile: Profile = Profile()
    holding: Holding = Holding()


# One member's next step towards its target assignment.
#
# A task goes to its new owner only after the old one has given it up and said so, and a copy of it to a process only
# after that process has no other. A member therefore first gives up what it shall no longer have (and stays in its
# epoch until it has said so), and then takes, in the epoch of the target assignment, whatever of its share is free.


def reconcile(
    holding: Holding,
    target: Tasks,
    target_epoch: int,
    owned: Tasks | None,
    is_free: Callable[[Task, bool], bool],
) -> Holding:
    """The next holding, or the same one if no step is possible.

    `owned` is what the member says it has, or None if it does not say; `is_free` tells whether no other member keeps it
    from taking a task, as an active one or as a copy.
    """
    if holding.is_reconciled_to(target_epoch):
        return holding
    epoch = holding.epoch
    if holding.state is MemberState.UNREVOKED:
        if _has_any(owned, holding.revoking):
            return holding
        epoch += 1
    elif holding.state is MemberState.UNKNOWN:
        if owned is None or not owned.is_empty:
            raise fenced("the member is in a state that only a newer broker knows")
        epoch = target_epoch
    kept, revoking = holding.assigned.kept_in(target), holding.assigned.without(target)
    if not revoking.is_empty and _has_any(owned, revoking):
        return Holding(epoch, holding.epoch, MemberState.UNREVOKED, kept, revoking, holding.since)
    wanted = target.without(kept)
    free = Tasks(
        *(
            frozenset(task for task in tasks if is_free(task, role == "active"))
            for role, tasks in zip(Tasks._fields, wanted, strict=True)
        )
    )
    state = MemberState.STABLE if free == wanted else MemberState.UNRELEASED
    assigned = kept.with_all(free)
    if epoch == holding.epoch == target_epoch and state is holding.state and assigned == holding.assigned:
        return holding
    since = {task: holding.since[task] for task in kept.active}
    return Holding(target_epoch, holding.epoch, state, assigned, since=since)


def _has_any(owned: Tasks | None, tasks: Tasks) -> bool:
    return owned is None or not owned.kept_in(tasks).is_empty
