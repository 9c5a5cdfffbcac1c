"""Patterns that come from a topic match what they match as soon as they are there, and nothing when they are gone."""

import json
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.cep import read_pattern
from headrace.cep.partial import Cap
from headrace.pipelines.keyed.operator import Ordered
from headrace.pipelines.operators.patterns.operator import LOST, PARTIAL, MatchPatterns
from headrace.pipelines.operators.patterns.shapes import ROWS, Several
from headrace.pipelines.operators.patterns.stored import IS_PATTERN, KEY, OFFSET, PARTITION, VALUE, FromTopic
from headrace.pipelines.operators.stragglers import drop
from tests.keyed_memory import MemoryRunner
from tests.property.storage_model import examples
from tests.unit.pipelines.operators.pattern_runs import OTHERS, SCHEMA, micros

CAP = Cap(1_000)
TEXTS = [
    'Pattern.begin("a", "x = 0").followed_by("b", "x = 1").within("6 microseconds")',
    'Pattern.begin("a", "x >= 1").next("b", "x < a.x").within("9 microseconds")',
    'Pattern.begin("a", "x = 2").not_followed_by("b", "x = 0", within="3 microseconds").within("5 microseconds")',
    "MATCH_RECOGNIZE (ORDER BY t PATTERN (a b+) WITHIN INTERVAL '0.000008' SECOND DEFINE b AS x > PREV(x))",
]
BROKEN = ['Pattern.begin("a", "x <")', 'Pattern.begin("a", "y < 1")', 'Pattern.begin("a", "x < 1").next("b", "x > 0")']
ALL = pa.schema(
    [
        *SCHEMA,
        pa.field(IS_PATTERN, pa.bool_()),
        pa.field(KEY, pa.binary()),
        pa.field(VALUE, pa.binary()),
        pa.field(PARTITION, pa.int32()),
        pa.field(OFFSET, pa.int64()),
    ]
)
change = st.tuples(
    st.sampled_from(["p", "q"]),
    st.none() | st.tuples(st.sampled_from([*TEXTS, *BROKEN]), st.sampled_from(["running", "running", "paused"])),
)
row = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 2), st.integers(0, 2))
step = st.tuples(st.lists(change, max_size=2), st.lists(row, max_size=6), st.booleans())
START = 1_000


def operator() -> MatchPatterns:
    source = FromTopic(SCHEMA, CAP, ("k",), "t")
    return MatchPatterns(source, Several(OTHERS, has_versions=True), Ordered("t", ("offset",)), SCHEMA, drop(), False)


def record(offset: int, name: str, value: tuple[str, str] | None) -> dict[str, Any]:
    text = None if value is None else json.dumps({"pattern": value[0], "state": value[1]}).encode()
    return {IS_PATTERN: True, KEY: name.encode(), VALUE: text, PARTITION: 0, OFFSET: offset}


@examples(150)
@given(st.lists(step, min_size=1, max_size=6), st.integers(1, 3), st.booleans())
def test_each_version_matches_the_rows_of_its_time(steps: list[Any], buckets: int, model: bool) -> None:
    runner = MemoryRunner(operator(), by=["k"], schema=ALL, buckets=buckets, model=model)
    at, offset, changes = START, 0, 0
    standing: dict[str, tuple[str, str]] = {}
    lives: list[tuple[str, str, list[dict[str, Any]]]] = []  # a name, what it was, and the rows of its time
    alive: dict[str, int] = {}
    found: list[tuple[Any, ...]] = []
    last: dict[int, dict[str, Any]] = {}

    def read(out: pa.Table) -> None:
        for one in out.to_pylist():
            if one["_patterns"] is not None:
                status = json.loads(one["_patterns"])
                last[status["bucket"]] = status
            else:
                rows = tuple((each["variable"], each["offset"]) for each in one[ROWS])
                found.append((one["pattern"], one["k"], micros(one["match_time"]), rows))

    for told, given_rows, restarts in steps:
        if restarts:
            runner.restart()
        records = []
        for name, value in told:
            records.append(record(changes, name, value))
            changes += 1
            if value == standing.get(name):
                continue
            standing.pop(name, None)
            alive.pop(name, None)
            if value is not None:
                standing[name] = value
                if value[0] in TEXTS and value[1] == "running":
                    alive[name] = len(lives)
                    lives.append((name, value[0], []))
        rows = []
        watermark = at
        for key, x, gap in given_rows:
            at += gap + (1 if at == watermark else 0)
            rows.append({"k": key, "t": at, "x": x, "offset": offset, IS_PATTERN: False})
            offset += 1
        for life in alive.values():
            lives[life][2].extend(rows)
        read(runner.batch([*records, *rows], watermark_us=watermark))
        if rows:
            read(runner.batch([], watermark_us=at))
    read(runner.batch([], watermark_us=at + 1_000))
    expected: list[tuple[Any, ...]] = []
    for life, (name, text, seen) in enumerate(lives):
        pattern = read_pattern(text)
        matcher = pattern.matcher(key="k", time="t", unit="us", columns=SCHEMA.names)
        matches = [match for one in seen for match in matcher.push(one)]
        if alive.get(name) == life:
            matches += matcher.advance(at + 1_000)
        elif seen:
            matches += matcher.advance(seen[-1]["t"])
        expected += [
            (name, match.key[0], match.time_us, tuple((v, event.values["offset"]) for v, event in match.rows))
            for match in matches
        ]
    assert sorted(found) == sorted(expected)
    # All buckets know the same patterns, and what does not run is not kept.
    for status in last.values():
        if status["changed"] == changes:
            states = {one["name"]: one["state"] for one in status["patterns"]}
            wanted = {name: "failed" if text in BROKEN else state for name, (text, state) in standing.items()}
            assert states == wanted
            assert all((one["state"] == "failed") == (one["problem"] is not None) for one in status["patterns"])
    if not alive:
        assert runner.state(PARTIAL) == []


