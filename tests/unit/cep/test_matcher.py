"""The plain matcher around the automaton: keys, order, lateness, caps, what is handed out and counted."""

import random
from datetime import UTC, datetime, timedelta

import pytest

from headrace.cep.errors import InvalidEvent, InvalidPattern, TooManyPartialMatches
from headrace.cep.pattern import Pattern
from tests.unit.cep.letters import is_a, rows, words

A, B, C = (is_a(letter) for letter in "abc")
A_THEN_B = Pattern.begin("a", A).followed_by("b", B).within("10 seconds")


def keyed(text):
    """`x:a1` is a row of the key x."""
    for row in rows(text.replace(":", "_")):
        key, _, word = row["n"].partition("_")
        yield {**row, "key": key, "kind": word[0], "n": word}


def test_keys_do_not_see_each_other():
    matches = list(A_THEN_B.matches(keyed("x:a1 y:a2 y:b1 x:b2"), key="key", time="t"))
    assert [(match.key, words(match)) for match in matches] == [(("y",), "a2 b1"), (("x",), "a1 b2")]


def test_several_columns_make_a_key():
    events = [{"p": 1, "q": "x", "kind": "a", "n": "a1", "t": 0}, {"p": 1, "q": "y", "kind": "b", "n": "b1", "t": 1}]
    assert list(A_THEN_B.matches(events, key=["p", "q"], time="t")) == []
    assert [match.key for match in A_THEN_B.matches(events, key="p", time="t")] == [(1,)]


def test_a_match_has_the_events_of_each_variable_and_where_they_came_from():
    events = [
        {**row, "topic": "cards", "partition": 3, "offset": 40 + number} for number, row in enumerate(rows("a1 c b1"))
    ]
    (match,) = A_THEN_B.matches(events, time="t")
    assert match.offsets == (("cards", 3, 40), ("cards", 3, 42))
    assert [event.values["n"] for event in match["b"]] == ["b1"]
    assert match["nothing"] == ()
    assert set(match.variables) == {"a", "b"}
    assert match.time_us == 2_000_000


def test_order_is_restored_by_the_watermark():
    events = list(rows("a1 b1 c a2 c b2 a3 b3"))
    expected = [words(match) for match in A_THEN_B.matches(events, time="t")]
    shuffler = random.Random(7)
    for _ in range(20):
        # Nothing is moved further than the lateness.
        mixed = sorted(events, key=lambda event: event["t"] + shuffler.uniform(0, 2900))
        matcher = A_THEN_B.matcher(time="t", lateness="3 seconds")
        assert [words(match) for match in matcher.run(mixed)] == expected
        assert matcher.counts.late == 0


def test_ties_are_broken_by_partition_and_offset():
    a, b = (
        {"t": 5, "kind": kind, "n": kind, "partition": partition, "offset": 1}
        for kind, partition in [("a", 0), ("b", 1)]
    )
    pattern = Pattern.begin("a", A).next("b", B)
    assert len(list(pattern.matches([b, a], time="t", lateness="0 seconds"))) == 1
    first, second = {**b, "partition": 0, "offset": 7}, {**a, "partition": 0, "offset": 8}
    assert list(pattern.matches([second, first], time="t", lateness="0 seconds")) == []


def test_late_events_are_counted_and_handed_on():
    late = []
    matcher = A_THEN_B.matcher(time="t", lateness="1 second", on_late=late.append)
    *on_time, straggler = rows("c b c c a")
    found = list(matcher.run([straggler | {"t": 9000}, *on_time, straggler | {"t": 8000}]))
    assert found == []
    assert matcher.counts.late == 4
    assert [event.values["t"] for event in late] == [0, 1000, 2000, 3000]


def test_a_match_comes_out_as_soon_as_it_is_complete():
    matcher = A_THEN_B.matcher(time="t", columns=["t", "kind", "n"])
    assert [len(matcher.push(row)) for row in rows("a1 c b1 b2")] == [0, 0, 1, 0]


