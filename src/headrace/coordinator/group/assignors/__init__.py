"""Server-side assignors (KIP-848): pure functions that say which member of a group shall have which partitions."""

from collections.abc import Mapping
from types import MappingProxyType

from headrace.coordinator.group.assignors import range_assignor, uniform
from headrace.coordinator.group.assignors.assignment import NO_PARTITIONS, Assignment, Assignor, Subscriber

# By the names that clients give in `group.remote.assignor`; the first is what a group has that names none.
ASSIGNORS: Mapping[str, Assignor] = MappingProxyType({"uniform": uniform.assign, "range": range_assignor.assign})
DEFAULT_ASSIGNOR = "uniform"

__all__ = ["ASSIGNORS", "DEFAULT_ASSIGNOR", "NO_PARTITIONS", "Assignment", "Assignor", "Subscriber"]
