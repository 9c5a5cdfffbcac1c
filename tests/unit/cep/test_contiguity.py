"""Which rows a pattern takes and which it skips: the outcomes that Flink CEP, Esper and SQL:2016 document."""

import pytest

from headrace.cep.pattern import Pattern
from headrace.cep.tree import Contiguity
from tests.unit.cep.letters import found, is_a, rows

A, B, C, D = (is_a(letter) for letter in "abcd")


class TestBetweenTwoRows:
    """`a b` over a c b1 b2."""

    def test_strict_takes_only_the_next_row(self):
        assert found(Pattern.begin("a", A).next("b", B), "a c b1 b2") == []
        assert found(Pattern.begin("a", A).next("b", B), "a b1 b2") == ["a b1"]

    def test_relaxed_skips_to_the_first_that_matches(self):
        assert found(Pattern.begin("a", A).followed_by("b", B), "a c b1 b2") == ["a b1"]

    def test_non_deterministic_takes_each_that_matches(self):
        assert found(Pattern.begin("a", A).followed_by_any("b", B), "a c b1 b2") == ["a b1", "a b2"]


class TestWithinARepetition:
    """`a b+ c` over a b1 d1 b2 d2 b3 c, each b reached by followed_by_any."""

    ROWS = "a b1 d1 b2 d2 b3 c"

    def pattern(self):
        return Pattern.begin("a", A).followed_by_any("b", B).one_or_more()

    def test_strict(self):
        assert found(self.pattern().consecutive().followed_by("c", C), self.ROWS) == ["a b1 c", "a b2 c", "a b3 c"]

    def test_relaxed(self):
        assert found(self.pattern().followed_by("c", C), self.ROWS) == [
            "a b1 b2 b3 c", "a b1 b2 c", "a b1 c", "a b2 b3 c", "a b2 c", "a b3 c",
        ]  # fmt: skip

    def test_non_deterministic(self):
        assert found(self.pattern().allow_combinations().followed_by("c", C), self.ROWS) == [
            "a b1 b2 b3 c", "a b1 b2 c", "a b1 b3 c", "a b1 c", "a b2 b3 c", "a b2 c", "a b3 c",
        ]  # fmt: skip


class TestRepetitions:
    ROWS = "c d a1 a2 a3 d a4 b"

    def pattern(self):
        return Pattern.begin("c", C).followed_by("a", A).one_or_more()

    def test_relaxed_turns_take_the_next_that_matches(self):
        assert found(self.pattern().followed_by("b", B), self.ROWS) == [
            "c a1 a2 a3 a4 b", "c a1 a2 a3 b", "c a1 a2 b", "c a1 b",
        ]  # fmt: skip

    def test_consecutive_turns_end_at_another_row(self):
        assert found(self.pattern().consecutive().followed_by("b", B), self.ROWS) == [
            "c a1 a2 a3 b",
            "c a1 a2 b",
            "c a1 b",
        ]

    def test_combinations_leave_rows_out(self):
        assert found(self.pattern().allow_combinations().followed_by("b", B), self.ROWS) == [
            "c a1 a2 a3 a4 b", "c a1 a2 a3 b", "c a1 a2 a4 b", "c a1 a2 b", "c a1 a3 a4 b", "c a1 a3 b", "c a1 a4 b",
            "c a1 b",
        ]  # fmt: skip

    def test_greedy_leaves_nothing_that_it_could_take(self):
        assert found(self.pattern().greedy().followed_by("b", B), self.ROWS) == ["c a1 a2 a3 a4 b"]

    def test_reluctant_stops_as_soon_as_what_follows_can(self):
        pattern = Pattern.begin("c", C).next("a", is_a("a", "b")).one_or_more().consecutive()
        assert found(pattern.next("b", B), "c a1 a2 b1 b2") == ["c a1 a2 b1", "c a1 a2 b1 b2"]
        assert found(pattern.reluctant().next("b", B), "c a1 a2 b1 b2") == ["c a1 a2 b1"]
        assert found(pattern.greedy().next("b", B), "c a1 a2 b1 b2") == []

    def test_until_ends_it(self):
        pattern = Pattern.begin("a", A).one_or_more().until(B)
        assert found(pattern, "a1 c a2 b a3") == ["a1", "a1 a2", "a2", "a3"]

    def test_times_and_optional(self):
        pattern = Pattern.begin("c", C).next("a", A).times(2, 3).consecutive().next("b", B)
        assert found(pattern, "c a1 b c a2 a3 b c a4 a5 a6 b") == ["c a2 a3 b", "c a4 a5 a6 b"]
        assert found(Pattern.begin("c", C).next("a", A).times(2).optional().next("b", B), "c b c a1 b c a2 a3 b") == [
            "c b", "c a2 a3 b",
        ]  # fmt: skip
        assert found(Pattern.begin("c", C).followed_by("a", A).optional().followed_by("b", B), "c a b") == [
            "c a b",
            "c b",
        ]

    def test_a_group_is_repeated_whole(self):
        pair = Pattern.begin("a", A).next("b", B)
        assert found(Pattern.begin("c", C).next(pair).times(2).consecutive(), "c a1 b1 a2 b2 c a3 b3") == [
            "c a1 b1 a2 b2"
        ]


