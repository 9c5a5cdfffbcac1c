"""What happens inside the one transaction, the same for every SQL store, which brings `run` and opens and ends it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from headrace.stores.batch import Numbered, Recorded, Step, Target, next_step
from headrace.stores.errors import SinkMisconfigured
from headrace.stores.sql.statements import BATCHES, Merge, TableName, create_table, quoted

Run = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]


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


def target_beside(target: Target, version: int) -> Target:
    """Where a version is written until it takes over."""
    return replace(target, table=_table_name(target.table, version), name=_sink_name(target.name, version))


def _table_name(table: str, version: int) -> str:
    return f"{table}__v{version}"


def _sink_name(name: str, version: int) -> str:
    return f"{name}@v{version}"


def switch_tables(
    run: Run, exists: Callable[[TableName], bool], table: TableName, name: str, version: int, mark: str
) -> None:
    """Put the tables of a version in place, inside a transaction of the caller's."""
    built = table.sibling(_table_name(table.name, version))
    kept = table.sibling(_table_name(table.name, version - 1))
    if not exists(built):
        if exists(table):
            return  # it was done before
        raise SinkMisconfigured(f"{built} is not there: build version {version} before switching to it")
    if exists(kept):
        raise SinkMisconfigured(f"{kept} is in the way of the version that is replaced: drop or rename it")
    for old, new in ((table, kept), (built, table)):
        for source, goal in ((old, new), (old.tombstones, new.tombstones)):
            if exists(source):
                run(f"ALTER TABLE {source} RENAME TO {quoted(goal.name)}", ())
    batches = table.sibling(BATCHES)
    for before, after in ((name, _sink_name(name, version - 1)), (_sink_name(name, version), name)):
        run(f"UPDATE {batches} SET sink = {mark} WHERE sink = {mark}", (after, before))  # noqa: S608
