"""The members of a stack: all of them in the order of their start, or some and what they need. Pure."""

from collections.abc import Collection, Sequence

from headrace.errors import nearest
from headrace.stack.errors import NoSuchMember
from headrace.stack.kind import Member, Stack
from headrace.stack.machine import Post
from headrace.stack.registry import KINDS


def members_of(stack: Stack) -> list[Member]:
    """Every process that the stack wants."""
    return [member for kind in KINDS for member in kind.members(stack)]


def chosen(members: Sequence[Member], names: Collection[str]) -> list[Member]:
    """Those called so, by their whole name, their own, or their kind, and all that they need."""
    if not names:
        return list(members)
    wanted = {member.name for name in names for member in _called(members, name)}
    by_name = {member.name: member for member in members}
    while more := {need for name in wanted for need in by_name[name].needs} - wanted:
        wanted |= more
    return [member for member in members if member.name in wanted]


def _called(members: Sequence[Member], name: str) -> list[Member]:
    found = [member for member in members if name in (member.name, member.kind)]
    found = found or [member for member in members if member.name.partition(".")[2] == name]
    if not found:
        raise NoSuchMember(f"there is no {name!r} in the stack: {nearest(name, [one.name for one in members])}")
    if len({member.kind for member in found}) > 1:
        both = " and ".join(member.name for member in found)
        raise NoSuchMember(f"{name!r} may mean {both}: give the whole name")
    return found


def posts_of(members: Sequence[Member]) -> tuple[Post, ...]:
    """What the machine has to know of them."""
    ranks = {kind.name: rank for rank, kind in enumerate(KINDS)}
    return tuple(
        Post(
            member.name,
            ranks[member.kind],
            member.needs,
            member.topics,
            member.is_task,
            member.may_end,
            member.is_vital,
        )
        for member in members
    )
