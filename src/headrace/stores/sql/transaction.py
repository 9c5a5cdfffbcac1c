"""What happens inside one transaction, the same for every database: batches and their numbers, and a version's switch.

`headrace_batches` remembers, for each sink and query, the last batch that was written. A version is built beside its
table, as `NAME__vN`, under a sink of its own, `SINK@vN`. The switch renames the table, the table of its deletions and
the memory of its batches together; what was replaced is kept as the version before. A switch that is done already
changes nothing.
"""

from dataclasses import replace

from headrace.stores.batch import Numbered, Recorded, Step, Target, decide_step
from headrace.stores.errors import SinkMisconfigured
from headrace.stores.sql.database import Database
from headrace.stores.sql.statements import Merge, TableName, create_table, quote

BATCHES = "headrace_batches"


def create_batches(db: Database, table: TableName) -> None:
    """The memory of what was written, in the schema of this table."""
    db.run(
        f"CREATE TABLE IF NOT EXISTS {table.sibling(BATCHES)} (sink VARCHAR(500) NOT NULL, query_id VARCHAR(100) NOT "
        f"NULL, batch_id BIGINT NOT NULL, superseded BOOLEAN NOT NULL, written_at {db.moment} NOT NULL, "
        "PRIMARY KEY (sink, query_id))"
    )


def read_step(db: Database, table: TableName, target: Target, batch: Numbered) -> Step:
    """What to do with the batch, from what the store remembers."""
    rows = db.run(
        f"SELECT query_id, batch_id, superseded FROM {table.sibling(BATCHES)} WHERE sink = ?",  # noqa: S608
        (target.name,),
    )
    recorded = (Recorded(query, number, bool(superseded)) for query, number, superseded in rows)
    return decide_step(target.name, recorded, batch.query_id, batch.batch_id, target.on_new_query)


def write_batch(db: Database, target: Target, batch: Numbered, types: dict[str, str], merge: Merge) -> None:
    """Check, merge and record, unless the batch is there already. The caller commits, or rolls back on an error."""
    table, tombstones = merge.table, merge.table.tombstones
    step = read_step(db, table, target, batch)
    if step is Step.SKIP:
        return
    if target.create:
        db.run(create_table(table, list(types.items()), target.keys))
    remembers = merge.deletes and merge.version is not None
    if remembers:
        remembered = [(name, types[name]) for name in (*target.keys, str(merge.version))]
        db.run(create_table(tombstones, remembered, target.keys))
    if step is Step.START_OVER:
        for emptied in (table, tombstones) if remembers else (table,):
            db.run(f"DELETE FROM {emptied}")  # noqa: S608
    for statement in merge.statements():
        db.run(statement)
    record_batch(db, table, target, batch, step)


def record_batch(
    db: Database, table: TableName, target: Target, batch: Numbered, step: Step, at_ms: int | None = None
) -> None:
    """The batch's number in the memory of the sink, and with a new query the end of the old one."""
    batches = table.sibling(BATCHES)
    if step is not Step.WRITE:
        db.run(f"UPDATE {batches} SET superseded = true WHERE sink = ?", (target.name,))  # noqa: S608
    db.run(
        f"INSERT INTO {batches} (sink, query_id, batch_id, superseded, written_at) VALUES (?, ?, ?, false, ?) "  # noqa: S608
        "ON CONFLICT (sink, query_id) DO UPDATE SET batch_id = excluded.batch_id, written_at = excluded.written_at",
        (target.name, batch.query_id, batch.batch_id, db.instant(at_ms)),
    )


def target_beside(target: Target, version: int) -> Target:
    """Where a version is written until it takes over."""
    return replace(target, table=f"{target.table}__v{version}", name=_sink_name(target.name, version))


def _sink_name(name: str, version: int) -> str:
    return f"{name}@v{version}"


def switch_tables(db: Database, table: TableName, name: str, version: int, *others: TableName) -> None:
    """Put the tables of a version in place, inside a transaction of the caller's; `others` belong to the same sink."""
    built, kept = table.with_suffix(f"v{version}"), table.with_suffix(f"v{version - 1}")
    if not db.exists(built):
        if db.exists(table):
            return  # it was done before
        raise SinkMisconfigured(f"{built} is not there: build version {version} before switching to it")
    if db.exists(kept):
        raise SinkMisconfigured(f"{kept} is in the way of the version that is replaced: drop or rename it")
    for each in (table, *others):
        built, kept = each.with_suffix(f"v{version}"), each.with_suffix(f"v{version - 1}")
        for old, new in ((each, kept), (built, each)):
            for source, goal in ((old, new), (old.tombstones, new.tombstones)):
                if db.exists(source):
                    db.run(f"ALTER TABLE {source} RENAME TO {quote(goal.name)}")
    for before, after in ((name, _sink_name(name, version - 1)), (_sink_name(name, version), name)):
        db.run(f"UPDATE {table.sibling(BATCHES)} SET sink = ? WHERE sink = ?", (after, before))  # noqa: S608
