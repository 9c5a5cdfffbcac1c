"""The straightforward programs: joins as Spark's guide would have them written, with a call for each key."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

AS_OF_OUTPUT = "k long, at timestamp, r_number long, r_text string"
TABLES_OUTPUT = "k long, l_number long, l_text string, r_number long, r_text string, weight int"


class AsOf(StatefulProcessor):
    """Versions and waiting events in two lists; a timer for each event, which is answered when it is due."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Two lists a key."""
        self._handle = handle
        self._versions = handle.getListState("versions", "at timestamp, r_number long, r_text string")
        self._waiting = handle.getListState("waiting", "at timestamp")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: ARG002, N802, N803
        """Keep what came."""
        for frame in rows:
            for row in frame.to_dict("records"):
                if row["is_left"]:
                    self._waiting.appendValue((row["timestamp"],))
                    self._handle.registerTimer(int(row["timestamp"].timestamp() * 1000))
                elif row["weight"] > 0:
                    self._versions.appendValue((row["timestamp"], int(row["r_number"]), row["r_text"]))
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: ARG002, N802, N803
        """The latest version at each event's time, and of those before it no more."""
        due = pd.Timestamp(expiredTimerInfo.getExpiryTimeInMs(), unit="ms")
        versions = sorted(tuple(row) for row in self._versions.get())
        waiting = [at for (at,) in self._waiting.get()]
        ready = [at for at in waiting if pd.Timestamp(at).tz_localize(None) <= due]
        _keep(self._waiting, [(at,) for at in waiting if at not in ready])
        for at in ready:
            known = [version for version in versions if version[0] <= at]
            _keep(self._versions, versions[max(len(known) - 1, 0) :])
            if known:
                yield pd.DataFrame({"k": [key[0]], "at": [at], "r_number": [known[-1][1]], "r_text": [known[-1][2]]})

    def close(self) -> None:
        """Nothing to close."""


class Tables(StatefulProcessor):
    """Each side's rows in a list; a change is paired with the other side's."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Two lists a key."""
        self._sides = {
            True: handle.getListState("left", "number long, text string"),
            False: handle.getListState("right", "number long, text string"),
        }

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: ARG002, N802, N803
        """Add or take away, and tell all pairs that come or go by it."""
        held = {side: [tuple(row) for row in state.get()] for side, state in self._sides.items()}
        told = []
        for frame in rows:
            for row in frame.to_dict("records"):
                is_left = bool(row["is_left"])
                side = "l" if is_left else "r"
                mine = (int(row[f"{side}_number"]), row[f"{side}_text"])
                if row["weight"] > 0:
                    held[is_left].append(mine)
                else:
                    held[is_left].remove(mine)
                for other in held[not is_left]:
                    left, right = (mine, other) if is_left else (other, mine)
                    told.append((key[0], *left, *right, row["weight"]))
        for side, state in self._sides.items():
            _keep(state, held[side])
        if told:
            names = ["k", "l_number", "l_text", "r_number", "r_text", "weight"]
            yield pd.DataFrame(told, columns=names)

    def close(self) -> None:
        """Nothing to close."""


def _keep(state: Any, rows: list[Any]) -> None:
    """Spark refuses an empty list."""
    if rows:
        state.put([tuple(row) for row in rows])
    else:
        state.clear()


AS_OF, TABLES = AsOf, Tables
