"""Flink's side, in SQL."""

from typing import Any

from pipelines_flink import Flink, _timed
from windows_queries import BACK_S, FLUSH_USER, GAP_S, HOP_S, SIZE_S, TUMBLE_S, checksum

_EVENTS = "TABLE events, DESCRIPTOR(`time`)"


def _windowed(function: str) -> str:
    return (
        "SELECT `user`, UNIX_TIMESTAMP(CAST(window_start AS STRING)) * 1000 + EXTRACT(MILLISECOND FROM window_start), "
        "UNIX_TIMESTAMP(CAST(window_end AS STRING)) * 1000 + EXTRACT(MILLISECOND FROM window_end), COUNT(*), SUM(id) "
        f"FROM TABLE({function}) GROUP BY `user`, window_start, window_end"
    )


_SESSION = _windowed(f"SESSION(TABLE events PARTITION BY `user`, DESCRIPTOR(`time`), INTERVAL '{GAP_S}' SECONDS)")
_QUERIES = {
    "tumbling": _windowed(f"TUMBLE({_EVENTS}, INTERVAL '{TUMBLE_S}' SECONDS)"),
    "hopping": _windowed(f"HOP({_EVENTS}, INTERVAL '{HOP_S}' SECONDS, INTERVAL '{SIZE_S}' SECONDS)"),
    "session": _SESSION,
    "session-corrected": _SESSION,
    "sliding": (
        "SELECT `user`, id, ts, COUNT(*) OVER w, SUM(id) OVER w FROM events WINDOW w AS (PARTITION BY `user` "
        f"ORDER BY `time` RANGE BETWEEN INTERVAL '{BACK_S}' SECOND PRECEDING AND CURRENT ROW)"
    ),
}
_RESULT = "`user` STRING, a BIGINT, b BIGINT, n BIGINT, ids BIGINT"


class FlinkWindows(Flink):
    """Bounded reads, as in the other comparison with Flink."""

    def query(self, row: str, bootstrap: str, topic: str) -> dict[str, Any]:
        environment = self._with_events("tumbling", "stream", bootstrap, topic)
        environment.execute_sql("DROP TABLE IF EXISTS nothing")
        environment.execute_sql(f"CREATE TABLE nothing ({_RESULT}) WITH ('connector' = 'blackhole')")
        return _timed(environment, f"INSERT INTO nothing {_QUERIES[row]}")

    def verify(self, row: str, bootstrap: str, topic: str) -> dict[str, Any]:
        environment = self._with_events("tumbling", "stream", bootstrap, topic)
        found = [tuple(each) for each in environment.execute_sql(_QUERIES[row]).collect() if each[0] != FLUSH_USER]
        return {"results": len(found), "checksum": checksum(found)}