class TestAbsence:
    def test_the_next_row_is_not(self):
        pattern = Pattern.begin("a", A).not_next("n", B).followed_by("c", C)
        assert found(pattern, "a1 b c1 a2 d b c2") == ["a2 c2"]

    def test_at_the_end_the_next_row_decides(self):
        pattern = Pattern.begin("a", A).not_next("n", B)
        assert found(pattern, "a1 b a2 c a3") == ["a2", "a3"]

    def test_none_comes_in_between(self):
        pattern = Pattern.begin("a", A).not_followed_by("n", B).followed_by("c", C)
        assert found(pattern, "a1 b c1 a2 d c2") == ["a2 c2"]

    def test_none_comes_in_the_whole_time(self):
        # A row a second: a1 waits until 4, a2 (at 4) until 8.
        pattern = Pattern.begin("a", A).not_followed_by("n", B).within("4 seconds")
        assert found(pattern, "a1 d d d a2 d b d d d") == ["a1"]

    def test_none_comes_for_a_time_of_its_own(self):
        pattern = (
            Pattern.begin("a", A).not_followed_by("n", B, within="2 seconds").followed_by("c", C).within("1 minute")
        )
        assert found(pattern, "a1 c1 c2 a2 b c3 c4") == ["a1 c2"]

    def test_it_is_a_match_when_the_time_is_over(self):
        pattern = Pattern.begin("a", A).not_followed_by("n", B, within="2 seconds")
        matches = list(pattern.matches(rows("a1 d"), time="t", bounded=True))
        assert [match.time_us for match in matches] == [2_000_000]


def test_within_bounds_the_whole_and_neighbours():
    pattern = Pattern.begin("a", A).followed_by("b", B).followed_by("c", C)
    assert found(pattern.within("3 seconds"), "a1 b1 c1 a2 b2 d c2") == ["a1 b1 c1"]
    near = Pattern.begin("a", A).followed_by("b", B).followed_by("c", C, within="2 seconds")
    assert found(near, "a1 d d b1 c1 a2 b2 d c2") == ["a1 b1 c1"]


def test_alternatives_and_permutations():
    either = Pattern.begin("a", A).next("b", B) | Pattern.begin("b", B).next("c", C)
    assert found(either, "a b1 c a d") == ["a b1", "b1 c"]
    three = [Pattern.begin("a", A), Pattern.begin("b", B), Pattern.begin("c", C)]
    strict = Pattern.permutation(*three, contiguity=Contiguity.STRICT)
    assert found(strict, "b1 c1 a1 a2 c2 b2") == ["b1 c1 a1", "a2 c2 b2"]
    # Each way skips what it does not wait for itself.
    assert found(Pattern.permutation(*three).skip_past_last(), "b1 d c1 a1 a2 c2 b2") == ["b1 c1 a1", "a2 c2 b2"]


