"""An operator's changes checked against its plan, so that a mistake is reported at the call that made it."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from headrace.pipelines.keyed.operator import (
    BadOperator,
    Changes,
    Clock,
    Keyed,
    Longs,
    Plan,
    Rows,
    Table,
    Timers,
    Values,
)


def check_changes(changes: Changes, plan: Plan, keys: int) -> Changes:
    """The changes, if they are ones that the plan allows for a call with so many keys; else `BadOperator`."""
    tables = {table.name: table for table in (*plan.tables, *plan.common)}
    if changes.emit is not None:
        check_emitted(changes.emit, plan, keys)
    if changes.more and plan.ordered is not None:
        raise BadOperator("what is emitted in order comes in one go: name it in emit, and leave more out")
    _tables("put", changes.put, tables, Values, keys)
    _tables("append", changes.append, tables, Rows, keys)
    for name, gone in changes.delete.items():
        _known("delete", name, tables)
        _numbers(f"delete {name!r}", gone, keys)
        _once(f"delete {name!r}", gone)
        if name in changes.put and np.isin(gone, changes.put[name].key).any():
            raise BadOperator(f"a key is both in put and delete of table {name!r}: name it in one of them")
    for name in changes.expire:
        if _known("expire", name, tables).time is None:
            raise BadOperator(f"table {name!r} has no time to expire by: declare it with time='…'")
    _timers("event", changes.event_timers, plan.clock in (Clock.EVENT, Clock.WALL), keys)
    _timers("wall", changes.wall_timers, plan.clock is Clock.WALL, keys)
    return changes


def check_emitted(emit: Keyed, plan: Plan, keys: int) -> Keyed:
    """Rows that a call with so many keys may emit; else `BadOperator`."""
    _rows("emit", emit, plan.output, keys)
    return emit


def _known(what: str, name: str, tables: Mapping[str, Table]) -> Table:
    if name not in tables:
        raise BadOperator(f"{what} names a table {name!r} that the plan does not have: it has {sorted(tables)}")
    return tables[name]


def _tables(what: str, given: Mapping[str, Keyed], tables: Mapping[str, Table], kind: type, keys: int) -> None:
    for name, rows in given.items():
        table = _known(what, name, tables)
        if not isinstance(table, kind):
            raise BadOperator(f"{what} is not for table {name!r}, which is declared as {type(table).__name__}")
        _rows(f"{what} {name!r}", rows, table.schema, keys)
        if table.time is not None and rows.rows.column(table.time).null_count:
            raise BadOperator(f"{what} {name!r} has a null in {table.time!r}, the column that orders the table")


def _rows(what: str, given: Keyed, schema: pa.Schema, keys: int) -> None:
    if not given.rows.schema.equals(schema):
        raise BadOperator(f"{what} has columns {_show(given.rows.schema)}, and the plan says {_show(schema)}")
    if len(given.key) != given.rows.num_rows:
        raise BadOperator(f"{what} has {given.rows.num_rows} rows and {len(given.key)} key numbers")
    _numbers(what, given.key, keys)


def _numbers(what: str, numbers: Longs, keys: int) -> None:
    if len(numbers) and (numbers.min() < 0 or numbers.max() >= keys):
        raise BadOperator(f"{what} has a key number outside 0…{keys - 1}, the keys of the call")


def _timers(clock: str, given: Timers | None, allowed: bool, keys: int) -> None:
    if given is None:
        return
    if not allowed:
        raise BadOperator(f"{clock} timers are set, and the plan's clock does not wake for them: see Plan.clock")
    if len(given.key) != len(given.at_us):
        raise BadOperator(f"{clock} timers have {len(given.key)} keys and {len(given.at_us)} times")
    _numbers(f"{clock} timers", given.key, keys)
    _once(f"{clock} timers", given.key)


def _once(what: str, numbers: Longs) -> None:
    if len(numbers) and np.bincount(numbers).max() > 1:
        raise BadOperator(f"{what} name a key twice: a key can be named once in a call")


def _show(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
