"""What Redis knows of a view besides its rows: the hash of its state, and the sorted set of its keys."""

import json
from dataclasses import dataclass, replace

from headrace.stores.batch import Recorded, Step
from headrace.stores.views.freshness import Freshness
from headrace.stores.views.shape import Shape
from headrace.stores.views.store import Kept, ViewBatch

AT_ONCE = 1_000  # keys in one command
TIMEOUT_S = 30


@dataclass(frozen=True)
class Found:
    """What the state says."""

    kept: Kept | None
    rows: str
    recorded: tuple[Recorded, ...]

    @classmethod
    def read(cls, state: dict[bytes, bytes]) -> "Found":
        """From the hash; nothing where it is empty."""
        if not state:
            return cls(None, "", ())
        kept = Kept(
            Shape.from_json(state[b"shape"].decode()),
            Freshness.from_json(state[b"freshness"]),
            int(state[b"logged_from"]),
        )
        return cls(kept, state[b"rows"].decode(), tuple(Recorded(*one) for one in json.loads(state[b"batches"])))

    @property
    def known(self) -> Kept:
        """What is known, where something is."""
        assert self.kept is not None
        return self.kept

    def after(self, step: Step, batch: ViewBatch) -> list[Recorded]:
        """The memory of batches with this one."""
        others = [one for one in self.recorded if one.query_id != batch.query_id]
        if step is not Step.WRITE:
            others = [replace(one, superseded=True) for one in others]
        return [*others, Recorded(batch.query_id, batch.batch_id)]


def rows_prefix(state: str, before: str) -> str:
    """What keys of rows begin with: the view's own name, and another one where that is taken."""
    first = f"{state}:"
    return first if before != first else f"{state}~:"


def index_of(rows: str) -> str:
    """The sorted set of a version's keys."""
    return f"{rows}#keys"
