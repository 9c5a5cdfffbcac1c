"""`headrace search`: queries stored, tried on files and topics, and explained; bad input is one sentence."""

import json
from functools import partial

import pytest

from headrace import Broker
from tests.integration.cli_runs import assert_wrong_call, run_cli

MAPPING = {"fields": {"title": {"type": "text", "analyzer": "english"}, "price": "double"}, "default_fields": ["title"]}
LISTINGS = [
    {"title": "A racing bike, hardly used", "price": 450},
    {"title": "Garden gnome", "price": 5},
    {"title": "Bikes for the whole family", "price": 900},
    {"title": "Broken", "price": "ask me"},
]


@pytest.fixture
def headrace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mapping.json").write_text(json.dumps(MAPPING))
    (tmp_path / "listings.jsonl").write_text("\n".join(map(json.dumps, LISTINGS)))
    (tmp_path / "long.jsonl").write_text('{"price": %s}' % ("9" * 5000))
    (tmp_path / "listings.csv").write_text('title,price\n"A racing bike",450\nGarden gnome,5\n')
    return partial(run_cli, "search")


# --- without a broker


def test_a_query_is_tried_on_a_file(headrace):
    run = headrace("test", "listings.jsonl", "--query", "bike AND price:<500", "--mapping-file", "mapping.json")
    assert run.code == 0, run
    assert run.out.splitlines() == [
        "line 1",
        "  the query  2  title: A racing [bike], hardly used",
        "1 of 4 documents match, 1 hits, 1 could not be read",
    ]
    assert "line 4: field 'price' is 'ask me', which is not a double" in run.err
    run = headrace("test", "listings.csv", "--query", "bike OR price:5", "--json")
    assert [each["place"] for each in run.json_lines] == ["2", "3"]
    assert run.json_lines[0]["hits"][0]["highlights"] == [
        {"field": "title", "value": 0, "start": 9, "end": 13, "text": "bike"}
    ]


def test_documents_come_from_standard_input(headrace):
    run = headrace("test", "-", "--query", "gnome", stdin='{"t": "a gnome"}\n{"t": "x"}\n')
    assert run.out.splitlines()[-1] == "1 of 2 documents match, 1 hits"


def test_why_a_document_does_not_match(headrace):
    document = json.dumps(LISTINGS[2])
    run = headrace("explain", document, "--query", '"racing bike" price:<500', "--mapping-file", "mapping.json")
    assert run.code == 1
    assert run.out.splitlines() == [
        "no  at least 1 of 2 that may be: 0 of those that may be",
        "    no  may: title has 'race bike': 'race' is not there",
        "    no  may: price has a number below 500: 900",
    ]
    run = headrace("explain", "listings.jsonl", "--query", "bike", "--mapping-file", "mapping.json", "--json")
    assert run.code == 0
    assert run.json == {"matches": True, "asks": "title has 'bike'", "score": 1.0}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("test", "listings.jsonl", "--query", "title:(bike"), "never closed\n  title:(bike\n        ^"),
        (("test", "listings.jsonl", "--query", "*ike"), "a wildcard in front"),
        (("test", "missing.jsonl", "--query", "a"), "there is no file missing.jsonl"),
        (("test", "long.jsonl", "--query", "a"), "line 1 of long.jsonl is not JSON (a number in it is too long)"),
        (("test", "listings.jsonl", "--query", "a", "--mapping-file", "listings.csv"), "is not JSON"),
        (("test", "listings.jsonl", "--query", "a", "--mapping-file", "no.json"), "no.json"),
        (("explain", "{", "--query", "a"), "is not JSON"),
        (("explain", '{"price": "x"}', "--query", "a", "--mapping-file", "mapping.json"), "not a double"),
    ],
)
def test_bad_input_is_one_sentence(headrace, given, sentence):
    run = headrace(*given)
    assert run.code == 1
    assert sentence in run.err
    assert "Traceback" not in run.err


@pytest.mark.parametrize(
    "given",
    [
        ("test",),
        ("test", "listings.jsonl", "--topic", "x"),
        ("test", "listings.jsonl", "--from", "earliest"),
        ("test", "listings.jsonl", "--query", "a", "--id", "b"),
        ("explain", "{}"),
        ("explain", "{}", "--id", "a", "--query", "b"),
        ("add", "a", "b", "--also-match-last", "soon"),
    ],
)
def test_wrong_calls_say_what_is_wrong(headrace, given):
    assert_wrong_call(headrace(*given))


