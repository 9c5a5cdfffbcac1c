"""Patterns in Python: `Pattern.begin("small", "amount < 10").followed_by("big", "amount > 1000").within("1 minute")`.

A pattern is a value: each method gives a new one. Quantifiers (`times`, `optional`, `greedy`, `until` …) are of the
part added last, which may be a group: a pattern of its own. Conditions are Spark SQL over the columns of a row;
`small.amount` in the condition of another variable is the last such row of the match, `FIRST(small.amount)`,
`PREV(amount)`, `COUNT(small.*)` and the like look further. `Pattern.sql` reads the same from MATCH_RECOGNIZE.

Of a pattern in Python every match counts, as in Flink CEP, unless it skips; of one in SQL the preferred one from each
row.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from headrace.cep.automaton import Automaton
from headrace.cep.checking import check
from headrace.cep.compiling import compile_tree
from headrace.cep.errors import InvalidPattern
from headrace.cep.explaining import explain
from headrace.cep.match import Event, Match
from headrace.cep.match_recognize import read_match_recognize
from headrace.cep.matcher import Matcher
from headrace.cep.partial import Cap
from headrace.cep.pictures.diagram import diagram_of
from headrace.cep.pictures.svg import draw_svg
from headrace.cep.tree import (
    NO_SKIP,
    AfterMatch,
    Contiguity,
    Greed,
    Link,
    PatternTree,
    Skip,
)
from headrace.cep.written import Either, Order, Part, Row, Written, place_of, tree_of
from headrace.durations import Interval, InvalidDuration, microseconds, positive
from headrace.errors import nearest
from headrace.places import whole


@dataclass(frozen=True)
class Pattern:
    """What to look for in a stream of rows."""

    written: "Written"

    # --- parts

    @classmethod
    def begin(cls, what: "str | Pattern", condition: str | None = None) -> "Pattern":
        """The first row of a match: a name for it and a condition, or a group."""
        return cls(_append(Written(), what, condition, Link()))

    @classmethod
    def sql(cls, text: str) -> "Pattern":
        """A pattern as `MATCH_RECOGNIZE (…)`."""
        return cls(Written(sql=read_match_recognize(text)))

    @classmethod
    def permutation(cls, *items: "Pattern", contiguity: Contiguity = Contiguity.RELAXED) -> "Pattern":
        """All of them, in any order."""
        if len(items) < 2:
            raise InvalidPattern("a permutation has two patterns at least")
        for item in items:
            _require_group(item)
        return cls(Written((Part(Order(tuple(item.written for item in items), Link(contiguity))),)))

    def next(self, what: "str | Pattern", condition: str | None = None, *, within: Interval | None = None) -> "Pattern":
        """The very next row (strict contiguity)."""
        return self._with(what, condition, Contiguity.STRICT, within)

    def followed_by(
        self, what: "str | Pattern", condition: str | None = None, *, within: Interval | None = None
    ) -> "Pattern":
        """The next row that matches; others in between are skipped (relaxed contiguity).

        `within` bounds the time from the row taken before to this one.
        """
        return self._with(what, condition, Contiguity.RELAXED, within)

    def followed_by_any(
        self, what: "str | Pattern", condition: str | None = None, *, within: Interval | None = None
    ) -> "Pattern":
        """Each later row that matches, one match for each (non-deterministic relaxed contiguity)."""
        return self._with(what, condition, Contiguity.ANY, within)

    def not_next(self, name: str, condition: str | None = None) -> "Pattern":
        """The next row is not like this."""
        return self._with_absence(Part(Row(name, condition), is_absence=True, is_next=True))

    def not_followed_by(self, name: str, condition: str | None = None, *, within: Interval | None = None) -> "Pattern":
        """No row like this comes before the next part; or, with `within`, for so long.

        As the last part it is a match when that time is over, or else that of the whole pattern.
        """
        for_us = None if within is None else _duration(within, f"`within` of {name}")
        return self._with_absence(Part(Row(name, condition), is_absence=True, for_us=for_us))

    def __or__(self, other: "Pattern") -> "Pattern":
        """This or the other."""
        branches: list[Written] = []
        for one in (self, other):
            _require_group(one)
            only = one.written.parts[0]
            if len(one.written.parts) == 1 and isinstance(only.what, Either) and only == Part(only.what):
                branches += only.what.branches
            else:
                branches.append(one.written)
        return Pattern(Written((Part(Either(tuple(branches))),)))

    # --- how often

    def times(self, least: int, most: int | None = None) -> "Pattern":
        """Exactly so often, or `least` to `most` times."""
        most = least if most is None else most
        if not 0 <= least <= most or most == 0:
            raise InvalidPattern(f"times({least}, {most}) is never: write how often at least, and how often at most")
        return self._quantified(least=least, most=most)

    def times_or_more(self, least: int) -> "Pattern":
        if least < 0:
            raise InvalidPattern(f"times_or_more({least}) is never: write how often at least")
        return self._quantified(least=least, most=None)

    def one_or_more(self) -> "Pattern":
        return self._quantified(least=1, most=None)

    def optional(self) -> "Pattern":
        """As often as was said, or not at all."""
        return self._quantified(is_optional=True)

    def greedy(self) -> "Pattern":
        """As often as possible: what it could take is left to nothing that follows."""
        return self._repeated("greedy", greed=Greed.GREEDY)

    def reluctant(self) -> "Pattern":
        """As seldom as possible: it goes on only with what cannot be taken by what follows."""
        return self._repeated("reluctant", greed=Greed.RELUCTANT)

    def consecutive(self) -> "Pattern":
        """No other row lies between the times."""
        return self._repeated("consecutive", turns=Contiguity.STRICT)

    def allow_combinations(self) -> "Pattern":
        """Rows that match may be left out between the times."""
        return self._repeated("allow_combinations", turns=Contiguity.ANY)

    def until(self, condition: str) -> "Pattern":
        """A row like this ends the repetition."""
        return self._repeated("until", until=condition)

    def excluded(self) -> "Pattern":
        """Rows that have to be there and are not shown (`{- … -}` in SQL)."""
        return self._quantified(is_excluded=True)

    # --- the whole

    def within(self, duration: Interval) -> "Pattern":
        """The last row comes sooner than this after the first."""
        return self._whole(within_us=_duration(duration, "`within`"))

    def skip_to_next(self) -> "Pattern":
        """One match from each row."""
        return self._whole(after=AfterMatch(Skip.TO_NEXT))

    def skip_past_last(self) -> "Pattern":
        """No row is in two matches."""
        return self._whole(after=AfterMatch(Skip.PAST_LAST))

    def skip_to_first(self, variable: str) -> "Pattern":
        return self._whole(after=AfterMatch(Skip.TO_FIRST, frozenset({variable}), whole(variable)))

    def skip_to_last(self, variable: str) -> "Pattern":
        return self._whole(after=AfterMatch(Skip.TO_LAST, frozenset({variable}), whole(variable)))

    def once(self) -> "Pattern":
        """One match a key, and no other (Esper without `every`)."""
        return self._whole(after=AfterMatch(Skip.TO_NONE))

    def every(self) -> "Pattern":
        """A match may begin at every row: what holds anyway, to take `once` back."""
        return self._whole(after=NO_SKIP, distinct=None)

    def every_distinct(self, expression: str, *, expires: Interval | None = None) -> "Pattern":
        """A match begins only at a row whose value of the expression did not begin one before, or not for so long."""
        expires_us = None if expires is None else _duration(expires, "`expires`")
        return self._whole(distinct=(expression, expires_us))

    # --- use

    @cached_property
    def tree(self) -> PatternTree:
        """The pattern tree, which is the same for both languages."""
        return self.written.sql if self.written.sql is not None else tree_of(self.written)

    def compile(self, columns: Iterable[str] | None = None, *, bounded: bool = False) -> Automaton:
        """The automaton, checked: a user's mistake is refused here.

        `columns` are those of the rows; `bounded` says that the input has an end, so that a pattern without `within`
        cannot keep its partial matches for ever.
        """
        return check(compile_tree(self.tree), columns, bounded=bounded)

    def explain(self, columns: Iterable[str] | None = None) -> str:
        """The automaton, for people to read."""
        return explain(self.compile(columns, bounded=True))

    def svg(self) -> str:
        """The automaton as a picture, light and dark; a notebook shows it by itself."""
        return draw_svg(diagram_of(self.compile(bounded=True)))

    def _repr_svg_(self) -> str:
        return self.svg()

    def matcher(
        self,
        *,
        key: str | Sequence[str] | None = None,
        time: str | None = None,
        unit: str = "ms",
        lateness: Interval | None = None,
        columns: Iterable[str] | None = None,
        bounded: bool = False,
        most_partial: int = 10_000,
        at_cap: str = "drop_oldest",
        on_timed_out: Callable[[Match], None] | None = None,
        on_late: Callable[[Event], None] | None = None,
    ) -> Matcher:
        """A matcher to be given one event after the other.

        key             columns by which rows are kept apart; those of PARTITION BY if the pattern is in SQL
        time            the column with the event time; without one, the order is that of arrival
        unit            what a number in it counts: s, ms or us
        lateness        how far behind the latest event others may come: order is restored so far, ties by partition and
                        offset. Without it events are matched as they come
        columns         those of the rows; else those of the first event
        bounded         the events have an end, so no `within` is needed
        most_partial    partial matches a key may have, and at_cap what happens then: drop_oldest, drop_newest or fail
        on_timed_out    is given partial matches whose time was over
        on_late         is given events behind the watermark
        """
        if at_cap not in Cap.CHOICES:
            raise InvalidPattern(f"at_cap is {at_cap!r}: {nearest(at_cap, Cap.CHOICES)}")
        tree = self.tree
        keys = tree.partition if key is None else (key,) if isinstance(key, str) else tuple(key)
        order = tree.order if time is None else time
        lateness_us = None if lateness is None else _duration(lateness, "`lateness`", least=0)
        matcher = Matcher(
            lambda known: self.compile(known, bounded=bounded),
            key=keys,
            time=order,
            unit=unit,
            lateness_us=lateness_us,
            cap=Cap(most_partial, at_cap),
            on_timed_out=on_timed_out,
            on_late=on_late,
        )
        if columns is not None:
            matcher.prepare(columns)
        else:
            self.compile(bounded=bounded)  # what is wrong whatever the columns are is refused at once
        return matcher

    def matches(self, events: Iterable[Any], **options: Any) -> Iterator[Match]:
        """The matches in some events, as soon as each is complete; the options are those of `matcher`."""
        return self.matcher(**options).run(events)

    # --- building

    def _with(
        self, what: "str | Pattern", condition: str | None, contiguity: Contiguity, within: Interval | None
    ) -> "Pattern":
        self._refuse_sql()
        within_us = None if within is None else _duration(within, "`within`")
        return Pattern(_append(self.written, what, condition, Link(contiguity, within_us)))

    def _with_absence(self, part: Part) -> "Pattern":
        self._refuse_sql()
        assert isinstance(part.what, Row)
        _name(part.what.name)
        return self._whole(parts=(*self.written.parts, part))

    def _quantified(self, **changes: Any) -> "Pattern":
        self._refuse_sql()
        *before, last = self.written.parts
        if last.is_absence:
            raise InvalidPattern("what must not come is not repeated, optional or excluded", place_of(last))
        return self._whole(parts=(*before, replace(last, **changes)))

    def _repeated(self, method: str, **changes: Any) -> "Pattern":
        self._refuse_sql()
        last = self.written.parts[-1]
        if not (last.is_repeated or (last.is_optional and "greed" in changes)):
            raise InvalidPattern(
                f"{method} is of a part that is repeated: write times or one_or_more before it", place_of(last)
            )
        return self._quantified(**changes)

    def _whole(self, **changes: Any) -> "Pattern":
        self._refuse_sql()
        return Pattern(replace(self.written, **changes))

    def _refuse_sql(self) -> None:
        if self.written.sql is not None:
            raise InvalidPattern("a pattern in SQL is complete: write it in the text")


def _append(written: Written, what: str | Pattern, condition: str | None, link: Link) -> Written:
    inner: Row | Written
    if isinstance(what, Pattern):
        _require_group(what)
        if condition is not None:
            raise InvalidPattern("a group has no condition of its own: give it to its parts", whole(condition))
        inner = what.written
    else:
        inner = Row(_name(what), condition)
    return replace(written, parts=(*written.parts, Part(inner, link)))


def _require_group(pattern: object) -> None:
    if not isinstance(pattern, Pattern):
        raise InvalidPattern(f"a pattern is expected here, not {type(pattern).__name__}: write Pattern.begin(…)")
    if pattern.written.sql is not None:
        raise InvalidPattern("a pattern in SQL cannot be part of another")
    if not pattern.written.is_group:
        raise InvalidPattern("within, skip and every_distinct are of the whole pattern, not of a group in it")
    if not pattern.written.parts:
        raise InvalidPattern("a group needs a part at least")


def _name(given: object) -> str:
    if not isinstance(given, str) or not given.isidentifier():
        raise InvalidPattern(f"{given!r} cannot be a variable's name: write letters, digits and _")
    return given


def _duration(given: Interval, what: str, least: int = 1) -> int:
    try:
        return positive(given, what) if least else max(0, microseconds(given, what))
    except InvalidDuration as error:
        raise InvalidPattern(str(error)) from None
