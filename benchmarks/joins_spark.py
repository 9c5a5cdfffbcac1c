"""Our side: `enrich` as of event time, and `join_tables`, over the same topics."""

import time
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from headrace.pipelines.operators import event_time
from headrace.pipelines.operators.tables.changes import row_versions, table_changes
from headrace.pipelines.operators.tables.changes_reading import envelope_schema
from headrace.pipelines.operators.tables.enrichment.enrich import enrich
from headrace.pipelines.operators.tables.form import WEIGHT
from headrace.pipelines.operators.tables.joins.join import join_tables
from joins_events import CUSTOMERS, FLUSH, LATENESS_S, NUMBER, ORDERS, RECORDS_PER_BATCH, SALES
from pipelines_spark import Headrace

_LATENESS = f"{LATENESS_S} seconds"
_CARRIED = ("tier", "revision", "name")


class Ours(Headrace):
    """Our operators on our session and source."""

    def query(self, row: str, bootstrap: str, topics: dict[str, str]) -> dict[str, Any]:  # type: ignore[override]
        made = self._joined(row, bootstrap, topics)
        started = time.perf_counter()
        query = self._to_the_end(made.writeStream.format("noop"))
        seconds = time.perf_counter() - started
        rows = sum(max(0, progress.sink.numOutputRows) for progress in query.recentProgress)
        return {"seconds": seconds, "rows": rows, "batches": len(query.recentProgress)}

    def verify(self, row: str, bootstrap: str, topics: dict[str, str]) -> dict[str, Any]:  # type: ignore[override]
        made = self._joined(row, bootstrap, topics)
        weight = fn.col(WEIGHT) if WEIGHT in made.columns else fn.lit(1)
        named = made.select(*(fn.col(made.columns[place]).alias(str(place)) for place in range(4)), weight.alias("w"))
        name = f"verified_{next(self._numbers)}"
        self._to_the_end(named.writeStream.format("memory").queryName(name).outputMode("append"))
        sums = ("sum(w)", f"sum(w * {NUMBER} * {NUMBER})")
        ((results, total),) = self.spark.table(name).where(f"`0` <> {FLUSH}").selectExpr(*sums).collect()
        self.spark.catalog.dropTempView(name)
        return {"results": int(results or 0), "checksum": int(total or 0)}

    def _joined(self, row: str, bootstrap: str, topics: dict[str, str]) -> DataFrame:
        customers = self._changes(CUSTOMERS, bootstrap, topics["customers"])
        if row == "as-of":
            read = self._reader(True, bootstrap, topics["sales"]).option("format", "json")
            sales = read.schema(_ddl(SALES)).load().withColumn("at", fn.timestamp_millis("ts"))
            timed = sales.drop("ts").transform(event_time("at", delay=_LATENESS, into="at"))
            found = timed.transform(
                enrich(
                    customers.transform(row_versions("id")),
                    on={"customer": "id"},
                    as_of="at",
                    columns=list(_CARRIED),
                    delay=_LATENESS,
                )
            )
            return found.select("id", "customer", *_CARRIED, "shop")
        # Changes are trusted as Flink's format trusts them: what `before` says is taken back.
        trusted = table_changes("id", trust_before=True)
        orders = self._changes(ORDERS, bootstrap, topics["orders"]).transform(trusted)
        found = orders.transform(join_tables(customers.transform(trusted), on={"customer": "id"}, prefix="of_"))
        return found.select("id", "cents", *(f"of_{name}" for name in _CARRIED), "status", WEIGHT)

    def _changes(self, fields: tuple[tuple[str, str], ...], bootstrap: str, topic: str) -> DataFrame:
        read = self._reader(True, bootstrap, topic).option("format", "json")
        return read.schema(envelope_schema(_ddl(fields))).load()

    def _reader(self, stream: bool, bootstrap: str, topic: str) -> Any:
        return super()._reader(stream, bootstrap, topic).option("maxRecordsPerTrigger", RECORDS_PER_BATCH)


def _ddl(fields: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"`{name}` {kind}" for name, kind in fields)
