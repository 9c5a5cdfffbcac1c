"""Which columns a join of streams has: the rule for names that both sides have. Pure.

The columns of `on` come first and once, by their names on the left. Then all others of the left, then all others of
the right; where the left has a name too, the right one has a prefix.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from headrace.pipelines.operators.errors import BadField, as_names, require

On = str | Sequence[str] | Mapping[str, str]


@dataclass(frozen=True)
class Columns:
    """Names: pairs of keys (left, right), the left's others, and the right's others with what they are called."""

    keys: tuple[tuple[str, str], ...]
    left: tuple[str, ...]
    right: tuple[tuple[str, str], ...]


def key_pairs(on: On, what: str) -> tuple[tuple[str, str], ...]:
    """`on=` as pairs of a left and a right column."""
    pairs = tuple(on.items()) if isinstance(on, Mapping) else tuple((name, name) for name in as_names(on))
    if not pairs:
        raise BadField(f'{what} joins on no column: write on="order", or on={{"order": "order_id"}} (left: right)')
    for side, names in (("left", [one for one, _ in pairs]), ("right", [other for _, other in pairs])):
        for place, name in enumerate(names):
            if name in names[:place]:
                raise BadField(f"on names {name!r} of the {side} side twice: name it once")
    return pairs


def columns(
    keys: tuple[tuple[str, str], ...],
    left: Mapping[str, str],
    right: Mapping[str, str],
    *,
    prefix: str,
    only_left: bool,
    made: Collection[str] = (),
) -> Columns:
    """The columns that come out of sides with these columns and types, beside those `made` by the join itself."""
    require([one for one, _ in keys], left, "on, on the left side,")
    require([other for _, other in keys], right, "on, on the right side,")
    for one, other in keys:
        if left[one] != right[other]:
            raise BadField(
                f"the key {one!r} is {left[one]} on the left and {other!r} is {right[other]} on the right: "
                f'make them one type, for example with .withColumn("{other}", col("{other}").cast("{left[one]}"))'
            )
    ours = [name for name in left if name not in {one for one, _ in keys}]
    theirs = [] if only_left else [name for name in right if name not in {other for _, other in keys}]
    for name in made:
        if name in left:
            raise BadField(f"the left side has a column {name!r}, as the join makes one: rename it before the join")
    taken = {*left, *made}
    called = [f"{prefix}{name}" if name in taken else name for name in theirs]
    for place, name in enumerate(called):
        if name in taken or name in called[:place]:
            raise BadField(
                f"the right side's {theirs[place]!r} would be called {name!r}, as another column is: "
                'choose another prefix with prefix="…", or rename it before the join'
            )
    return Columns(keys, tuple(ours), tuple(zip(theirs, called, strict=True)))
