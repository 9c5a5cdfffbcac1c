"""`headrace events` on a file: what it shows of streams and requests, and what it refuses. It changes nothing."""

import json
from pathlib import Path

import pytest

from headrace.eventsourcing import NewEvent, StreamAppend, open_store
from tests.integration.cli_runs import assert_one_sentence, assert_wrong_call, run_cli


def event(kind: str, ident: str = "", cause: str = "", request: str = "", **held: object) -> NewEvent:
    more = {"id": ident} if ident else {}
    data = json.dumps(held).encode()
    return NewEvent(kind, data, time_ms=1_000, causation_id=cause, correlation_id=request, **more)


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/shop.db"
    store = open_store(url)
    placed = event("placed", "e1", "checkout-1", "checkout-1", amount=5)
    store.append([StreamAppend("order-7", [placed, event("noted", "e2"), event("noted", "e3")])])
    store.append([StreamAppend("payment-1", [event("paid", "e4", "e1", "checkout-1")])], command_id="pay")
    store.append([StreamAppend("parcel-1", [event("packed", "e5", "e1", "checkout-1")])])
    store.append([StreamAppend("parcel-1", [event("sent", "e6", "e5", "checkout-1")])])
    store.append([StreamAppend("receipt-1", [event("printed", "e7", "e4", "checkout-1")])])
    store.append([StreamAppend("order", [NewEvent("raw", b"\xff\x00")])])
    store.close()
    return url


def test_categories_and_streams_are_listed(url: str) -> None:
    assert run_cli("events", "list", url, "--json").json == {
        "position": 8,
        "categories": [
            {"category": "order", "streams": 2, "events": 4},
            {"category": "parcel", "streams": 1, "events": 2},
            {"category": "payment", "streams": 1, "events": 1},
            {"category": "receipt", "streams": 1, "events": 1},
        ],
    }
    assert run_cli("events", "list", url).out.splitlines()[1].split() == ["order", "2", "4"]
    listed = run_cli("events", "list", url, "--category", "order", "--json").json
    assert [(each["stream"], each["version"]) for each in listed] == [("order", 1), ("order-7", 3)]
    listed = run_cli("events", "list", url, "--streams", "--after", "order-7", "--limit", 2, "--json").json
    assert [each["stream"] for each in listed] == ["parcel-1", "payment-1"]
    assert "no streams of category x" in run_cli("events", "list", url, "--category", "x").out


def test_the_events_of_a_stream_are_shown(url: str) -> None:
    shown = run_cli("events", "show", url, "order-7", "--json").json_lines
    assert [each["version"] for each in shown] == [1, 2, 3]
    assert shown[0] == {
        "position": 1, "stream": "order-7", "version": 1, "type": "placed", "schema": 1, "data": {"amount": 5},
        "id": "e1", "time_ms": 1000, "tags": [], "causation_id": "checkout-1", "correlation_id": "checkout-1",
        "command_id": "", "headers": {},
    }  # fmt: skip
    line = run_cli("events", "show", url, "order-7", "--to", 1).out
    assert line.split("  ")[1:] == [
        " 1", "1970-01-01 00:00:01.000", "placed", '{"amount": 5}',
        "position=1 id=e1 cause=checkout-1 correlation=checkout-1\n",
    ]  # fmt: skip

    def versions(*options: object) -> list[int]:
        return [each["version"] for each in run_cli("events", "show", url, "order-7", "--json", *options).json_lines]

    assert versions("--from", 2) == [2, 3]
    assert versions("--from", 2, "--to", 2) == [2]
    assert versions("--last", 2) == [2, 3]
    assert versions("--from", 9) == []
    assert "0xff00" in run_cli("events", "show", url, "order").out


def test_all_that_followed_from_a_request_is_a_tree(url: str) -> None:
    shown = run_cli("events", "show", url, "--correlation", "checkout-1", "--json").json_lines
    assert [(each["depth"], each["id"]) for each in shown] == [(0, "e1"), (1, "e4"), (2, "e7"), (1, "e5"), (2, "e6")]
    lines = run_cli("events", "show", url, "--correlation", "checkout-1").out.splitlines()
    assert lines[0].startswith("order-7 1 ")
    assert lines[2].startswith("   └─ receipt-1 1 ")
    assert_one_sentence(run_cli("events", "show", url, "--correlation", "checkout-2"), "checkout-2")
    assert_one_sentence(run_cli("events", "show", url, "--correlation", "checkout-1", "--since", "1h"))


def test_what_is_not_there_is_one_sentence_and_is_not_made(url: str, tmp_path: Path) -> None:
    assert_one_sentence(run_cli("events", "show", url, "order-8"), "no stream 'order-8'")
    assert_one_sentence(run_cli("events", "list", f"sqlite:///{tmp_path}/shp.db"), "shp.db")
    assert not (tmp_path / "shp.db").exists()
    assert_one_sentence(run_cli("events", "list", f"{url}?table=shp"), "no event store 'shp'")
    assert_one_sentence(run_cli("events", "list", "shop.db"), "write sqlite:///path")
    assert_wrong_call(run_cli("events", "show", url), "either a STREAM or a --correlation ID")
    assert_wrong_call(run_cli("events", "show", url, "order-7", "--correlation", "x"), "either")


def test_odd_data_is_still_json(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/odd.db"
    store = open_store(url)
    odd = [b'{"half":"\\ud800"}', b"[" * 50_000, b'{"not":NaN}', b'"\x1b[2J"']
    store.append([StreamAppend("odd-1", [NewEvent("odd", each) for each in odd])])
    store.close()

    def refuse(word: str) -> float:
        raise AssertionError(f"{word} is not JSON")

    lines = run_cli("events", "show", url, "odd-1", "--json").out.splitlines()
    shown = [json.loads(line, parse_constant=refuse)["data"] for line in lines]
    assert shown[0] == {"half": "\ud800"}
    assert shown[2] == '{"not":NaN}'
    assert "\x1b" not in run_cli("events", "show", url, "odd-1").out


def test_a_long_chain_of_causes_is_not_mostly_indentation(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/chain.db"
    store = open_store(url)
    chain = [event("went-on", f"e{number}", f"e{number - 1}", "r") for number in range(500)]
    store.append([StreamAppend("chain-1", chain)])
    store.close()
    lines = run_cli("events", "show", url, "--correlation", "r").out.splitlines()
    assert len(lines) == 500
    assert max(map(len, lines)) < 200
    assert "(499) └─ chain-1 500" in lines[-1]