def test_what_a_removed_pattern_had_begun_is_dropped_and_counted() -> None:
    runner = MemoryRunner(operator(), by=["k"], schema=ALL)
    rows = [{"k": key, "t": START + n, "x": 0, "offset": n, IS_PATTERN: False} for n, key in enumerate("aab")]
    runner.batch([record(0, "p", (TEXTS[0], "running")), record(1, "q", (TEXTS[0], "running")), *rows], watermark_us=1)
    runner.batch([], watermark_us=START + 4)
    assert {row["count"] for _, row in runner.state(PARTIAL)} == {1, 2}
    runner.batch([record(2, "p", None)], watermark_us=START + 4)
    assert runner.counts[LOST] == 3
    assert len(runner.state(PARTIAL)) == 2
    runner.batch([record(3, "q", (TEXTS[1], "running"))], watermark_us=START + 4)
    assert runner.counts[LOST] == 6
    assert runner.state(PARTIAL) == []


def test_a_pattern_that_cannot_run_says_why_with_the_place() -> None:
    runner = MemoryRunner(operator(), by=["k"], schema=ALL)
    told = [
        (BROKEN[1], "running"),
        (BROKEN[2], "running"),
        (TEXTS[3].replace("ORDER BY t", "ORDER BY offset"), "running"),
    ]
    records = [record(n, f"p{n}", value) for n, value in enumerate(told)]
    records += [{**record(3, "p3", None), VALUE: b"no JSON"}, {**record(4, "", None), KEY: None, VALUE: b"{}"}]
    out = runner.batch(records, watermark_us=1).to_pylist()
    (status,) = [json.loads(one["_patterns"]) for one in out if one["_patterns"]]
    problems = [one["problem"] for one in status["patterns"]]
    assert "unknown column 'y'" in problems[0]
    assert "^" in problems[0]
    assert "within" in problems[1]
    assert "ORDER BY offset" in problems[2]
    assert "cannot be read" in problems[3]
    assert len(problems) == 4


def test_no_text_stops_the_patterns_of_others() -> None:
    """What cannot be read, compiled or run fails by itself, and soon; the pattern beside it matches."""
    runner = MemoryRunner(operator(), by=["k"], schema=ALL)
    within = "WITHIN INTERVAL '5' SECOND"
    optional = "(a? b? c? d?)"
    bad = [
        "\ud800",
        "Pattern.begin('a', \"k = '\\ud800'\").within('5 seconds')",
        f"MATCH_RECOGNIZE (PATTERN ({optional}{{0,200}} z) {within} DEFINE z AS x = 1)",
        f"MATCH_RECOGNIZE (PATTERN ({'(a? | b? | c?)* ' * 40} z) {within} DEFINE z AS x = 1)",
        f"MATCH_RECOGNIZE (PATTERN ({'((a?)*)* ' * 20} z) {within} DEFINE z AS x = 1)",
    ]
    records = [record(n, f"p{n}", (text, "running")) for n, text in enumerate(bad)]
    records.append({**record(8, "p8", None), VALUE: json.dumps({"pattern": "x", "state": "y" * 100_000}).encode()})
    rows = [{"k": "a", "t": START + n, "x": n, "offset": n, IS_PATTERN: False} for n in range(2)]
    out = runner.batch([*records, record(9, "q", (TEXTS[0], "running")), *rows], watermark_us=1).to_pylist()
    (status,) = [json.loads(one["_patterns"]) for one in out if one["_patterns"]]
    problems = {one["name"]: one["problem"] for one in status["patterns"]}
    assert problems.pop("q") is None
    assert len(problems) == len(records)
    assert all(0 < len(problem) < 1_100 for problem in problems.values())
    assert "half a character" in problems["p0"]
    assert "too many parts" in problems["p2"]
    assert "too many" in problems["p3"]
    assert "too many" in problems["p4"]
    found = runner.batch([], watermark_us=START + 4).to_pylist()
    assert [one["pattern"] for one in found if one["_patterns"] is None] == ["q"]