# --- with one


def test_queries_are_stored_and_hold(headrace, tmp_path):
    with Broker(durability="os") as broker:
        search = partial(headrace, bootstrap=broker.bootstrap_servers)
        assert "no queries yet" in search("list").out
        assert search("mapping", "listings", "mapping.json").out == "stored mapping listings (2 fields)\n"
        listings = ("--mapping", "listings")
        added = search("add", "bikes", "bike^2 price:<500", *listings, "--owner", "ann", "--tag", "cars",
                       "--also-match-last", "24 hours")  # fmt: skip
        assert added.out == "stored bikes (version 1)\n"
        assert search("add", "gnomes", "gnome", *listings, "--boost", "0.5").code == 0

        # What is refused is not stored.
        refused = search("add", "bad", "bike AND", *listings)
        assert refused.err == "headrace: query 'bad': a word is missing here\n  bike AND\n          ^\n"
        assert "there already" in search("add", "bikes", "x", *listings).err
        assert "did you mean 'listings'" in search("add", "bad", "x", "--mapping", "listing").err
        (tmp_path / "other.json").write_text('{"fields": {"price": "boolean"}}')
        assert "would refuse 1 of its queries" in search("mapping", "listings", "other.json").err

        run = search("test", "listings.jsonl", *listings, "--json")
        assert [(each["place"], [(hit["id"], hit["score"]) for hit in each["hits"]]) for each in run.json_lines] == [
            ("1", [("bikes", 3.0)]),
            ("2", [("bikes", 1.0), ("gnomes", 0.5)]),
            ("3", [("bikes", 2.0)]),
        ]
        assert search("explain", json.dumps(LISTINGS[1]), "--id", "gnomes", *listings).code == 0

        # Documents of a topic.
        assert run_cli("topic", "create", "listings", bootstrap=broker.bootstrap_servers).code == 0
        given = "\n".join(json.dumps({"value": document}) for document in LISTINGS)
        assert run_cli("produce", "listings", "--json-lines", stdin=given, bootstrap=broker.bootstrap_servers).code == 0
        run = search("test", "--topic", "listings", *listings, "--id", "gnomes")
        assert run.out.splitlines()[-1] == "1 of 4 documents match, 1 hits, 1 could not be read"
        assert search("test", "--topic", "listings", "--query", "listings").out.startswith("0 of 4 documents match")
        write = partial(run_cli, bootstrap=broker.bootstrap_servers)
        assert write("produce", "listings", "no JSON", "[1]").code == 0
        run = search("test", "--topic", "listings", *listings, "--id", "gnomes")
        assert run.out.splitlines()[-1] == "1 of 6 documents match, 1 hits, 3 could not be read"
        assert (write("topic", "create", "odd").code, write("produce", "odd", "no JSON").code) == (0, 0)
        refused = search("test", "--topic", "odd", *listings)
        assert "this stretch of odd has no event, and 1 records that are not JSON objects" in refused.err

        # Changes are effective, and survive in the topic.
        assert search("pause", "bikes").out == "paused bikes\n"
        assert search("pause", "bikes").out == "bikes was paused already\n"
        assert search("add", "gnomes", "garden", *listings, "--replace").out == "replaced gnomes (version 2)\n"
        listed = search("list", "--json").json
        assert [(each["id"], each.get("paused", False), each.get("version", 1)) for each in listed["queries"]] == [
            ("bikes", True, 2), ("gnomes", False, 2),
        ]  # fmt: skip
        shown = search("list", "--owner", "ann").out
        assert "paused, last 1 day" in shown
        assert "gnomes" not in shown
        assert search("resume", "bikes").out == "resumed bikes\n"
        assert search("remove", "bikes", "gnomes").code == 0
        assert "did you mean" not in search("remove", "bikes").err
        assert "no query is stored as 'bikes'" in search("remove", "bikes").err
        assert "no queries yet" in search("list").out

        # A record that somebody else wrote is named, and can be removed.
        assert run_cli("produce", "searches", "--key", "odd", "{", bootstrap=broker.bootstrap_servers).code == 0
        assert "refused: odd: stored query 'odd' is not JSON" in search("list").err
        assert search("remove", "odd").out == "removed odd\n"
        assert search("list").err == ""
