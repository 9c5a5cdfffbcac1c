"""Patterns over streams that a seed makes, and with them all cases."""

import random

from tests.conformance.cep_case import ANY_B, TAKE_A, TAKE_B, TAKE_C, B, C, Case, D, pattern_of, recognize
from tests.conformance.cep_cases import CASES

_RANDOM_STREAMS = 15
_ALPHABET = "aabbccd"
_AT_RANDOM = tuple(
    (name, steps, epl)
    for name, steps, epl in (
        ("a then b", (TAKE_A, TAKE_B), "every a=@a -> b=@b"),
        ("a then each b", (TAKE_A, ANY_B), "every a=@a -> every b=@b"),
        ("a next b", (TAKE_A, ("next", "b", B)), None),
        ("a then b then c", (TAKE_A, TAKE_B, TAKE_C), "every a=@a -> b=@b -> c=@c"),
        ("a then each b then c", (TAKE_A, ANY_B, TAKE_C), "every a=@a -> every b=@b -> c=@c"),
        (
            "a then each b then each c",
            (TAKE_A, ANY_B, ("followed_by_any", "c", C)),
            "every a=@a -> every b=@b -> every c=@c",
        ),
        ("a without c before b", (TAKE_A, ("not_followed_by", "n", C), TAKE_B), "every a=@a -> (b=@b and not @c)"),
        ("a not next c then b", (TAKE_A, ("not_next", "n", C), TAKE_B), None),
        (
            "a then b within 4",
            (TAKE_A, TAKE_B, ("within", "4 seconds")),
            "every a=@a -> b=@b where timer:within(4 sec)",
        ),
        (
            "a then each b within 4",
            (TAKE_A, ANY_B, ("within", "4 seconds")),
            "every a=@a -> (every b=@b) where timer:within(4 sec)",
        ),
        (
            "no b for 3",
            (TAKE_A, ("not_followed_by", "n", B), ("within", "3 seconds")),
            "every a=@a -> (timer:interval(3 sec) and not @b)",
        ),
        ("a then b twice", (TAKE_A, TAKE_B, ("times", 2)), "every a=@a -> [2] b=@b"),
        ("a then b once or more then c", (TAKE_A, TAKE_B, ("one_or_more",), TAKE_C), None),
        ("a then b consecutive then c", (TAKE_A, TAKE_B, ("one_or_more",), ("consecutive",), TAKE_C), None),
        ("a then b combined then c", (TAKE_A, TAKE_B, ("one_or_more",), ("allow_combinations",), TAKE_C), None),
        ("a then b greedy then c", (TAKE_A, TAKE_B, ("one_or_more",), ("greedy",), TAKE_C), None),
        ("a then b or not then c", (TAKE_A, TAKE_B, ("optional",), TAKE_C), None),
        ("a more than once then b", (TAKE_A, ("times_or_more", 2), ("next", "b", B)), None),
        ("a then b until d", (TAKE_A, TAKE_B, ("one_or_more",), ("until", D), ("within", "20 seconds")), None),
        (
            "a then b rising x",
            (TAKE_A, ("followed_by", "b", "kind = 'b' AND x > a.x"), ("followed_by", "c", "kind = 'c' AND x > b.x")),
            None,
        ),
        ("a then b past the last", (TAKE_A, TAKE_B, ("skip_past_last",)), "every (a=@a -> b=@b)"),
        (
            "a run past the last",
            (TAKE_A, ("one_or_more",), ("consecutive",), ("next", "b", B), ("skip_past_last",)),
            None,
        ),
    )
)
_SQL_AT_RANDOM = (
    "a b* c",
    "a b+ c",
    "a+ b",
    "a b? c",
    "a b*? c",
    "a{1,2} b{1,2} c",
    "(a b)+ c",
    "a (b | c) d",
    "PERMUTE(a, b)",
)


def at_random() -> tuple[Case, ...]:
    """Patterns over streams that a seed makes."""
    cases = []
    for number, (name, steps, epl) in enumerate(_AT_RANDOM):
        cases.append(Case(f"at random: {name}", _streams(number), steps, epl=epl and pattern_of(epl)))
    for number, pattern in enumerate(_SQL_AT_RANDOM, start=100):
        cases.append(Case(f"at random, sql: {pattern}", _streams(number), sql=recognize(pattern)))
    return tuple(cases)


def _streams(seed: int) -> tuple[str, ...]:
    chance = random.Random(seed)
    found = []
    for _ in range(_RANDOM_STREAMS):
        second, words = 0, []
        for _ in range(chance.randint(5, 11)):
            words.append(f"{chance.choice(_ALPHABET)}:{chance.randint(0, 4)}@{second}")
            second += chance.choice((0, 1, 1, 1, 2, 3))
        found.append(" ".join(words))
    return tuple(found)


ALL_CASES = CASES + at_random()