def test_an_absence_is_noticed_by_time_alone():
    pattern = Pattern.begin("a", A).not_followed_by("b", B, within="5 seconds")
    matcher = pattern.matcher(key="key", time="t", columns=["t", "kind", "n", "key"])
    quiet, busy, later = keyed("x:a1 y:a2 x:b1")
    assert [len(matcher.push(row)) for row in (quiet, busy, later)] == [0, 0, 0]
    assert [words(match) for match in matcher.advance(6_000_000)] == ["a2"]
    assert matcher.partial_matches == 0


def test_another_keys_events_move_time_on():
    pattern = Pattern.begin("a", A).not_followed_by("b", B, within="2 seconds")
    matches = [(match.key, match.time_us) for match in pattern.matches(keyed("x:a1 y:c y:c y:c"), key="key", time="t")]
    assert matches == [(("x",), 2_000_000)]


def test_partial_matches_whose_time_is_over_are_handed_out():
    timed_out = []
    pattern = Pattern.begin("a", A).followed_by("b", B).followed_by("c", C).within("3 seconds")
    matcher = pattern.matcher(time="t", on_timed_out=timed_out.append)
    assert list(matcher.run(rows("a1 b1 d d d a2"))) == []
    assert [(words(match), match.time_us) for match in timed_out] == [("a1 b1", 3_000_000), ("a2", 8_000_000)]
    assert matcher.counts.timed_out == 2


def test_neighbours_whose_time_is_over_are_handed_out():
    timed_out = []
    pattern = Pattern.begin("a", A).followed_by("b", B, within="2 seconds")
    matcher = pattern.matcher(time="t", on_timed_out=timed_out.append)
    assert [words(match) for match in matcher.run(rows("a1 c c b1 a2 b2"))] == ["a2 b2"]
    assert [words(match) for match in timed_out] == ["a1"]


@pytest.mark.parametrize(
    ("choice", "expected"), [("drop_oldest", ["a2 b1", "a3 b1"]), ("drop_newest", ["a1 b1", "a2 b1"])]
)
def test_at_the_cap_partial_matches_are_dropped_and_counted(choice, expected):
    matcher = A_THEN_B.matcher(time="t", most_partial=2, at_cap=choice)
    assert [words(match) for match in matcher.run(rows("a1 a2 a3 b1"))] == expected
    assert matcher.counts.dropped == 1


def test_at_the_cap_it_may_fail():
    matcher = A_THEN_B.matcher(time="t", most_partial=2, at_cap="fail")
    with pytest.raises(TooManyPartialMatches, match="2 partial matches"):
        list(matcher.run(rows("a1 a2 a3 b1")))


def test_a_key_without_partial_matches_is_forgotten():
    matcher = A_THEN_B.matcher(key="key", time="t")
    for row in keyed("x:a1 y:c x:b1 z:c"):
        matcher.push(row)
    assert matcher._keys == {}


def test_times_are_numbers_datetimes_or_texts():
    begin = datetime(2030, 1, 1, tzinfo=UTC)
    events = [{"at": begin + timedelta(seconds=second), "kind": kind} for second, kind in [(0, "a"), (9, "b")]]
    assert len(list(A_THEN_B.matches(events, time="at"))) == 1
    texts = [{**event, "at": event["at"].isoformat()} for event in events]
    assert len(list(A_THEN_B.matches(texts, time="at"))) == 1
    numbers = [{"at": 0, "kind": "a"}, {"at": 9, "kind": "b"}, {"at": 10, "kind": "b"}]
    assert len(list(A_THEN_B.matches(numbers, time="at", unit="s"))) == 1
    with pytest.raises(InvalidEvent, match="no time in 'at'"):
        list(A_THEN_B.matches([{"at": None, "kind": "a"}], time="at"))


