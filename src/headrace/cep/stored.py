"""A pattern as a record of a topic: patterns that are added, paused and removed while a query runs.

The topic is compacted. A record's key is the pattern's name, its value JSON: `{"pattern": TEXT, "state": "running"}`,
where the text is in either language and the state `running` or `paused`. A tombstone removes the pattern.
"""

import json
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Self

from headrace.cep.errors import InvalidPattern
from headrace.cep.pattern import Pattern
from headrace.cep.spelling import read_pattern
from headrace.errors import nearest

RUNNING, PAUSED = "running", "paused"
STATES: Final = (RUNNING, PAUSED)
LONGEST_NAME: Final = 200


@dataclass(frozen=True)
class StoredPattern:
    name: str
    text: str
    state: str = RUNNING

    @cached_property
    def pattern(self) -> Pattern:
        """The pattern that the text is; `InvalidPattern` if it is none."""
        return read_pattern(self.text)

    @property
    def key(self) -> bytes:
        return self.name.encode()

    @property
    def value(self) -> bytes:
        return json.dumps({"pattern": self.text, "state": self.state}, ensure_ascii=False).encode()

    def stand(self, state: str) -> Self:
        """The same in another state."""
        return replace(self, state=state)


def read_name(key: bytes | None) -> str:
    """The name that a record's key is."""
    try:
        name = (key or b"").decode()
    except UnicodeDecodeError:
        raise InvalidPattern("the name of a pattern is not text in UTF-8: the record's key is its name") from None
    return check_name(name)


def check_name(name: str) -> str:
    if not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        raise InvalidPattern(
            f"{name[:40]!r} cannot be a pattern's name: write 1 to {LONGEST_NAME} characters that can be seen"
        )
    return name


def read_stored(name: str, value: bytes) -> StoredPattern:
    """What a record says; its text is not looked at yet."""
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("pattern"), str):
        raise InvalidPattern(
            f"the record of the pattern {name!r} cannot be read: its value is JSON, as in "
            '{"pattern": "Pattern.begin(…)", "state": "running"}'
        )
    try:
        found["pattern"].encode()
    except UnicodeEncodeError:
        raise InvalidPattern(
            f"the text of the pattern {name!r} has half a character in it (a surrogate without its other half): write "
            "it in UTF-8"
        ) from None
    state = found.get("state", RUNNING)
    if state not in STATES:
        raise InvalidPattern(f"the pattern {name!r} has the state {state!r}: {nearest(str(state), STATES)}")
    return StoredPattern(name, found["pattern"], state)
