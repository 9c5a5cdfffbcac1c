"""What an enrichment is asked for, held against the columns of both sides. Pure: it sees schemas, never data."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.pipelines.operators.errors import BadField, as_names, require
from headrace.pipelines.operators.stragglers import ASIDE
from headrace.pipelines.operators.tables.current import EMPTIED, GONE, OFFSET, PARTITION, ROW
from headrace.pipelines.operators.tables.form import TIME, VERSION, WEIGHT

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

On = str | Sequence[str] | Mapping[str, str]
KINDS: Final = ("inner", "left")
_ABOUT: Final = (ROW, GONE, PARTITION, OFFSET, VERSION, TIME)  # what a version has beside its key
_MEND: Final = "write .transform(row_versions(key=['…'])) after reading the table's topic, with its primary key"


@dataclass(frozen=True)
class Choice:
    """Pairs of an event's column and the table's that have to be equal, and the table's columns that are added."""

    pairs: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]

    @property
    def by(self) -> tuple[str, ...]:
        """The key's columns as events call them."""
        return tuple(mine for mine, _ in self.pairs)


def key_pairs(on: On) -> tuple[tuple[str, str], ...]:
    """`on` as pairs of names."""
    pairs = tuple(on.items()) if isinstance(on, Mapping) else tuple((name, name) for name in as_names(on))
    if not pairs:
        raise BadField(
            "enrich cannot tell which row belongs to an event, because on names no column: write on='customer_id', or "
            "on={'customer_id': 'id'} if the table calls it otherwise"
        )
    return pairs


def check_how(how: str) -> bool:
    """Whether events without a row are kept."""
    if how not in KINDS:
        raise BadField(f"enrich has how={how!r}: write one of {', '.join(KINDS)}; right and full are for join_tables")
    return how == "left"


def chosen(
    events: "StructType", table: "StructType", on: On, columns: str | Sequence[str] | None, prefix: str, joined: str
) -> Choice:
    """The columns of both sides, once they are known to be there, of one type, and called differently in the output."""
    row = _row(table)
    pairs = key_pairs(on)
    keys = [name for name in table.names if name not in (*_ABOUT, EMPTIED)]
    require([mine for mine, _ in pairs], events.names, "on in enrich")
    theirs = [name for _, name in pairs]
    if sorted(theirs) != sorted(keys):
        raise BadField(
            f"enrich looks rows up by the table's primary key, which is {', '.join(keys)}, and on names "
            f"{', '.join(theirs)} of the table: name just the key, or join by other columns with join_tables"
        )
    for mine, its in pairs:
        left, right = (side[name].dataType.simpleString() for side, name in ((events, mine), (table, its)))
        if left != right:
            raise BadField(
                f"enrich compares {mine!r} of the events, which is {left}, with {its!r} of the table, which is "
                f"{right}: cast one of them, as in .withColumn({mine!r}, col({mine!r}).cast({right!r}))"
            )
    picked = tuple(name for name in row if not name.startswith("(")) if columns is None else as_names(columns)
    require(picked, row, "columns in enrich")
    _check_output(events.names, picked, prefix, joined)
    return Choice(pairs, picked)


def _row(table: "StructType") -> list[str]:
    """The table's columns beside its key."""
    names = table.names
    if WEIGHT in names:
        raise BadField(
            f"enrich needs every version that a row has had, and a table with {WEIGHT} tells only what is left after "
            f"each micro-batch: {_MEND}"
        )
    missing = [name for name in _ABOUT if name not in names]
    if missing or not len(names) > len(_ABOUT):
        said = f"it has no column {missing[0]!r}" if missing else "it has no key"
        raise BadField(f"the table in enrich is no stream of versions, because {said}: {_MEND}")
    return list(table[ROW].dataType.names)  # type: ignore[attr-defined]


def _check_output(events: Collection[str], picked: Sequence[str], prefix: str, joined: str) -> None:
    for name in (joined, ASIDE):
        if name in events:
            raise BadField(
                f"enrich adds a column {name!r}, and the events have one already: "
                + (
                    f"write joined='{joined}_…' for this one"
                    if name == joined
                    else "drop it before, or take on_time(…)"
                )
            )
    for place, name in enumerate(picked):
        made = f"{prefix}{name}"
        if made in events or made in (joined, ASIDE):
            raise BadField(
                f"the events and the table both have a column {made!r}: write prefix='…' for the table's, or "
                "leave it out with columns=[…]"
            )
        if name in picked[:place]:
            raise BadField(f"columns in enrich names {name!r} twice: name it once")
