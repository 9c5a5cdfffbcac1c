"""A user name is taken once, though every user has a stream of their own.

No version of a user's stream guards a name. Two ways to guard it all the same:

- A name has a stream as well, and both are appended to together: the name is reserved, and the user registered, or
  neither. A name that is given up can be taken again.
- An event has its name as a tag, and a user is registered only if no event with that tag was there, or came meanwhile.

    python examples/user_names.py [FILE]
"""

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.eventsourcing import Aggregate, EventStore, Refused, Repository, event, refuse, sqlite, where
from headrace.eventsourcing.repository import Work


@event("user-registered", tags=["name"])
@dataclass(frozen=True)
class UserRegistered:
    name: str


@event("user-renamed")
@dataclass(frozen=True)
class UserRenamed:
    name: str


@event("name-reserved")
@dataclass(frozen=True)
class NameReserved:
    user: str


@event("name-released")
@dataclass(frozen=True)
class NameReleased:
    pass


@dataclass(frozen=True)
class Call:
    """Give a user a name, be it the first or another."""

    name: str


@dataclass(frozen=True)
class Reserve:
    user: str


@dataclass(frozen=True)
class Release:
    pass


@dataclass(frozen=True)
class User:
    name: str = ""


@dataclass(frozen=True)
class Name:
    user: str = ""


users, names = Aggregate("user", User), Aggregate("name", Name)


@users.decide
def call(state: User, command: Call) -> UserRegistered | UserRenamed:
    return UserRenamed(command.name) if state.name else UserRegistered(command.name)


@users.evolve
def called(state: User, event: UserRegistered | UserRenamed) -> User:
    return replace(state, name=event.name)


@names.decide
def reserve(state: Name, command: Reserve) -> NameReserved:
    if state.user:
        refuse(f"the name is taken by user {state.user}")
    return NameReserved(command.user)


@names.decide
def release(state: Name, command: Release) -> NameReleased | None:  # noqa: ARG001 - its type says all
    return NameReleased() if state.user else None


@names.evolve
def reserved(state: Name, event: NameReserved) -> Name:
    return replace(state, user=event.user)


@names.evolve
def released(state: Name, event: NameReleased) -> Name:  # noqa: ARG001
    return replace(state, user="")


def rename(users_and_names: Repository, user: str, name: str) -> bool:
    """Whether the user has the name now; the one they had before is free for others."""

    def work(work: Work) -> None:
        before = work.load(users, user).state.name
        work.handle(names, name, Reserve(user))
        work.handle(users, user, Call(name))
        if before:
            work.handle(names, before, Release())

    try:
        users_and_names.run(work)
    except Refused:
        return False
    return True


# --- by tag


@dataclass(frozen=True)
class Registrations:
    """Of one name: what a query for its tag finds."""

    number: int = 0


registrations = Aggregate("registrations", Registrations)


@registrations.decide
def register(state: Registrations, command: Call) -> UserRegistered:
    if state.number:
        refuse(f"the name {command.name} is taken")
    return UserRegistered(command.name)


@registrations.evolve
def registered(state: Registrations, event: UserRegistered) -> Registrations:  # noqa: ARG001
    return Registrations(state.number + 1)


def register_by_tag(repository: Repository, user: str, name: str) -> bool:
    """Whether the user has the name; nobody is ever called so again."""
    query = where(types=["user-registered"], tags=[f"name:{name}"])
    try:
        repository.run(lambda work: work.handle_within(registrations, query, Call(name), stream=users.stream(user)))
    except Refused:
        return False
    return True


def run_by_tag(store: EventStore) -> int:
    """Eight users want the same name at once; how many of them have it."""
    repository = Repository(store)
    with ThreadPoolExecutor(8) as pool:
        took = list(pool.map(lambda user: register_by_tag(repository, f"tagged{user}", "bob"), range(8)))
    print(f"user tagged{took.index(True)} is called bob, and {took.count(False)} others were refused")
    return took.count(True)


def run(store: EventStore) -> dict[str, int]:
    """Eight users want the same name at once; the one who has it gives it up, and another takes it."""
    both = Repository(store)
    with ThreadPoolExecutor(8) as pool:
        took = list(pool.map(lambda user: rename(both, str(user), "ann"), range(8)))
    winner = str(took.index(True))
    print(f"user {winner} is called ann, and {took.count(False)} others were refused")
    assert rename(both, winner, "anna")
    other = str((int(winner) + 1) % 8)
    assert rename(both, other, "ann")
    print(f"user {winner} is called {both.load(users, winner).state.name} now, and user {other} ann")
    return {name: int(both.load(names, name).state.user) for name in ("ann", "anna")}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        store = sqlite(sys.argv[1] if len(sys.argv) > 1 else Path(folder) / "users.db")
        run(store)
        run_by_tag(store)
        store.close()
