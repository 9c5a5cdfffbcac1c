"""Groups of a table that changes, on Spark: exactly what the table as it is says, with a restart, and natively too."""

import json
from collections import Counter
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.pipelines.operators import aggregates as agg
from headrace.pipelines.operators.aggregation.top_n import top_n
from headrace.pipelines.operators.errors import BadAggregate, BadField
from headrace.pipelines.operators.tables.form import FORM_DDL, TIME, VERSION, WEIGHT
from headrace.pipelines.operators.tables.groups.changes import distinct_changes, group_changes

pytestmark = pytest.mark.java

SHAPE = f"shop string, item string, cents int, price decimal(10,2), weight double, {FORM_DDL}"
SUMS = {
    "n": agg.count(),
    "total": agg.sum("cents"),
    "mean": agg.avg("cents"),
    "money": agg.sum("price"),
    "each": agg.avg("price"),
}
ALL = {
    **SUMS,
    "kilos": agg.sum("weight"),
    "least": agg.min("cents"),
    "items": agg.count_distinct("item"),
    "best": top_n(2, "-cents", "item", "cents"),
}
Row = dict[str, Any]


def order(number: int, cents: int) -> Row:
    return {
        "shop": ["a", "b", None][number % 3],
        "item": f"item-{number % 4}",
        "cents": cents,
        "price": str(Decimal(cents) / 100),
        "weight": cents / 10,
    }


BATCHES: list[dict[int, Row | None]] = [
    {number: order(number, number) for number in range(40)},
    {number: order(number + 1, 100 - number) for number in range(0, 40, 3)},
    {number: None if number % 3 else order(number, 7) for number in range(1, 40)},
]


def write(folder: Path, number: int, table: dict[int, Row]) -> None:
    """A micro-batch of changes as a file; the table is left as they make it."""
    lines = []
    about = {VERSION: {"table": "orders", "key": "{}", "offset": number}, TIME: f"2026-01-01T00:00:0{number}Z"}
    for key, row in BATCHES[number].items():
        if key in table:
            lines.append({**table.pop(key), WEIGHT: -1, **about})
        if row is not None:
            table[key] = row
            lines.append({**row, WEIGHT: 1, **about})
    folder.mkdir(exist_ok=True)
    (folder / f"{number}.json").write_text("\n".join(map(json.dumps, lines)))


def grouped(table: dict[int, Row]) -> dict[str | None, Row]:
    found = {}
    for shop in {row["shop"] for row in table.values()}:
        rows = [row for row in table.values() if row["shop"] == shop]
        cents = sorted(row["cents"] for row in rows)
        best = sorted((-row["cents"], row["item"]) for row in rows)[:2]
        found[shop] = {
            "n": len(rows),
            "total": sum(cents),
            "mean": sum(cents) / len(rows),
            "money": Decimal(sum(cents)) / 100,
            "each": (Decimal(sum(cents)) / 100 / len(rows)).quantize(Decimal("0.000001"), ROUND_HALF_UP),
            "kilos": pytest.approx(sum(cents) / 10, rel=1e-15),
            "least": cents[0],
            "items": len({row["item"] for row in rows}),
            "best": [(item, -less) for less, item in best],
        }
    return found


class Seen:
    """A query's rows, batch after batch, from a folder of files, one file a batch."""

    def __init__(self, spark: SparkSession, source: Path, checkpoint: Path, mode: str) -> None:
        self.spark, self.source, self.checkpoint, self.mode = spark, source, checkpoint, mode
        self.batches: list[list[Row]] = []

    def frame(self) -> DataFrame:
        return self.spark.readStream.schema(SHAPE).option("maxFilesPerTrigger", 1).json(str(self.source))

    def run(self, made: DataFrame) -> None:
        """All that is there."""
        write = made.writeStream.outputMode(self.mode).option("checkpointLocation", str(self.checkpoint))
        query = write.foreachBatch(self._take).trigger(availableNow=True).start()
        query.awaitTermination(120)

    def _take(self, rows: DataFrame, _number: int) -> None:
        self.batches.append([row.asDict() for row in rows.collect()])


def added_up(batches: list[list[Row]]) -> list[Row]:
    """The rows that are left when all weights are added; a retraction names exactly the row that it takes back."""
    left: Counter[str] = Counter()
    rows: dict[str, Row] = {}
    for row in (row for batch in batches for row in batch):
        weight = row.pop(WEIGHT)
        left[repr(row)] += weight
        rows[repr(row)] = row
    assert set(left.values()) <= {0, 1}
    return [rows[shown] for shown, weight in left.items() if weight]


def shown(row: Row) -> Row:
    """Results alone, as `grouped` has them."""
    plain = {name: row[name] for name in ALL if name in row}
    if "best" in plain:
        plain["best"] = [(cell["item"], cell["cents"]) for cell in plain["best"]]
    return plain


def test_groups_follow_their_table(spark: SparkSession, tmp_path: Path) -> None:
    table: dict[int, Row] = {}
    changes = Seen(spark, tmp_path / "in", tmp_path / "changes", "append")
    for numbers in (range(2), range(2, 3)):
        for number in numbers:
            write(tmp_path / "in", number, table)
        # Started again behind the first two batches.
        changes.run(changes.frame().transform(group_changes("shop", buckets=3, **ALL)))
    assert len(changes.batches) == len(BATCHES)
    view = added_up(changes.batches)
    assert {row["shop"]: shown(row) for row in view} == grouped(table)
    for row in view:
        assert row[VERSION]["table"] == "group"
        assert json.loads(row[VERSION]["key"]) == {"shop": row["shop"]}

    # Spark's own aggregation over the same files: the latest row of a key is the group's.
    upserts = Seen(spark, tmp_path / "in", tmp_path / "upserts", "update")
    upserts.run(upserts.frame().transform(group_changes("shop", native=True, **SUMS)))
    latest = {row["shop"]: row for batch in upserts.batches for row in batch}
    want = {shop: {name: row[name] for name in SUMS} for shop, row in grouped(table).items()}
    assert {shop: shown(row) for shop, row in latest.items() if row[WEIGHT] > 0} == want
    assert latest["b"][VERSION]["offset"] > 1

    frame = changes.frame()
    keyed = frame.transform(distinct_changes(["shop", "item"]))
    assert keyed.columns == ["shop", "item", WEIGHT, VERSION, TIME]
    types = dict(frame.transform(group_changes("shop", **SUMS)).dtypes)
    assert dict(frame.transform(group_changes("shop", native=True, **SUMS)).dtypes) == types
    for refused, sentence in [
        (
            lambda: keyed.transform(group_changes("shop", native=True, n=agg.count())),
            "has a TransformWithState before it",
        ),
        (lambda: frame.transform(group_changes("shop", native=True, n=agg.min("cents"))), "none of count, sum and avg"),
        (lambda: frame.transform(group_changes("shop", native=True, n=agg.sum("weight"))), "is double and would drift"),
        (lambda: frame.transform(group_changes("shp", n=agg.count())), "by in group_changes names 'shp', which is no"),
        (lambda: frame.transform(group_changes(n=agg.sum("shop"))), "only numbers can be summed"),
        (lambda: frame.transform(group_changes("shop", shop=agg.count())), "is called 'shop', as another column"),
        (lambda: frame.drop(WEIGHT).transform(group_changes(n=agg.count())), "is not a table as changes"),
        (lambda: frame.transform(distinct_changes("itm")), "distinct_changes names 'itm', which is not a column"),
    ]:
        with pytest.raises((BadAggregate, BadField)) as found:
            refused()
        assert sentence in str(found.value)
