"""What a kind of section is: its keys, what is wrong with one, the processes it needs, and what they say.

What always holds: everything that a member is told stands in its arguments, its environment or its configuration,
never a secret in its arguments, because others can see those.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from headrace.connect.sections import escaped
from headrace.section_keys import Complaint, Key
from headrace.stack.lines import Said, read_condition, read_line

CONFIG: Final = "{config}"  # in arguments: the file that holds the member's configuration
COMMAND: Final = ("headrace.cli.main", "--log-json")
ONCE: Final = ""  # the name of a section that a file has at most once


# All sections of a file: kinds, and the names of each.
Names = Mapping[str, Collection[str]]


class Section(NamedTuple):
    """One section, as it stands in the file with the environment over it."""

    kind: str
    name: str
    values: Mapping[str, Any]
    folder: Path  # paths in the file are relative to it

    @property
    def where(self) -> str:
        return f"{self.kind}.{self.name}" if self.name else self.kind


# All sections of a file by their kinds.
Sections = Mapping[str, Collection[Section]]


@dataclass(frozen=True, slots=True)
class Stack:
    """A file that was checked: kinds, their sections by name, and their values with the defaults."""

    file: Path
    sections: Mapping[str, Mapping[str, Mapping[str, Any]]]

    @property
    def folder(self) -> Path:
        """Where the file is, and the stack's data."""
        return self.file.absolute().parent

    def one(self, kind: str) -> Mapping[str, Any] | None:
        return self.sections.get(kind, {}).get(ONCE)

    def several(self, kind: str) -> Mapping[str, Mapping[str, Any]]:
        return self.sections.get(kind, {})


@dataclass(frozen=True, slots=True)
class Command:
    """A module of ours and its arguments; `config` is handed over in memory, as TOML."""

    arguments: tuple[str, ...]
    config: Mapping[str, Any] | None = field(default=None, repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Member:
    name: str
    kind: str
    command: Callable[[str], Command]  # given the address of the broker; empty while that is not known
    needs: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()  # that it reads
    is_task: bool = False  # it is ready when it has ended
    may_end: bool = False  # an end without an error is no failure
    is_vital: bool = False  # nothing is of use without it
    is_ready_at_once: bool = False
    read: Callable[[str], Said] = read_line


def members_by_section(
    stack: Stack,
    section: str,
    words: tuple[str, ...],
    needs: tuple[str, ...],
    shared: Mapping[str, Any] | None = None,
    **how: Any,
) -> Iterable[Member]:
    """A process for each section `[section.NAME]`: the command `headrace WORDS NAME` with that section alone.

    `shared` are sections that each of them is given besides.
    """
    for name, values in stack.several(section).items():

        def command(bootstrap: str, name: str = name, values: object = values) -> Command:
            arguments = (*COMMAND, *words, name, "--config", CONFIG, "--bootstrap", bootstrap, "--json")
            return Command(arguments, {section: {name: escaped(values)}, **(shared or {})})

        yield Member(f"{section}.{name}", section, command, needs, read=read_condition, **how)


def _nothing(*_: object) -> Iterable[Any]:
    return ()


def _no_keys(_: Mapping[str, Any]) -> Sequence[Key]:
    return ()


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    summary: str
    sample: str  # as `headrace init` writes it
    keys: tuple[Key, ...] = ()
    is_named: bool = False  # [kind.NAME], as many as one likes
    is_open: bool = False  # `check` knows further keys
    further_keys: Callable[[Mapping[str, Any]], Sequence[Key]] = _no_keys  # that a section has by what it says
    check: Callable[[Section], Iterable[Complaint]] = _nothing
    members: Callable[[Stack], Iterable[Member]] = _nothing
    # Takes a second: runs code of the user's, or asks a database that another section names.
    explore: Callable[[Section, Sections], Iterable[Complaint]] = _nothing
    relate: Callable[[Section, Names], Iterable[Complaint]] = _nothing  # what it says of other sections

    def keys_of(self, values: Mapping[str, Any]) -> tuple[Key, ...]:
        """All keys that a section may have."""
        return (*self.keys, *self.further_keys(values))
