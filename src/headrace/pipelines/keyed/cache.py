"""Decoded runs kept in a process, as many as fit into a number of bytes.

Runs never change and no two have one id, so what is kept under an id is right whichever query, partition or attempt
asks for it, and nothing need ever be declared stale.
"""

from collections import OrderedDict
from collections.abc import Callable

from headrace.pipelines.keyed.run import Run


class RunCache:
    """The runs used last."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.size_bytes = 0
        self.hits = 0
        self.misses = 0
        self._runs: OrderedDict[str, tuple[Run, int]] = OrderedDict()

    def get(self, identity: str, load: Callable[[str], Run]) -> Run:
        """The run of that id, loaded if it is not here."""
        if (held := self._runs.get(identity)) is not None:
            self._runs.move_to_end(identity)
            self.hits += 1
            return held[0]
        self.misses += 1
        run = load(identity)
        self.put(identity, run)
        return run

    def put(self, identity: str, run: Run) -> None:
        """Keep a run; those not used for longest go, and one that is too large alone is not kept."""
        size = run.size_bytes
        self.drop(identity)
        self._runs[identity] = (run, size)
        self.size_bytes += size
        while self.size_bytes > self.limit_bytes:
            _, (_, gone) = self._runs.popitem(last=False)
            self.size_bytes -= gone

    def drop(self, identity: str) -> None:
        """Forget a run, which was merged into another."""
        if (held := self._runs.pop(identity, None)) is not None:
            self.size_bytes -= held[1]
