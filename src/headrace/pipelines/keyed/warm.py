"""Every compiled loop of keyed state called once, so that a worker finds machine code in memory and loads none."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.pipelines.keyed.memory import MemoryRunner
from headrace.pipelines.keyed.operator import Batch, Changes, Due, Keyed, Plan, Rows, State, Times, Values

_CELL = pa.schema([("n", pa.int64())])
_INPUT = pa.schema([("text", pa.string()), ("whole", pa.int64())])


@dataclass(frozen=True)
class _Touches:
    def plan(self, keys: pa.Schema, rows: pa.Schema) -> Plan:  # noqa: ARG002 - the same whatever comes
        return Plan(_CELL, (Values("values", _CELL), Rows("rows", _CELL, "n")))

    def on_rows(self, batch: Batch, state: State, times: Times) -> Changes:  # noqa: ARG002
        numbers = np.arange(len(batch.keys))
        cells = Keyed(numbers, pa.RecordBatch.from_arrays([pa.array(numbers)], schema=_CELL))
        state.read("values")
        return Changes(emit=state.read("rows"), put={"values": cells}, append={"rows": cells})

    def on_timers(self, due: Due, state: State, times: Times) -> Changes:
        raise NotImplementedError


def warm() -> None:
    """Two micro-batches, of which the second merges."""
    runner = MemoryRunner(_Touches(), by=["text", "whole"], schema=_INPUT, cache_bytes=0)
    for _ in range(2):
        runner.batch([{"text": "a", "whole": 1}, {"text": None, "whole": 2}])
