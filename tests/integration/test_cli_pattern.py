"""`headrace pattern`: patterns checked, tried on files and topics, and drawn; bad input is one sentence."""

import json
from functools import partial

import pytest

from headrace import Broker
from tests.integration.cli_runs import assert_wrong_call, run_cli

SQL = """-- a small payment, then a big one
MATCH_RECOGNIZE (
  PARTITION BY card ORDER BY at
  MEASURES small.amount AS tried, big.amount AS stolen
  PATTERN (small other*? big) WITHIN INTERVAL '1' MINUTE
  DEFINE small AS amount < 10, big AS amount > 1000
)
"""
BARE = SQL[SQL.index("MATCH") :]
PYTHON = """
from headrace.cep import Pattern

FRAUD = Pattern.begin("small", "amount < 10").followed_by("big", "amount > 1000").within("1 minute")
UNBOUNDED = Pattern.begin("small", "amount < 10").followed_by("big", "amount > 1000")
NEVER = Pattern.begin("small", "amount < 10 AND amount > 20").within("1 minute")
TYPO = Pattern.begin("small", "amount < 10").followed_by("big", "amount > smal.amount").within("1 minute")
"""
PAYMENTS = [
    {"card": "a", "amount": 5, "at": 1_000},
    {"card": "b", "amount": 5, "at": 2_000},
    {"card": "a", "amount": 1500, "at": 9_000},
    {"card": "a", "amount": 50, "at": 3_000},
    {"card": "b", "amount": 2000, "at": 90_000},
]
BY_CARD = ("--key", "card", "--time", "at")


@pytest.fixture
def headrace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fraud.sql").write_text(SQL)
    (tmp_path / "p.py").write_text(PYTHON)
    (tmp_path / "pays.jsonl").write_text("\n".join(map(json.dumps, PAYMENTS)))
    (tmp_path / "pays.csv").write_text(
        "card,amount,at\n" + "".join(f"{one['card']},{one['amount']},{one['at']}\n\n" for one in PAYMENTS)
    )
    return partial(run_cli, "pattern")


# --- check


@pytest.mark.parametrize(
    "given",
    [
        ("fraud.sql", "--columns", "card,amount,at"),
        ("fraud.sql", "--columns", "card string, amount decimal(10, 2), at timestamp"),
        ("fraud.sql", "pays.jsonl"),
        ("p.py:FRAUD", "pays.csv", *BY_CARD),
        ("p:FRAUD",),
        (BARE,),
        ('Pattern.begin("small", "amount < 10").next("big").within("1 minute")',),
    ],
)
def test_what_can_run_is_ok(headrace, given):
    run = headrace("check", *given)
    assert (run.code, run.err) == (0, "")
    assert run.out.startswith("OK: small, ")


@pytest.mark.parametrize(
    ("given", "sentence", "marked"),
    [
        (("fraud.sql", "--columns", "card,amunt,at"), "unknown column 'amount': did you mean 'amunt'?", "amount"),
        (("p.py:UNBOUNDED",), "a partial match would wait for big for ever: add `within`", "amount > 1000"),
        (("p.py:NEVER",), "this pattern can never match: no row can be like this", "amount < 10 AND amount > 20"),
        (("p.py:TYPO", "--columns", "amount"), "unknown variable 'smal': did you mean 'small'?", "smal.amount"),
        ((BARE.replace("DEFINE small", "DEFINE smal"),), "unknown variable 'smal': did you mean 'small'?", "smal"),
        ((BARE.replace("amount < 10", "amount <"),), "an operand is missing", "<"),
    ],
)
def test_what_cannot_run_is_one_sentence_with_its_place_marked(headrace, given, sentence, marked):
    run = headrace("check", *given)
    assert (run.code, run.out) == (1, "")
    said, text, mark = run.err.splitlines()
    assert said.startswith("headrace: ")
    assert sentence in said
    begin = mark.index("^")
    assert text[begin : begin + mark.count("^")] == marked


def test_a_variable_that_may_be_misspelt_is_named(headrace):
    run = headrace("check", "p.py:TYPO")
    assert run.code == 0
    assert run.err.startswith("unless it is a column: unknown variable 'smal': did you mean 'small'?")
    assert headrace("check", "p.py:FRAUD").err == ""


