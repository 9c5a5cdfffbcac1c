"""Flink's side, in SQL: a temporal join and a regular join, over tables as Debezium tells their changes."""

from typing import Any

from joins_events import CUSTOMERS, FLUSH, LATENESS_S, ORDERS, SALES, checksum
from pipelines_flink import Flink, _spelt, _timed

_LATE = f"INTERVAL '{LATENESS_S}' SECOND"
_CHANGED = f"`at` TIMESTAMP_LTZ(3) METADATA FROM 'value.source.timestamp' VIRTUAL, WATERMARK FOR `at` AS `at` - {_LATE}"
_QUERIES = {
    "as-of": (
        "SELECT s.id, s.customer, c.tier, c.revision, c.name, s.shop FROM sales AS s "
        "JOIN customers FOR SYSTEM_TIME AS OF s.`time` AS c ON s.customer = c.id"
    ),
    "tables": (
        "SELECT o.id, o.cents, c.tier, c.revision, c.name, o.status FROM orders AS o "
        "JOIN customers AS c ON o.customer = c.id"
    ),
}
_RESULT = "a BIGINT, b BIGINT, c BIGINT, d BIGINT, e STRING, f STRING"


class FlinkJoins(Flink):
    """Bounded reads, as in the other comparisons with Flink."""

    def query(self, row: str, bootstrap: str, topics: dict[str, str]) -> dict[str, Any]:
        environment = self._with_tables(row, bootstrap, topics)
        environment.execute_sql("DROP TABLE IF EXISTS nothing")
        environment.execute_sql(f"CREATE TABLE nothing ({_RESULT}) WITH ('connector' = 'blackhole')")
        return _timed(environment, f"INSERT INTO nothing {_QUERIES[row]}")

    def verify(self, row: str, bootstrap: str, topics: dict[str, str]) -> dict[str, Any]:
        environment = self._with_tables(row, bootstrap, topics)
        found = []
        with environment.execute_sql(_QUERIES[row]).collect() as rows:
            for each in rows:
                if each[0] != FLUSH:
                    taken_back = each.get_row_kind().name in ("UPDATE_BEFORE", "DELETE")
                    found.append((-1 if taken_back else 1, tuple(each)[:4]))
        return checksum(found)

    def _with_tables(self, row: str, bootstrap: str, topics: dict[str, str]) -> Any:
        environment = self._environment("stream")
        is_timed = row == "as-of"
        time = f", `time` AS TO_TIMESTAMP_LTZ(ts, 3), WATERMARK FOR `time` AS `time` - {_LATE}"
        key = ", PRIMARY KEY (id) NOT ENFORCED"
        tables = {
            "sales": (_columns(SALES) + time, "json"),
            "customers": (_columns(CUSTOMERS) + (f", {_CHANGED}" if is_timed else "") + key, "debezium-json"),
            "orders": (_columns(ORDERS) + key, "debezium-json"),
        }
        for name, (columns, form) in tables.items():
            options = {
                "connector": "kafka",
                "topic": topics[name],
                "properties.bootstrap.servers": bootstrap,
                "scan.startup.mode": "earliest-offset",
                "scan.bounded.mode": "latest-offset",
                "format": form,
            }
            environment.execute_sql(f"DROP TABLE IF EXISTS {name}")
            environment.execute_sql(f"CREATE TABLE {name} ({columns}) WITH ({_spelt(options)})")
        return environment


def _columns(fields: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"`{name}` {kind}" for name, kind in fields)
