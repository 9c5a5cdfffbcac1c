"""The contract of a place: somewhere that a stack keeps what may be about a subject."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from headrace.forgetting.keyring import Keyring
from headrace.forgetting.report import Finding, Hit
from headrace.forgetting.search import Needles


@dataclass(frozen=True, slots=True)
class Subject:
    """Who is forgotten: by name, and by the ids of all keys that it ever had."""

    name: str
    keys: Keyring = field(repr=False)
    key_ids: frozenset[str]


class Place(Protocol):
    """What always holds: a second `forget` finds what the first one left, however that one ended."""

    @property
    def name(self) -> str: ...

    def forget(self, subject: Subject, *, dry: bool) -> Iterator[Finding]:
        """Erase what the subject's keys do not make unreadable by themselves; with `dry`, say what would be done."""
        ...

    def search(self, needles: Needles) -> Iterator[Hit]:
        """Where any of these values is."""
        ...
