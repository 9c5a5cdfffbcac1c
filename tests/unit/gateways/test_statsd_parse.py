"""Lines of StatsD and DogStatsD, each in every form that it may have."""

import pytest

from headrace.gateways.statsd.parse import Check, Dialect, Event, Kind, Line, Sample, Sanitise, SeriesId, read_lines


def one(line: bytes, dialect: Dialect | None = None) -> Line:
    read, bad = read_lines(line, dialect or Dialect())
    assert bad == []
    (found,) = read
    return found


def sample(line: bytes, dialect: Dialect | None = None) -> Sample:
    found = one(line, dialect)
    assert isinstance(found, Sample)
    return found


@pytest.mark.parametrize(
    ("line", "kind", "values"),
    [
        (b"a:1|c", Kind.COUNTER, (1.0,)),
        (b"a:-2.5|c", Kind.COUNTER, (-2.5,)),
        (b"a:1e3|g", Kind.GAUGE, (1000.0,)),
        (b"a: 7 |ms", Kind.TIMER, (7.0,)),
        (b"a:.5|h", Kind.HISTOGRAM, (0.5,)),
        (b"a:1:2:-3|d", Kind.DISTRIBUTION, (1.0, 2.0, -3.0)),
        (b"a:1|c\r", Kind.COUNTER, (1.0,)),
    ],
)
def test_types_and_values(line: bytes, kind: Kind, values: tuple[float, ...]) -> None:
    found = sample(line)
    assert (found.series, found.values, found.weight) == (SeriesId(kind, "a"), values, 1.0)


def test_all_sections_of_a_line() -> None:
    found = sample(b"a:3|c|@0.25|#env:prod,url:http://x|c:ci-1|e:it-x|card:low|T1656581400")
    assert found.series == SeriesId(Kind.COUNTER, "a", ("env=prod", "url=http://x"))
    assert (found.weight, found.time_s, found.is_plain) == (4.0, 1656581400, False)


def test_a_container_is_a_tag_where_that_is_asked_for() -> None:
    assert sample(b"a:1|c|c:ci-1", Dialect(container_tag="pod")).series.tags == ("pod=ci-1",)
    assert sample(b"a:1|c|c:ci-1").series.tags == ()


@pytest.mark.parametrize(
    "line",
    [
        b"a;x=1;y=2:1|c",
        b"a,x=1,y=2:1|c",
        b"a#x=1,y=2:1|c",
        b"a:1|c|#y:2,x:1",
        b"a:1|c|#x:1,y:2,x:1",
        b"a;y=2:1|c|#x:1",
    ],
)
def test_tags_of_every_form_name_one_series(line: bytes) -> None:
    assert sample(line).series == SeriesId(Kind.COUNTER, "a", ("x=1", "y=2"))


def test_what_looks_like_tags_and_is_none_is_left_out_of_the_name() -> None:
    assert sample(b"a,b:1|c").series == SeriesId(Kind.COUNTER, "ab")
    assert sample(b"a#b,c=1:1|c").series == SeriesId(Kind.COUNTER, "abc=1")


@pytest.mark.parametrize(
    ("sanitise", "name", "tags"),
    [
        (Sanitise.NAMES, "a_b-c", ("t=x y/é",)),
        (Sanitise.ALL, "a_b-c", ("t=x_y-",)),
        (Sanitise.NONE, "a b/c!", ("t=x y/é",)),
    ],
)
def test_sanitising(sanitise: Sanitise, name: str, tags: tuple[str, ...]) -> None:
    found = sample("a b/c!:1|c|#t:x y/é".encode(), Dialect(sanitise)).series
    assert (found.name, found.tags) == (name, tags)


def test_a_sign_of_a_gauge_is_a_delta_or_a_part_of_the_value() -> None:
    assert sample(b"a:+1:2:-3|g").deltas == (True, False, True)
    assert sample(b"a:+1:2:-3|g", Dialect(gauge_deltas=False)).deltas == (False, False, False)


def test_a_member_of_a_set_is_any_text() -> None:
    assert sample(b"a:x:y z|s|#t:1").member == b"x:y z"
    assert sample(b"a:|s").member == b"0"


def test_the_old_form_has_good_and_bad_parts() -> None:
    read, bad = read_lines(b"a:1|c:2|c|@0.5:x|c:3|ms|#t:1", Dialect())
    assert [(one.series.kind, one.values, one.weight) for one in read if isinstance(one, Sample)] == [
        (Kind.COUNTER, (1.0,), 1.0), (Kind.COUNTER, (2.0,), 2.0), (Kind.TIMER, (3.0,), 1.0)
    ]  # fmt: skip
    assert {one.series.tags for one in read if isinstance(one, Sample)} == {("t=1",)}
    assert [str(error) for error in bad] == ["'a:x|c' has a value 'x', which is not a decimal number"]


def test_events() -> None:
    line = "_e{7,9}:Tïtle!|a\\nb|cd x|d:17|h:host|k:agg|p:low|s:src|t:error|#x:1,y|c:ci-1".encode()
    assert one(line) == Event(
        "Tïtle!", "a\nb|cd x", 17, "host", "agg", "low", "src", "error", ("x=1", "y"), "ci-1"
    )  # fmt: skip
    assert one(b"_e{1,0}:a|") == Event("a", "")


def test_service_checks() -> None:
    line = b"_sc|db.up|2|d:17|h:host|#x:1|m:it is m\\: down\\nnow|c:ci-1"
    assert one(line) == Check("db.up", 2, 17, "host", "it is m: down\nnow", ("x=1",), "ci-1")
    assert one(b"_sc|a|0") == Check("a", 0)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b"a", "has no value"),
        (b"a:1", "has no type"),
        (b"a:1|x", "of the type 'x'"),
        (b"a:0x1|c", "not a decimal number"),
        (b"a:nan|c", "not a decimal number"),
        (b"a:1e999|c", "beyond"),
        (b"a:-1|ms", "less than nothing"),
        (b"a:1|c|@0", "sampling rate"),
        (b"a:1|c|@1.5", "sampling rate"),
        (b"a:1|c|@0.5|@0.5", "two sampling rates"),
        (b"a:1|ms|T17", "only counters and gauges"),
        (b"a:1|c|Tx", "not a number of seconds"),
        (b"a:1|c|?", "known are"),
        (b":1|c", "a name with no letter"),
        (b"a:1|c|#" + b"x" * 2000, "more than 1000"),
        (b"a" * 9000, "max_line"),
        (b"_e{9,1}:a|b", "not as long as it says"),
        (b"_e{a}:x", "write _e{5,4}"),
        (b"_e{0,1}:|b", "without a title"),
        (b"_e{1,1}:a|b|p:high", "known are normal, low"),
        (b"_sc|a", "no service check"),
        (b"_sc|a|4", "no service check"),
        (b"_sc||1", "no service check"),
    ],
)
def test_what_is_wrong_is_one_sentence(line: bytes, sentence: str) -> None:
    read, (bad,) = read_lines(line, Dialect())
    assert read == []
    assert sentence in str(bad)
    assert "\n" not in str(bad)
