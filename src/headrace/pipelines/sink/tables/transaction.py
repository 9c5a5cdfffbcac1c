"""What happens inside the one transaction, the same for every SQL store, which brings `run` and opens and ends it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.pipelines.sink.tables.following import Recorded, Step, next_step
from headrace.pipelines.sink.tables.statements import Merge, TableName, create_table
from headrace.pipelines.sink.tables.target import Target

Run = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]


@dataclass(frozen=True)
class Numbered:
    """A batch as Spark counts it."""

    query_id: str
    batch_id: int


def step_of(run: Run, batches: TableName, target: Target, batch: Numbered, mark: str) -> Step:
    """What to do with the batch, from what the store remembers; `mark` is the store's placeholder."""
    rows = run(f"SELECT query_id, batch_id, superseded FROM {batches} WHERE sink = {mark}", (target.name,))  # noqa: S608
    recorded = (Recorded(query, number, bool(superseded)) for query, number, superseded in rows)
    return next_step(target.name, recorded, batch.query_id, batch.batch_id, target.on_new_query)


def write_batch(
    run: Run,
    batches: TableName,
    target: Target,
    batch: Numbered,
    mark: str,
    types: dict[str, str],
    merge: Merge,
    now: Any,
) -> bool:
    """Check, merge and record; False if the batch is there already. The caller commits, or rolls back on an error."""
    step = step_of(run, batches, target, batch, mark)
    if step is Step.SKIP:
        return False
    if target.create:
        run(create_table(merge.table, list(types.items()), target.keys), ())
    if merge.deletes and merge.version is not None:
        remembered = [(name, types[name]) for name in (*target.keys, merge.version)]
        run(create_table(merge.table.tombstones, remembered, target.keys), ())
    if step is Step.START_OVER:
        run(f"DELETE FROM {merge.table}", ())  # noqa: S608
        if merge.deletes and merge.version is not None:
            run(f"DELETE FROM {merge.table.tombstones}", ())  # noqa: S608
    for statement in merge.statements():
        run(statement, ())
    record_batch(run, batches, target, batch, mark, step, now)
    return True


def record_batch(
    run: Run, batches: TableName, target: Target, batch: Numbered, mark: str, step: Step, now: Any
) -> None:
    """The batch's number in the memory of the sink, and with a new query the end of the old one."""
    if step is not Step.WRITE:
        run(f"UPDATE {batches} SET superseded = true WHERE sink = {mark}", (target.name,))  # noqa: S608
    run(
        f"INSERT INTO {batches} (sink, query_id, batch_id, superseded, written_at) "  # noqa: S608
        f"VALUES ({mark}, {mark}, {mark}, false, {mark}) ON CONFLICT (sink, query_id) "
        "DO UPDATE SET batch_id = excluded.batch_id, written_at = excluded.written_at",
        (target.name, batch.query_id, batch.batch_id, now),
    )
