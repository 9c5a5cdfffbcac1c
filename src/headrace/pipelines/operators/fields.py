"""Names that users give, held against the columns that there are."""

from collections.abc import Collection, Sequence

from headrace import errors
from headrace.pipelines.operators.errors import BadField


def nearest(name: str, names: Collection[str]) -> str:
    """What to say about a name that does not exist."""
    return errors.nearest(name, names, "there are")


def as_names(given: str | Sequence[str]) -> tuple[str, ...]:
    """One name or several."""
    return (given,) if isinstance(given, str) else tuple(given)


def require(names: Collection[str], columns: Collection[str], what: str) -> None:
    """Refuse names that are no columns."""
    for name in names:
        if name not in columns:
            raise BadField(f"{what} names {name!r}, which is not a column: {nearest(name, columns)}")