def test_without_a_time_the_order_is_that_of_arrival():
    pattern = Pattern.begin("a", A).next("b", B)
    assert [words(match) for match in pattern.matches(rows("a1 b1 a2 c"))] == ["a1 b1"]
    with pytest.raises(InvalidPattern, match="needs the column of the event time"):
        list(A_THEN_B.matches(rows("a b")))


def test_columns_are_those_of_the_first_event_unless_they_are_named():
    pattern = Pattern.begin("a", "heat > 5").next("b", "beat = 1")
    with pytest.raises(InvalidPattern, match="unknown column 'beat'"):
        list(pattern.matches([{"heat": 7}, {"beat": 1}]))
    assert len(list(pattern.matches([{"heat": 7}, {"beat": 1}], columns=["heat", "beat"]))) == 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"key": "kee"}, "unknown column 'kee'"),
        ({"time": "tt"}, "unknown column 'tt'"),
        ({"unit": "min", "time": "t"}, "unit is 'min'"),
        ({"at_cap": "explode", "time": "t"}, "at_cap is 'explode'"),
        ({"lateness": "1 second"}, "needs the column of the event time"),
        ({"lateness": "soon", "time": "t"}, "not a length of time"),
    ],
)
def test_wrong_options_are_refused(options, sentence):
    with pytest.raises(InvalidPattern, match=sentence):
        A_THEN_B.matcher(columns=["t", "kind", "n"], **options)


@pytest.mark.parametrize(
    "value", [10**30, -(10**30), float("nan"), float("inf"), True, "not a time", None, "10000-01-01", [1]]
)
def test_a_time_that_is_none_is_refused(value):
    matcher = A_THEN_B.matcher(time="t")
    with pytest.raises(InvalidEvent, match="time in 't'"):
        matcher.push({"kind": "a", "n": "a1", "t": value})
    assert matcher.partial_matches == 0


def test_an_event_is_a_mapping():
    with pytest.raises(InvalidEvent, match="this is list"):
        A_THEN_B.matcher(time="t").push(["a"])


def test_keys_are_told_apart_as_columns_are():
    nan = [float("nan"), float("nan")]
    events = [
        {"kind": kind, "n": kind, "t": at, "key": key}
        for at, (kind, key) in enumerate(
            [("a", nan[0]), ("b", nan[1]), ("a", 1), ("b", True), ("a", [1]), ("b", [1]), ("a", None), ("b", None)]
        )
    ]
    matches = list(A_THEN_B.matches(events, key="key", time="t"))
    assert [repr(match.key) for match in matches] == ["(nan,)", "([1],)", "(None,)"]


def test_a_value_that_cannot_be_a_key_is_refused():
    with pytest.raises(InvalidEvent, match="has a tuple in its key"):
        A_THEN_B.matcher(key="key", time="t").push({"kind": "a", "n": "a1", "t": 0, "key": ([1],)})


def test_values_of_every_distinct_may_be_lists():
    pattern = A_THEN_B.every_distinct("tags", expires="1 hour")
    events = [{**row, "tags": [1]} for row in rows("a1 a2 b")]
    assert [words(match) for match in pattern.matches(events, time="t")] == ["a1 b"]


@pytest.mark.parametrize("length", ["99999999999 days", "9" * 400 + " days"])
def test_a_window_of_all_time_is_refused(length):
    with pytest.raises(InvalidPattern, match="longer than 10,000 years"):
        A_THEN_B.within(length)


def test_a_regular_expression_that_is_none_is_refused():
    with pytest.raises(InvalidPattern, match="not a regular expression"):
        Pattern.begin("a", "kind RLIKE '('").matcher(columns=["kind"], bounded=True)


def test_eight_variables_may_come_in_any_order():
    parts = [Pattern.begin(name, f"kind = '{name}'") for name in "abcdefgh"]
    pattern = Pattern.permutation(*parts).within("1 hour")
    assert [words(match) for match in pattern.matches(rows("h g f e d c b a"), time="t")] == ["h g f e d c b a"]
