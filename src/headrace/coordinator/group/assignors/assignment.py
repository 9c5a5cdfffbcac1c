"""The nouns of assigning: what a member wants and has, and what it shall have."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

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
