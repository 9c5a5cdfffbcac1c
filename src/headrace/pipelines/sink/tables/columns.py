"""Whether the columns of a batch fit the table that is there: pure, and asked before anything is written."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from headrace.pipelines.sink.tables.errors import ColumnMismatch, SinkMisconfigured


@dataclass(frozen=True)
class TableColumn:
    """A column as the store declares it."""

    name: str
    type: str
    required: bool = False  # not null, and no default


def check_columns(
    where: str, wanted: Mapping[str, str], found: Iterable[TableColumn], fits: Callable[[str, str], bool]
) -> None:
    """`wanted` maps each column of the batch to the type the store would have given it."""
    by_name = {column.name: column for column in found}
    for name, kind in wanted.items():
        column = by_name.get(name)
        if column is None:
            raise ColumnMismatch(
                f"{where} has no column {name!r}: add it to the table, or leave it out with columns=[...] or a select",
                name,
            )
        if not fits(kind, column.type):
            raise ColumnMismatch(
                f"{where}: the column {name!r} is {column.type} in the table and {kind} in the DataFrame; cast it "
                "before the sink or alter the table",
                name,
            )
    for column in by_name.values():
        if column.required and column.name not in wanted:
            raise ColumnMismatch(
                f"{where}: the column {column.name!r} must not be null and has no default, and the DataFrame does not "
                "have it",
                column.name,
            )


def check_unique(where: str, keys: tuple[str, ...], uniques: Iterable[frozenset[str]]) -> None:
    """An upsert needs the table to know that the keys are unique."""
    if keys and frozenset(keys) not in set(uniques):
        raise SinkMisconfigured(
            f"{where} has no primary key or unique index on exactly ({', '.join(keys)}), which an upsert "
            "needs: create it"
        )


def refuse_missing(where: str, create: bool) -> None:
    """A table that is not there is made, unless the user said not to."""
    if not create:
        raise SinkMisconfigured(f"{where} does not exist, and create=False: create it first")
