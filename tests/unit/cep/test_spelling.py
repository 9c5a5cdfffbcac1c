"""Patterns as texts: what is read, what is refused with its place, and nothing is run."""

import pytest

from headrace.cep import Contiguity, InvalidPattern, Pattern, read_pattern, text_of

SQL = "MATCH_RECOGNIZE (ORDER BY at PATTERN (a b+) WITHIN INTERVAL '1' MINUTE DEFINE a AS x < 1, b AS x > PREV(x))"
a, b = Pattern.begin("a", "x < 1"), Pattern.begin("b", "y = 'it''s \"so\"'")
PATTERNS = [
    a,
    Pattern.begin("a"),
    a.followed_by("b", "x > 9").within("1 minute").skip_past_last(),
    a.next("b", within="90 seconds").followed_by_any("c", "x > a.x").times(2, 5).allow_combinations().skip_to_last("c"),
    a.not_next("n", "x = 3").followed_by("b").not_followed_by("m", "x = 4", within="2 hours").within("1 day"),
    a.one_or_more().greedy().until("x = 7").optional().next(b.next("c").excluded()).skip_to_first("c"),
    (a | b | Pattern.begin("c").times(2)).one_or_more().reluctant().consecutive().next("d").once(),
    Pattern.permutation(a, b.times_or_more(3), contiguity=Contiguity.STRICT).optional().followed_by("z").skip_to_next(),
    Pattern.begin(a.next("b")).times(2).followed_by("d").every_distinct("x", expires="1 hour"),
    a.times(2).greedy().times(1).next("b"),
    Pattern.sql(SQL),
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_text_is_the_same_pattern(pattern):
    assert read_pattern(text_of(pattern)) == pattern
    assert read_pattern(text_of(pattern)).tree == pattern.tree


def test_a_text_is_as_one_writes_it():
    text = 'Pattern.begin("a", "x < 1").followed_by("b", "x > 9").within("1 minute").skip_past_last()'
    assert text_of(PATTERNS[2]) == text
    assert read_pattern("(\n  Pattern.begin('a', 'x < 1')\n  .followed_by('b', 'x > 9')\n)") == a.followed_by(
        "b", "x > 9"
    )
    assert text_of(Pattern.sql(SQL)) == SQL


@pytest.mark.parametrize(
    ("text", "sentence", "marked"),
    [
        (
            'Pattern.begin("a").folowed_by("b")',
            "a pattern has no 'folowed_by': did you mean 'followed_by'?",
            "folowed_by",
        ),
        ('Pattern.start("a")', "a pattern has no 'start'", "start"),
        ('Pattern.begin("a", "x <")', "an operand is missing", "<"),
        ('Pattern.begin("a b")', "'a b' cannot be a variable's name", "begin"),
        ('Pattern.begin("a").times("2")', "this call is wrong", "times"),
        ('Pattern.begin("a").times()', "missing 1 required positional argument", "times"),
        ('Pattern.begin("a").within("soon")', "which is not a length of time", "within"),
        ('Pattern.begin("ä").next(__import__("os"))', "this is not part of a pattern", '__import__("os")'),
        ('Pattern.begin("a") | "b"', "a pattern is expected here", '"b"'),
        ('Pattern.begin(*["a"])', "this is not part of a pattern", '*["a"]'),
        ('Pattern.begin("a").__class__("b")', "a pattern has no '__class__'", "__class__"),
        ('Pattern.begin("a").compile()', "a pattern has no 'compile'", "compile"),
        ('Pattern.begin("a"', "'(' was never closed", "("),
        ("Contiguity.STRICT", "this is not a pattern", "Contiguity.STRICT"),
        ("", "this is not a pattern in Python", None),
        ("Pattern.begin('a')" + ".next('b')" * 20_000, "nested too deep", None),
    ],
)
def test_what_is_no_pattern_is_refused_with_its_place(text, sentence, marked):
    with pytest.raises(InvalidPattern) as refused:
        read_pattern(text).tree  # noqa: B018 - conditions are read with the tree
    assert sentence in refused.value.sentence
    place = refused.value.place
    assert (place and place.text[place.start : place.end]) == marked or marked is None
