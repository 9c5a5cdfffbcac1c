"""A decision in the making: a group as it will be once the records so far are applied.

Each step of a decision writes its records here and goes on with the group that they make, by the same `apply` that will
run on the real one. The real one is not touched.
"""

from collections.abc import Callable, Hashable, Iterable

from headrace.coordinator.decision import Answer, CoordinatorRecord, Decision, Timer
from headrace.coordinator.group.consumer.state import ConsumerGroup


class Draft:
    """Records and timers that add up to a decision about one group."""

    def __init__(self, group: ConsumerGroup, sees: Callable[[str], bool] | None = None) -> None:
        """`sees` tells which topics whoever asks may know of; without it, no expression is resolved."""
        self.sees = sees
        self._group = group
        self._is_copy = False
        self._records: list[CoordinatorRecord] = []
        self._timers: dict[Hashable, int | None] = {}

    @property
    def group(self) -> ConsumerGroup:
        return self._group

    def write(self, *records: CoordinatorRecord) -> None:
        """Add records, and go on with the group that they make."""
        if not self._is_copy:
            self._group = self._group.copy()
            self._is_copy = True
        for record in records:
            self._group.apply(record)
        self._records += records

    def set_timer(self, key: Hashable, at_ms: int) -> None:
        """Ask again at this time."""
        self._timers[key] = at_ms

    def cancel_timers(self, keys: Iterable[Hashable]) -> None:
        self._timers.update(dict.fromkeys(keys))

    def decision(self, *answers: Answer) -> Decision:
        return Decision(answers, tuple(self._records), tuple(Timer(key, at_ms) for key, at_ms in self._timers.items()))
