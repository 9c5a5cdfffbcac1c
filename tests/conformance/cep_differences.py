"""Where Flink or Esper answers a shared case otherwise than Headrace, and what they do not have.

`docs/reference/differences-cep.md` tells users the same; a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass

FLINK, TIMED_OUT, ESPER = "flink", "flink, timed out", "esper"


@dataclass(frozen=True)
class Difference:
    """`at` holds who answers otherwise, and to which cases."""

    title: str
    at: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Missing:
    """What a system refuses to run."""

    title: str
    at: tuple[tuple[str, str], ...]


_GREEDY = ("a b* c", "a b+ c", "a b{1,2} c")

DIFFERENCES = (
    Difference("The end of the input", ((FLINK, "not next at the end"),)),
    Difference(
        "A partial match that was a match before",
        (
            (TIMED_OUT, "one or more at the end"),
            (TIMED_OUT, "optional at the end"),
            (TIMED_OUT, "until at the end"),
            (TIMED_OUT, "at random: a then b until d"),
        ),
    ),
    Difference("`until` before the first row of its repetition", ((FLINK, "at random: a then b until d"),)),
    Difference("`greedy` with an upper bound", ((FLINK, "greedy two to three"),)),
    Difference("A group that is repeated", ((FLINK, "a group once or more"),)),
    Difference(
        "A quantifier at the end of PATTERN",
        ((ESPER, "sql: a b+"), (FLINK, "sql: a b?"), (ESPER, "sql: a b?")),
    ),
    Difference(
        "Rows that two neighbouring variables could take",
        tuple((who, f"sql, greed: {pattern}") for pattern in _GREEDY for who in (FLINK, ESPER)),
    ),
    Difference("No AFTER MATCH SKIP", ((FLINK, "sql, nothing said of what is skipped"),)),
)

MISSING = (
    Missing(
        "Groups and alternation in MATCH_RECOGNIZE",
        tuple(
            (FLINK, name)
            for name in (
                "sql: (a b)+ c",
                "sql: a (b | c) d",
                "sql: a (b | c)+ d",
                "sql: a b | a c",
                "sql: a (b c)? d",
                "at random, sql: (a b)+ c",
                "at random, sql: a (b | c) d",
            )
        ),
    ),
    Missing(
        "PERMUTE",
        tuple(
            (FLINK, f"{name})")
            for name in ("sql: PERMUTE(a, b, c", "sql: PERMUTE(a b, c", "at random, sql: PERMUTE(a, b")
        ),
    ),
    Missing("Exclusion", ((FLINK, "sql: a {- b+ -} c"), (ESPER, "sql: a {- b+ -} c"))),
    Missing("PREV, the row before", ((FLINK, "sql: a V, physical"),)),
    Missing("A greedy quantifier at the end of PATTERN", ((FLINK, "sql: a b+"),)),
    Missing("Alternation of patterns", ((FLINK, "one of two"), (FLINK, "one of two pairs"))),
    Missing(
        "Any order of patterns",
        ((FLINK, "two in any order, no row in two matches"), (FLINK, "three in any order, strict")),
    ),
    Missing("`reluctant`", ((FLINK, "reluctant, what follows overlaps"),)),
    Missing(
        "`every` in its forms",
        tuple(
            (FLINK, name)
            for name in ("once", "every end of one beginning", "every distinct", "every distinct, which expires")
        ),
    ),
    Missing(
        "An absence for a time, behind the row before",
        ((FLINK, "absence after two rows, for a time of its own"),),
    ),
    Missing("AFTER MATCH SKIP TO a variable", ((ESPER, "sql, to first b"), (ESPER, "sql, to last b"))),
    Missing("WITHIN in MATCH_RECOGNIZE", ((ESPER, "sql, within"),)),
    Missing(
        "Aggregates, FIRST and LAST in DEFINE",
        ((ESPER, "sql: more than the average"), (ESPER, "sql: a sum so far"), (ESPER, "sql: a V, logical")),
    ),
    Missing(
        "None up to a number, and reluctant bounds", ((ESPER, "sql: a b{0,2} c"), (ESPER, "sql, greed: a b{1,2}? c"))
    ),
)