def test_a_problem_for_programs(headrace):
    found = headrace("check", "p.py:NEVER", "--json")
    assert found.code == 1
    assert found.json["ok"] is False
    assert found.json["text"][found.json["start"] : found.json["end"]] == "amount < 10 AND amount > 20"
    assert headrace("check", "p.py:FRAUD", "--json").json == {"ok": True, "states": 2, "variables": ["small", "big"]}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("nofile.sql", "neither a file here nor the text of a pattern"),
        ("", "the pattern is empty"),
        (".", "is a folder"),
        ("empty.sql", "is empty"),
        ("binary.sql", "is not text in UTF-8"),
        ("nul.sql", "binary data"),
        ("p.py", "say which pattern of it"),
        ("p.py:FRAUDD", "did you mean 'FRAUD'?"),
        ("none.py:X", "there is no file none.py"),
        ("broken.py:X", "broken.py:2: 'small one' cannot be a variable's name"),
        ("wrong.py:X", "wrong.py:1: "),
        ("leaves.py:X", "leaves.py:2: it ends the program (sys.exit)"),
        ("leaves_too:X", "leaves_too ends the program (sys.exit)"),
        ("json:dumps", "json has no pattern 'dumps': it has none at all"),
    ],
)
def test_what_is_no_pattern_is_one_sentence(headrace, tmp_path, given, words):
    (tmp_path / "empty.sql").write_text("\n")
    (tmp_path / "binary.sql").write_bytes(bytes(range(128, 256)))
    (tmp_path / "nul.sql").write_bytes(b"MATCH\0")
    (tmp_path / "broken.py").write_text('from headrace.cep import Pattern\nX = Pattern.begin("small one")\n')
    (tmp_path / "wrong.py").write_text("def f(:\n")
    for name in ("leaves.py", "leaves_too.py"):
        (tmp_path / name).write_text("import sys\nsys.exit(0)\n")
    run = headrace("check", given)
    assert (run.code, run.out) == (1, "")
    assert run.err.startswith("headrace: ")
    assert words in run.err
    assert run.err.count("\n") == 1


# --- test


def places(run):
    return [[(row["variable"], row["at"]) for row in match["rows"]] for match in run.json["matches"]]


@pytest.mark.parametrize(("file", "lines"), [("pays.jsonl", ["1", "3"]), ("pays.csv", ["2", "6"])])
def test_matches_of_a_file(headrace, file, lines):
    run = headrace("test", "p.py:FRAUD", file, *BY_CARD, "--json", "--timed-out")
    assert places(run) == [[("small", lines[0]), ("big", lines[1])]]
    assert run.json["matches"][0]["key"] == {"card": "a"}
    assert run.json["matches"][0]["time"] == "1970-01-01T00:00:09Z"
    assert [match["key"] for match in run.json["timed_out"]] == [{"card": "b"}]
    assert run.json["counts"] == {
        "events": 5, "matches": 1, "timed_out": 1, "partial": 0, "late": 0, "dropped_at_cap": 0, "skipped": 0,
    }  # fmt: skip


def test_sql_has_its_columns_and_measures(headrace):
    run = headrace("test", "fraud.sql", "pays.jsonl")
    assert run.out.split("\n")[0].split() == [
        "card", "known", "at", "tried", "stolen", "small,", "line", "other,", "line", "big,", "line",
    ]  # fmt: skip
    assert run.out.split("\n")[1].split() == ["a", "1970-01-01T00:00:09Z", "5", "1500", "1", "4", "3"]
    assert run.out.split("\n")[2] == "5 events, 1 match, 1 timed out, 0 partial at the end, 0 late"


def test_a_stream_has_late_events_and_partial_matches(headrace):
    found = headrace("test", "p.py:FRAUD", "-", *BY_CARD, "--lateness", "1 second", "--json",
                     stdin="\n".join(map(json.dumps, PAYMENTS[:4])))  # fmt: skip
    assert found.json["counts"]["late"] == 1
    assert found.json["counts"]["partial"] == 1


