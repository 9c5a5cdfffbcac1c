"""The shared cases, by construct; `cep_case.py` says what a case is, `cep_cases_random.py` makes more."""

from headrace.cep.tree import Contiguity
from tests.conformance.cep_case import (
    ANY_B,
    TAKE_A,
    TAKE_B,
    TAKE_C,
    TEN,
    A,
    B,
    C,
    Case,
    D,
    by_key,
    pattern_of,
    recognize,
)

_BETWEEN = ("a c b b", "a b b", "a a c b a b", "b a", "a c c c")
_TURNS = ("c d a a a d a b", "c a b", "c b", "a b", "c a d a b b", "c a a b a b")
_RISING = "x > LAST(a.x, 1) OR COUNT(a.*) = 1"

CASES: tuple[Case, ...] = (
    # --- contiguity
    Case("strict", _BETWEEN, (TAKE_A, ("next", "b", B)), epl=None),
    Case("relaxed", _BETWEEN, (TAKE_A, TAKE_B), epl=pattern_of("every a=@a -> b=@b")),
    Case("non-deterministic relaxed", _BETWEEN, (TAKE_A, ANY_B), epl=pattern_of("every a=@a -> every b=@b")),
    Case(
        "three in a row", ("a b c", "a b b c", "a b c a b c", "a d b c"), (TAKE_A, ("next", "b", B), ("next", "c", C))
    ),
    Case(
        "three relaxed",
        ("a b c", "a b b c c", "a a b c", "a b d c a c b c"),
        (TAKE_A, TAKE_B, TAKE_C),
        epl=pattern_of("every a=@a -> b=@b -> c=@c"),
    ),
    Case(
        "three, the middle one each",
        ("a b c", "a b b c c", "a a b b c", "a b d c a c b c"),
        (TAKE_A, ANY_B, TAKE_C),
        epl=pattern_of("every a=@a -> every b=@b -> c=@c"),
    ),
    Case(
        "strict, then relaxed",
        ("a b c", "a b d c c", "a d b c", "a a b b c"),
        (TAKE_A, ("next", "b", B), TAKE_C),
    ),
    Case("relaxed, then strict", ("a b c", "a d b c", "a b d b c", "a a b c"), (TAKE_A, TAKE_B, ("next", "c", C))),
    # --- what must not come
    Case("not next, then relaxed", ("a b c", "a d b c", "a c", "a a b c"), (TAKE_A, ("not_next", "n", B), TAKE_C)),
    Case(
        "not in between",
        ("a b c", "a d c c", "a c b c", "a a b c a c"),
        (TAKE_A, ("not_followed_by", "n", B), TAKE_C),
        epl=pattern_of("every a=@a -> (c=@c and not @b)"),
    ),
    Case(
        "not in between, each",
        ("a c c b c", "a d c c", "a b c c", "a a c b c"),
        (TAKE_A, ("not_followed_by", "n", B), ("followed_by_any", "c", C)),
    ),
    Case("not next at the end", ("a b", "a c", "a a b", "a"), (TAKE_A, ("not_next", "n", B))),
    Case(
        "absence until the window is over",
        ("a d d d d", "a b d d d d", "a d d d b", "a d@3 b@4", "a@0 a@2 b@3 d@9", "a"),
        (TAKE_A, ("not_followed_by", "n", B), ("within", "4 seconds")),
        epl=pattern_of("every a=@a -> (timer:interval(4 sec) and not @b)"),
    ),
    Case(
        "absence for a time of its own",
        ("a d d d d", "a b", "a d d b", "a@0 b@1.9", "a@0 b@2", "a@0 a@1 b@2.5"),
        (TAKE_A, ("not_followed_by", "n", B, {"within": "2 seconds"})),
        flink=(TAKE_A, ("not_followed_by", "n", B), ("within_neighbours", "2 seconds")),
        epl=pattern_of("every a=@a -> (timer:interval(2 sec) and not @b)"),
    ),
    Case(
        "absence after two rows",
        ("a b d d d d d", "a b c d d d d", "a d b d c", "a@0 b@4 d@9", "a b@1 a b c@9"),
        (TAKE_A, TAKE_B, ("not_followed_by", "n", C), ("within", "5 seconds")),
    ),
    Case(
        "absence after two rows, for a time of its own",
        ("a b d d d d d", "a b c d d d d", "a b@1 c@3 d@9", "a@0 b@4 d@9", "a b@1 a b c@9"),
        (TAKE_A, TAKE_B, ("not_followed_by", "n", C, {"within": "2 seconds"})),
        epl=pattern_of("every a=@a -> b=@b -> (timer:interval(2 sec) and not @c)"),
    ),
    # --- how often
    Case(
        "exactly three",
        ("a a a", "a a a a", "a d a a", "a a d d a b a"),
        (TAKE_A, ("times", 3)),
    ),
    Case(
        "exactly three, consecutive",
        ("a a a", "a a a a", "a d a a a", "a a b a"),
        (TAKE_A, ("times", 3), ("consecutive",)),
    ),
    Case(
        "exactly two, combinations",
        ("a a a", "a d a a", "a"),
        (TAKE_A, ("times", 2), ("allow_combinations",)),
    ),
    Case(
        "exactly two after another",
        ("a b b", "a b d b b", "a a b b", "a b a b"),
        (TAKE_A, TAKE_B, ("times", 2)),
        epl=pattern_of("every a=@a -> [2] b=@b"),
    ),
    Case("two to three, then another", _TURNS, (("begin", "c", C), ("followed_by", "a", A), ("times", 2, 3), TAKE_B)),
    Case(
        "two or more, then another", _TURNS, (("begin", "c", C), ("followed_by", "a", A), ("times_or_more", 2), TAKE_B)
    ),
    Case("one or more, then another", _TURNS, (("begin", "c", C), ("followed_by", "a", A), ("one_or_more",), TAKE_B)),
    Case(
        "one or more consecutive, then another",
        _TURNS,
        (("begin", "c", C), ("followed_by", "a", A), ("one_or_more",), ("consecutive",), TAKE_B),
    ),
    Case(
        "one or more with combinations, then another",
        _TURNS,
        (("begin", "c", C), ("followed_by", "a", A), ("one_or_more",), ("allow_combinations",), TAKE_B),
    ),
    Case(
        "one or more from each, then another",
        _TURNS,
        (("begin", "c", C), ("followed_by_any", "a", A), ("one_or_more",), TAKE_B),
    ),
    Case(
        "one or more from each consecutive, then another",
        _TURNS,
        (("begin", "c", C), ("followed_by_any", "a", A), ("one_or_more",), ("consecutive",), TAKE_B),
    ),
    Case(
        "one or more from each with combinations, then another",
        _TURNS,
        (("begin", "c", C), ("followed_by_any", "a", A), ("one_or_more",), ("allow_combinations",), TAKE_B),
    ),
    Case(
        "one or more, strictly after", _TURNS, (("begin", "c", C), ("next", "a", A), ("one_or_more",), ("next", "b", B))
    ),
    Case(
        "one or more at the end",
        ("c a a d a", "c d a", "a a", "c a c a"),
        (("begin", "c", C), ("followed_by", "a", A), ("one_or_more",), TEN),
    ),
    Case("one or more at the beginning", ("a a b", "a d a b b", "b", "a b a b"), (TAKE_A, ("one_or_more",), TAKE_B)),
    Case(
        "one or more consecutive at the beginning",
        ("a a b", "a d a b b", "b", "a b a b"),
        (TAKE_A, ("one_or_more",), ("consecutive",), TAKE_B),
    ),
    Case("optional", ("a b c", "a c", "a b b c", "a d c", "b c"), (TAKE_A, TAKE_B, ("optional",), TAKE_C)),
    Case(
        "optional, strict",
        ("a b c", "a c", "a b b c", "a d c"),
        (TAKE_A, ("next", "b", B), ("optional",), ("next", "c", C)),
    ),
    Case("optional at the beginning", ("a b", "b", "a a b", "c b"), (TAKE_A, ("optional",), TAKE_B)),
    Case("optional at the end", ("a b", "a c b", "a", "a b b"), (TAKE_A, TAKE_B, ("optional",), TEN)),
    Case(
        "optional repetition",
        ("a b b c", "a c", "a b c", "a d b d c"),
        (TAKE_A, TAKE_B, ("one_or_more",), ("optional",), TAKE_C),
    ),
    Case(
        "optional exactly two",
        ("c b", "c a b", "c a a b", "c a d a b"),
        (("begin", "c", C), ("followed_by", "a", A), ("times", 2), ("optional",), TAKE_B),
    ),
    # --- greed
    Case(
        "greedy, what follows differs",
        _TURNS,
        (("begin", "c", C), ("followed_by", "a", A), ("one_or_more",), ("greedy",), TAKE_B),
    ),
    Case(
        "greedy, what follows overlaps",
        ("c a a b b", "c a b", "c b b", "c a d b b", "c a b d b"),
        (("begin", "c", C), ("followed_by", "a", "kind = 'a' OR kind = 'b'"), ("one_or_more",), ("greedy",), TAKE_B),
    ),
    Case(
        "greedy and consecutive, what follows overlaps",
        ("c a a b b", "c a b", "c b b", "c a d b b", "c a b d b"),
        (
            ("begin", "c", C),
            ("next", "a", "kind = 'a' OR kind = 'b'"),
            ("one_or_more",),
            ("consecutive",),
            ("greedy",),
            ("followed_by", "b", B),
        ),
    ),
    Case(
        "greedy two to three",
        ("c a a a b", "c a a b", "c a a a a b", "c a b"),
        (("begin", "c", C), ("followed_by", "a", A), ("times", 2, 3), ("greedy",), TAKE_B),
    ),
    Case(
        "greedy, optional",
        ("c a a b", "c b", "c a b b", "c d b"),
        (("begin", "c", C), ("followed_by", "a", A), ("one_or_more",), ("optional",), ("greedy",), TAKE_B),
    ),
    Case(
        "reluctant, what follows overlaps",
        ("c a a b b", "c a b", "c b b", "c a d b b", "c a b d b"),
        (
            ("begin", "c", C),
            ("followed_by", "a", "kind = 'a' OR kind = 'b'"),
            ("one_or_more",),
            ("reluctant",),
            ("followed_by", "b", B),
        ),
    ),
    # --- until
    Case(
        "until at the end",
        ("a c a b a", "a a b", "b a", "a a a"),
        (TAKE_A, ("one_or_more",), ("until", B), TEN),
    ),
    Case(
        "until, then another",
        ("c a a b d", "c a d b", "c a a d a d", "c b d"),
        (("begin", "c", C), ("followed_by", "a", A), ("one_or_more",), ("until", B), ("followed_by", "d", D)),
    ),
    Case(
        "until within a repetition of anything",
        ("a b c d", "a c c b d", "a d", "a b b d c"),
        (TAKE_A, ("followed_by", "x", "kind <> 'a'"), ("one_or_more",), ("until", D), TEN),
    ),
    # --- time
    Case(
        "within the whole",
        ("a@0 b@9.9", "a@0 b@10", "a@0 b@10.1", "a@0 a@5 b@12", "a@0 d@20 b@21"),
        (TAKE_A, TAKE_B, TEN),
        epl=pattern_of("every a=@a -> b=@b where timer:within(10 sec)"),
    ),
    Case(
        "within the whole of three",
        ("a@0 b@4 c@9", "a@0 b@9 c@11", "a@0 b@4 a@6 b@7 c@12", "a@0 b@12 c@13"),
        (TAKE_A, TAKE_B, TAKE_C, TEN),
        epl=pattern_of("every a=@a -> (b=@b -> c=@c) where timer:within(10 sec)"),
    ),
    Case(
        "within between neighbours",
        ("a@0 b@4 c@8", "a@0 b@5 c@6", "a@0 b@1 c@6", "a@0 b@1 b@4 c@7", "a@0 b@4.9 c@9.8"),
        (TAKE_A, ("followed_by", "b", B, {"within": "5 seconds"}), ("followed_by", "c", C, {"within": "5 seconds"})),
        flink=(TAKE_A, TAKE_B, ("within_neighbours", "5 seconds"), TAKE_C, ("within_neighbours", "5 seconds")),
        epl=pattern_of("every a=@a -> b=@b where timer:within(5 sec) -> c=@c where timer:within(5 sec)"),
    ),
    Case(
        "partial matches whose time is over",
        ("a@0 b@4 d@20", "a@0 a@2 d@20", "a@0 b@2 c@5 d@30", "a@0 b@12 c@13", "a@0"),
        (TAKE_A, TAKE_B, TAKE_C, TEN),
    ),
    Case(
        "equal times",
        ("a@1 b@1 c@1", "b@1 a@1 c@1", "a@1 a@1 b@1 c@2", "c@1 b@1 a@1"),
        (TAKE_A, TAKE_B, TAKE_C, TEN),
        epl=pattern_of("every a=@a -> b=@b -> c=@c"),
    ),
    Case(
        "out of order within the lateness",
        ("b@3 a@1 c@5", "c@4 b@2 a@0", "a@0 c@9 b@7 d@30", "a@5 b@4 b@6", "a@0 d@20 b@8 b@21"),
        (TAKE_A, TAKE_B, ("within", "30 seconds")),
        lateness_s=10,
    ),
    Case(
        "late rows are dropped",
        ("d@20 a@1 b@22 a@21 b@23 d@40", "a@0 d@30 b@5 b@31", "a@10 d@20 b@10 d@31"),
        (TAKE_A, TAKE_B, ("within", "1000 seconds")),
        lateness_s=10,
    ),
    # --- several keys
    Case(
        "several keys",
        ("x/a y/a y/b x/b", "x/a y/b x/b", "x/a y/a x/a y/b x/b z/b"),
        (TAKE_A, TAKE_B),
        epl=by_key("every a=@a -> b=@b"),
    ),
    Case("several keys, strict", ("x/a y/d x/b y/a y/d y/b", "x/a y/a y/b x/b"), (TAKE_A, ("next", "b", B))),
    Case(
        "several keys, absence",
        ("x/a y/a x/b d@20", "x/a y/b d@20", "x/a@0 y/a@2 y/b@3 x/b@4"),
        (TAKE_A, ("not_followed_by", "n", B), ("within", "4 seconds")),
        epl=by_key("every a=@a -> (timer:interval(4 sec) and not @b)"),
    ),
    # --- after a match
    *(
        Case(
            f"after a match: {name}",
            ("b b b c", "b b c b c", "b d b b c c", "b c"),
            (("begin", "b", B), ("one_or_more",), ("consecutive",), ("next", "c", C), *step),
        )
        for name, *step in (
            ("nothing is skipped",),
            ("to the next row", ("skip_to_next",)),
            ("past the last row", ("skip_past_last",)),
            ("to the last of a variable", ("skip_to_last", "b")),
        )
    ),
    *(
        Case(
            f"after a match with overlaps: {name}",
            ("a b c c c d", "a b c d", "b c c d", "c c c d"),
            (
                ("begin", "x", "kind <> 'd'"),
                ("next", "y", "kind = 'b' OR kind = 'c'"),
                ("next", "c", C),
                ("one_or_more",),
                ("consecutive",),
                ("greedy",),
                ("next", "d", D),
                *step,
            ),
        )
        for name, *step in (
            ("nothing is skipped",),
            ("to the next row", ("skip_to_next",)),
            ("past the last row", ("skip_past_last",)),
            ("to the first of a variable", ("skip_to_first", "c")),
            ("to the last of a variable", ("skip_to_last", "c")),
        )
    ),
    Case(
        "one match from each beginning",
        ("a b b b", "a b a b", "a d b b"),
        (TAKE_A, ("next", "b", B), ("one_or_more",), ("consecutive",), ("skip_to_next",)),
    ),
    Case(
        "relaxed, past the last row",
        ("a b b a a b", "a a b b a b", "a b c a d b", "a c b a b"),
        (TAKE_A, TAKE_B, ("skip_past_last",)),
        epl=pattern_of("every (a=@a -> b=@b)"),
    ),
    Case(
        "each, past the last row",
        ("a b b a a b", "a a b b", "a a b a b b"),
        (TAKE_A, ANY_B, ("skip_past_last",)),
    ),
    # --- every
    Case(
        "once",
        ("a b b a b", "b a a b", "a c", "a a b"),
        (TAKE_A, TAKE_B, ("once",)),
        epl=pattern_of("a=@a -> b=@b"),
    ),
    Case(
        "every end of one beginning",
        ("a b c b a d a b", "b a b b"),
        (TAKE_A, ANY_B, ("every_distinct", "1")),
        epl=pattern_of("a=@a -> every b=@b"),
    ),
    Case(
        "every distinct",
        ("a:1 a:2 a:1 b a:1 b", "a:1 b a:1 b a:2 b", "b a:1 a:1 b b"),
        (TAKE_A, TAKE_B, ("every_distinct", "x")),
        epl=pattern_of("every-distinct(a.x) a=@a -> b=@b"),
    ),
    Case(
        "every distinct, which expires",
        ("a:1@0 b@1 a:1@2 b@3 a:1@8 b@9", "a:1@0 a:1@4.9 a:1@5 b@6", "a:1@0 a:2@1 a:1@6 b@7"),
        (TAKE_A, TAKE_B, ("every_distinct", "x", {"expires": "5 seconds"})),
        epl=pattern_of("every-distinct(a.x, 5 sec) a=@a -> b=@b"),
    ),
    # --- one of several, and several in any order
    Case(
        "one of two",
        ("a d", "b d", "a b d d", "c d a"),
        (("either", (TAKE_A,), (("begin", "b", B),)), ("followed_by", "d", D)),
        epl=pattern_of("every (a=@a or b=@b) -> d=@d"),
    ),
    Case(
        "one of two pairs",
        ("a b c", "a c b", "b c", "a b b c c"),
        (("either", (TAKE_A, TAKE_B), (("begin", "b", B), TAKE_C)),),
        epl=pattern_of("(every a=@a -> b=@b) or (every b=@b -> c=@c)"),
    ),
    Case(
        "two in any order, no row in two matches",
        ("a b", "b a", "a a b", "a b b a", "b d a d b"),
        (("permutation", (TAKE_A,), (("begin", "b", B),)), ("skip_past_last",)),
        epl=pattern_of("every (a=@a and b=@b)"),
    ),
    Case(
        "three in any order, strict",
        ("a b c", "b c a a c b", "a b d c", "c b a b c"),
        (("permutation", (TAKE_A,), (("begin", "b", B),), (("begin", "c", C),), {"contiguity": Contiguity.STRICT}),),
    ),
    # --- groups
    Case(
        "a group twice",
        ("c a b a b", "c a d b a b", "c a b d a b", "c a b", "a b a b"),
        (("begin", "c", C), ("followed_by", (TAKE_A, ("next", "b", B))), ("times", 2)),
    ),
    Case(
        "a group twice, consecutive",
        ("c a b a b", "c a b d a b", "c a b a b a b"),
        (("begin", "c", C), ("followed_by", (TAKE_A, ("next", "b", B))), ("times", 2), ("consecutive",)),
    ),
    Case(
        "a group once or more",
        ("a b a b c", "a b c", "a a b c", "a b d a b c", "c"),
        (("begin", (TAKE_A, TAKE_B)), ("one_or_more",), TAKE_C),
    ),
    Case(
        "an optional group",
        ("c a b d", "c d", "c a d", "c a b a b d"),
        (("begin", "c", C), ("followed_by", (TAKE_A, TAKE_B)), ("optional",), ("followed_by", "d", D)),
    ),
    # --- conditions on other rows
    Case(
        "more than the row before",
        ("a:1 b:2 c", "a:3 b:2 c", "a:1 b:1 b:2 c", "a:1 b:0 b:5"),
        (TAKE_A, ("followed_by", "b", "kind = 'b' AND x > a.x")),
        epl="select * from pattern [every a=E(kind='a') -> b=E(kind='b' and x > a.x)]",
    ),
    Case(
        "rising, consecutive",
        ("a:1 a:2 a:3 b", "a:1 a:3 a:2 b", "a:2 a:1 b", "a:1 a:2 d a:3 b"),
        (("begin", "a", f"kind = 'a' AND ({_RISING})"), ("one_or_more",), ("consecutive",), TAKE_B),
    ),
    Case(
        "rising, relaxed",
        ("a:1 a:3 a:2 a:4 b", "a:1 a:1 a:2 b", "a:2 a:1 b"),
        (("begin", "a", f"kind = 'a' AND ({_RISING})"), ("one_or_more",), TAKE_B),
    ),
    Case(
        "a sum so far",
        ("a:1 a:2 a:3 b", "a:4 a:1 b", "a:5 b", "a:2 a:2 a:0 b"),
        (("begin", "a", "kind = 'a' AND SUM(a.x) < 5"), ("one_or_more",), ("consecutive",), TAKE_B),
    ),
    Case(
        "an average of another's rows",
        ("a:1 a:3 b:3", "a:1 a:3 b:2", "a:4 b:4 b:5", "a:1 b:2 a:9 b:6"),
        (TAKE_A, ("one_or_more",), ("followed_by", "b", "kind = 'b' AND x > AVG(a.x)")),
    ),
    Case(
        "how many so far",
        ("a a a b", "a a b", "a b", "a d a a b"),
        (TAKE_A, ("one_or_more",), ("followed_by", "b", "kind = 'b' AND COUNT(a.*) >= 2")),
    ),
    Case(
        "the first and the last so far",
        ("a:1 a:3 b:2", "a:2 a:1 b:3", "a:1 a:5 b:5", "a:1 b:2"),
        (TAKE_A, ("one_or_more",), ("followed_by", "b", "kind = 'b' AND x > FIRST(a.x) AND x < LAST(a.x)")),
    ),
    Case(
        "the least and the most so far",
        ("a:1 a:3 b:2", "a:2 a:1 b:3", "a:1 a:5 b:0", "a:3 b:2"),
        (TAKE_A, ("one_or_more",), ("followed_by", "b", "kind = 'b' AND (x < MIN(a.x) OR x > MAX(a.x))")),
    ),
    # --- MATCH_RECOGNIZE
    *(
        Case(f"sql: {pattern}", streams, sql=recognize(pattern))
        for pattern, streams in (
            ("a b c", ("a b c", "a b b c", "a b c a b c", "a d b c")),
            ("a b* c", ("a b b c", "a c", "a d c", "a b a b c")),
            ("a b+ c", ("a b b c", "a c", "a a b c", "a b a b b c")),
            ("a b? c", ("a b c", "a c", "a b b c")),
            ("a b{2} c", ("a b b c", "a b c", "a b b b c")),
            ("a b{2,} c", ("a b b c", "a b c", "a b b b c")),
            ("a b{1,2} c", ("a b b c", "a c", "a b b b c", "a b c")),
            ("a b{0,2} c", ("a b b c", "a c", "a b b b c", "a b c")),
            ("a b*? c", ("a b b c", "a c", "a b a c")),
            ("a+ b+ c", ("a a b b c", "a b c", "a b b a b c")),
            ("a b+", ("a b b c", "a b", "a b a b b")),
            ("a b?", ("a b", "a c", "a a b")),
            ("(a b)+ c", ("a b a b c", "a b c", "a b a c", "a b a b")),
            ("a (b | c) d", ("a b d", "a c d", "a b c d", "a d")),
            ("a (b | c)+ d", ("a b d", "a c b d", "a b c b d", "a d")),
            ("a b | a c", ("a b", "a c", "a a c", "a d")),
            ("PERMUTE(a, b, c)", ("a b c", "c a b", "b b a c", "c b a c", "a b d c")),
            ("a (b c)? d", ("a b c d", "a d", "a b d")),
        )
    ),
    *(
        Case(
            f"sql, greed: {pattern}",
            ("a b b c", "a b c c", "a b b", "a c", "a b c b c d"),
            sql=recognize(pattern, "a AS a.kind = 'a', b AS b.kind <> 'd', c AS c.kind = 'c'"),
        )
        for pattern in ("a b* c", "a b*? c", "a b+ c", "a b+? c", "a b{1,2} c", "a b{1,2}? c")
    ),
    *(
        Case(
            f"sql, {skip.lower()}",
            ("a b b c", "a a b b c", "b b c a b c", "a b c b c"),
            sql=recognize("x b+ c", "x AS x.kind <> 'c', b AS b.kind = 'b', c AS c.kind = 'c'", skip=skip),
        )
        for skip in ("PAST LAST ROW", "TO NEXT ROW", "TO FIRST b", "TO LAST b")
    ),
    Case("sql, nothing said of what is skipped", ("a a b b c", "a b c"), sql=recognize("a+ b+ c", skip="")),
    Case(
        "sql, within",
        ("a@0 b@5 c@9", "a@0 b@5 c@10", "a@0 b@5 a@6 b@8 c@12"),
        sql=recognize("a b+ c", within="'10' SECOND"),
    ),
    Case(
        "sql: a V, physical",
        ("s:5 s:4 s:3 s:4 s:5 s:1", "s:1 s:2", "s:5 s:3 s:4 s:2 s:3 s:1", "s:3 s:3 s:2 s:4 s:4"),
        sql=recognize("s d+ u+ e", "d AS d.x < PREV(d.x), u AS u.x > PREV(u.x), e AS e.x < PREV(e.x)"),
    ),
    Case(
        "sql: a V, logical",
        ("s:5 s:4 s:3 s:4 s:5 s:1", "s:1 s:2", "s:5 s:3 s:4 s:2 s:3 s:1", "s:3 s:3 s:2 s:4 s:4"),
        sql=recognize(
            "s d+ u+ e",
            "d AS (LAST(d.x, 1) IS NULL AND d.x < s.x) OR d.x < LAST(d.x, 1), "
            "u AS (LAST(u.x, 1) IS NULL AND u.x > LAST(d.x)) OR u.x > LAST(u.x, 1), e AS e.x < LAST(u.x)",
        ),
    ),
    Case(
        "sql: a sum so far",
        ("a:1 a:2 a:3 b", "a:4 a:1 b", "a:5 b", "a:2 a:2 a:1 b"),
        sql=recognize("a+ b", "a AS a.kind = 'a' AND SUM(a.x) < 5, b AS b.kind = 'b'"),
    ),
    Case(
        "sql: more than the average",
        ("a:1 a:3 b:3", "a:1 a:3 b:2", "a:4 b:4 b:5"),
        sql=recognize("a+ b", "a AS a.kind = 'a', b AS b.kind = 'b' AND b.x > AVG(a.x)"),
    ),
    Case("sql: a {- b+ -} c", ("a b b c", "a c", "a a b c"), sql=recognize("a {- b+ -} c")),
    Case("sql: PERMUTE(a b, c)", ("a b c", "c a b", "a c b", "c a c a b c"), sql=recognize("PERMUTE(a b, c)")),
    Case(
        "sql, several keys",
        ("x/a y/a y/b x/b x/c y/c", "x/a y/b x/b x/c"),
        sql=recognize("a b+ c"),
    ),
)
