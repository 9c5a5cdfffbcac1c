"""What can be wrong with an operator's settings, each in one sentence; and users' names held against columns."""

from collections.abc import Collection, Mapping, Sequence

from headrace import errors
from headrace.pipelines.errors import PipelineError

On = str | Sequence[str] | Mapping[str, str]


class BadWindow(PipelineError):
    """A window that cannot be: no watermark, a slide longer than the window, a gap of nothing."""


class BadTime(PipelineError):
    """A field that is no time, or an interval that cannot be read."""


class BadField(PipelineError):
    """A column that does not exist, or has a type that will not do."""


class UnknownValue(PipelineError):
    """A change that leaves a value out, which nothing that was seen before it has."""


class BadAggregate(PipelineError):
    """An aggregate that cannot be computed so."""


def nearest(name: str, names: Collection[str]) -> str:
    """What to say about a name that does not exist."""
    return errors.nearest(name, names, "there are")


def as_names(given: str | Sequence[str]) -> tuple[str, ...]:
    """One name or several."""
    return (given,) if isinstance(given, str) else tuple(given)


def key_pairs(on: On, what: str) -> tuple[tuple[str, str], ...]:
    """`on=` of a join as pairs of a left and a right column."""
    pairs = tuple(on.items()) if isinstance(on, Mapping) else tuple((name, name) for name in as_names(on))
    if not pairs:
        raise BadField(f"{what} joins on no column: write on='order', or on={{'order': 'order_id'}} (left: right)")
    return pairs


def require(names: Collection[str], columns: Collection[str], what: str) -> None:
    """Refuse names that are no columns."""
    for name in names:
        if name not in columns:
            raise BadField(f"{what} names {name!r}, which is not a column: {nearest(name, columns)}")