def test_expected_matches(headrace, tmp_path):
    trial = partial(headrace, "test", "p.py:FRAUD", "pays.jsonl", *BY_CARD)
    (tmp_path / "whole.json").write_text(trial("--json").out)
    assert trial("--expect", "whole.json").code == 0
    (tmp_path / "loose.json").write_text('[{"key": {"card": "a"}}]')
    assert trial("--expect", "loose.json").out.startswith("OK: as expected: 5 events, 1 match")
    (tmp_path / "other.json").write_text('{"matches": [{"key": {"card": "b"}}]}')
    run = trial("--expect", "other.json")
    assert run.code == 1
    missing, surplus = run.out.splitlines()
    assert missing == 'missing: {"key": {"card": "b"}}'
    assert surplus.startswith('not expected: {"key": {"card": "a"}')
    assert run.err.startswith("not as expected: 5 events, 1 match")
    (tmp_path / "none.json").write_text("[]")
    assert trial("--expect", "none.json", "--json").json["ok"] is False


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("missing.jsonl", None, "there is no file missing.jsonl"),
        ("empty.jsonl", b"", "empty.jsonl is empty"),
        ("blank.csv", b"\n \n", "blank.csv is empty"),
        ("head.csv", b"card,amount,at\n", "head.csv has no event"),
        ("binary.dat", bytes(range(128, 256)), "line 1 of binary.dat is not text in UTF-8"),
        ("nul.jsonl", b'{"a": 1}\n\0\0', "line 2 of nul.jsonl holds binary data"),
        ("half.jsonl", b'{"card": 1}\n{"card": ', "line 2 of half.jsonl is not JSON"),
        ("list.jsonl", b"[1]\n", "line 1 of list.jsonl is not a JSON object"),
        ("short.csv", b"card,amount,at\na,1,2\na,1\n", "line 3 of short.csv has 2 fields, and the header names 3"),
        ("twice.csv", b"card,card\n1,2\n", "is not a header of CSV"),
        ("huge.jsonl", b'{"card": "' + b"x" * 17_000_000, "line 1 of huge.jsonl is longer than 16 MiB"),
        ("untimed.jsonl", b'{"card": "a", "amount": 5, "at": "soon"}', "line 1: an event has no time in 'at'"),
        (
            "keyless.jsonl",
            b'{"card": "a", "amount": 5, "at": 1}\n{"amount": 5, "at": 2}',
            "no 'card', which is its key",
        ),
        ("other.jsonl", b'{"card": "a", "total": 5, "at": 1}', "unknown column 'amount'"),
    ],
)
def test_what_are_no_events_is_one_sentence(headrace, tmp_path, name, content, words):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    run = headrace("test", "p.py:FRAUD", name, *BY_CARD)
    assert run.code == 1
    assert "Traceback" not in run.err
    assert words in run.err.splitlines()[0]


def test_wrong_calls(headrace):
    assert_wrong_call(headrace("test", "p.py:FRAUD"), "give EVENTS, or --topic")
    assert_wrong_call(headrace("test", "p.py:FRAUD", "pays.jsonl", "--from", "1h"), "--from and --to are of a --topic")
    assert_wrong_call(headrace("check", "p.py:FRAUD", "pays.jsonl", "--columns", "a"), "only one of")
    assert_wrong_call(headrace("explain", "p.py:FRAUD", "--output", "x.pdf"), "does not say what to write")
    run = headrace("test", "p.py:FRAUD", "pays.jsonl")
    assert "name the column of the event time with --time" in run.err
    assert "did you mean 'card'?" in headrace("test", "p.py:FRAUD", "pays.jsonl", "--key", "crd", "--time", "at").err


def test_events_of_a_topic(headrace):
    with Broker(durability="os") as broker:
        given = "\n".join(
            json.dumps({"value": one, "key": one["card"], "timestamp": one["at"], "partition": number % 2})
            for number, one in enumerate(PAYMENTS)
        )
        bootstrap = broker.bootstrap_servers
        run_cli("topic", "create", "payments", "--partitions", 2, bootstrap=bootstrap)
        run_cli("produce", "payments", "--json-lines", stdin=given + '\n{"value": "no JSON"}', bootstrap=bootstrap)
        trial = partial(headrace, bootstrap=bootstrap)
        assert trial("check", "fraud.sql", "--topic", "payments").code == 0
        # Without --time it is that of the record.
        run = trial("test", "p.py:FRAUD", "--topic", "payments", "--key", "_key", "--json")
        assert places(run) == [[("small", "0:0"), ("big", "0:1")]]
        assert run.json["counts"]["skipped"] == 1
        only = trial("test", "fraud.sql", "--topic", "payments", "--to", "1", "--json")
        assert only.json["counts"]["events"] == 2
        assert "no event" in trial("test", "fraud.sql", "--topic", "payments", "--from", "latest").err
        assert "payment" in trial("test", "fraud.sql", "--topic", "payment").err
    run = headrace("test", "fraud.sql", "--topic", "payments", bootstrap="127.0.0.1:1")
    assert run.code == 1
    assert run.err.startswith("headrace: cannot reach a broker at 127.0.0.1:1")


# --- explain


def test_an_automaton_in_every_form(headrace, tmp_path):
    said = headrace("explain", "p.py:FRAUD").out
    assert "│ amount > 1000 " in said
    assert "followed by big when amount > 1000" in said
    assert "│" not in headrace("explain", "p.py:FRAUD", "--as", "words").out
    large = 'Pattern.begin("a", "x > 1").times(500).within("1 hour")'
    assert "a#500" in headrace("explain", large).out or "a 500" in headrace("explain", large).out
    assert headrace("explain", large, "--as", "svg").err.startswith("headrace: this automaton has 500 states")
    for name, begin in (("x.svg", "<svg "), ("x.dot", "digraph"), ("x.mmd", "flowchart"), ("x.txt", "    ●")):
        run = headrace("explain", "p.py:FRAUD", "--output", name)
        assert (run.code, run.out) == (0, f"wrote {name}\n")
        assert (tmp_path / name).read_text().startswith(begin)