class TestSkipStrategies:
    def b_plus_c(self):
        return Pattern.begin("b", B).one_or_more().consecutive().next("c", C)

    @pytest.mark.parametrize(
        ("skip", "expected"),
        [
            (lambda pattern: pattern, ["b1 b2 b3 c", "b2 b3 c", "b3 c"]),
            (lambda pattern: pattern.skip_to_next(), ["b1 b2 b3 c", "b2 b3 c", "b3 c"]),
            (lambda pattern: pattern.skip_past_last(), ["b1 b2 b3 c"]),
            (lambda pattern: pattern.skip_to_last("b"), ["b1 b2 b3 c", "b3 c"]),
            (lambda pattern: pattern.once(), ["b1 b2 b3 c"]),
        ],
    )
    def test_a_run_and_its_end(self, skip, expected):
        assert found(skip(self.b_plus_c()), "b1 b2 b3 c") == expected

    def pattern_with_greed(self):
        return (
            Pattern.begin("x", is_a("a", "b", "c"))
            .next("y", is_a("b", "c"))
            .next("c", C)
            .one_or_more()
            .consecutive()
            .greedy()
            .next("d", D)
        )

    def test_to_the_first_of_a_variable(self):
        rows_of = "a b c1 c2 c3 d"
        assert found(self.pattern_with_greed(), rows_of) == ["a b c1 c2 c3 d", "b c1 c2 c3 d", "c1 c2 c3 d"]
        assert found(self.pattern_with_greed().skip_to_first("c"), rows_of) == ["a b c1 c2 c3 d", "c1 c2 c3 d"]

    def test_to_next_gives_one_match_from_each_row(self):
        pattern = Pattern.begin("a", A).next("b", B).one_or_more().consecutive()
        assert found(pattern, "a b1 b2 b3") == ["a b1", "a b1 b2", "a b1 b2 b3"]
        assert found(pattern.skip_to_next(), "a b1 b2 b3") == ["a b1"]

    def test_a_match_waits_for_those_that_began_earlier(self):
        pattern = Pattern.begin("a", A).followed_by("b", B).followed_by("c", C).within("1 minute")
        both = Pattern.begin(Pattern.begin("a", A).followed_by("d", D) | Pattern.begin("b", B).next("c", C))
        assert found(both.skip_past_last(), "a b c d") == ["a d"]
        assert found(both.skip_past_last(), "a b c") == ["b c"]
        assert found(pattern.skip_past_last(), "a1 a2 b c") == ["a1 b c"]


class TestEvery:
    """Esper's example: A and B among others, with `every` in different places."""

    ROWS = "a1 b1 c1 b2 a2 d1 a3 b3 e1 a4 f1 b4"

    def test_every_pair_anew(self):
        assert found(Pattern.begin("a", A).followed_by("b", B).skip_past_last(), self.ROWS) == [
            "a1 b1",
            "a2 b3",
            "a4 b4",
        ]

    def test_every_beginning(self):
        assert found(Pattern.begin("a", A).followed_by("b", B), self.ROWS) == ["a1 b1", "a2 b3", "a3 b3", "a4 b4"]

    def test_every_end(self):
        pattern = Pattern.begin("a", A).followed_by_any("b", B).every_distinct("1")
        assert found(pattern, self.ROWS) == ["a1 b1", "a1 b2", "a1 b3", "a1 b4"]

    def test_every_beginning_and_every_end(self):
        assert found(Pattern.begin("a", A).followed_by_any("b", B), self.ROWS) == [
            "a1 b1", "a1 b2", "a1 b3", "a2 b3", "a3 b3", "a1 b4", "a2 b4", "a3 b4", "a4 b4",
        ]  # fmt: skip

    def test_without_every(self):
        assert found(Pattern.begin("a", A).followed_by("b", B).once(), self.ROWS) == ["a1 b1"]

    def test_every_distinct(self):
        pattern = Pattern.begin("a", A).followed_by("b", B).every_distinct("n", expires="3 seconds")
        assert found(pattern, "a1 a2 a1 b1 a1 b2") == ["a1 b1", "a2 b1", "a1 b2"]
