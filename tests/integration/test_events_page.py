"""The pages of events on real stores: streams, events, states step by step; and what is wrong, in a sentence."""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from headrace.cli.dashboard import language
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.dashboard import event_stores
from headrace.dashboard.app import Dashboard
from headrace.dashboard.event_stores import EventStores
from headrace.dashboard.settings import Settings, StoreSection
from headrace.eventsourcing import NewEvent, StreamAppend, open_store, redact
from tests.integration.shown_bank import shown_bank
from tests.integration.waiting import wait_until


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with shown_bank(tmp_path_factory.mktemp("bank")) as (bootstrap, sections):
        board = Dashboard(Settings(parse_bootstrap(bootstrap), language(), interval_s=0.2, stores=sections))
        with TestClient(board.app, "http://127.0.0.1:8088") as client:
            wait_until(lambda: board.desk.state.snapshot is not None, "the cluster is not seen")
            client.bootstrap = bootstrap  # type: ignore[attr-defined]
            yield client


def ask(client: TestClient, path: str, status: int = 200) -> Any:
    assert client.get(path).status_code == status
    answer = client.get(f"/api{path}")
    assert answer.status_code == status
    return answer.json()


def test_all_stores_that_are_known(client: TestClient) -> None:
    rows = {row["name"]: row for row in ask(client, "/events")["rows"]}
    assert rows.keys() == {"bank", "broken", "missing", "topic:own-events"}
    assert (rows["bank"]["position"], rows["bank"]["topic"], rows["bank"]["problem"]) == (127, "bank.events", "")
    assert "there is no file" in rows["missing"]["problem"]
    assert rows["topic:own-events"]["position"] == 1


def test_streams_by_category_and_by_page(client: TestClient) -> None:
    found = ask(client, "/events/bank")
    assert [each["name"] for each in found["categories"]] == ["account", "customer"]
    assert [(row["name"], row["version"]) for row in found["rows"]] == [
        ("account-1", 4),
        ("account-13", 2),
        ("account-2", 120),
        ("customer-a/b?", 1),
    ]
    found = ask(client, "/events/bank?category=customer")
    assert [row["name"] for row in found["rows"]] == ["customer-a/b?"]
    assert ask(client, found["rows"][0]["link"])["last"] == 1
    assert [row["name"] for row in ask(client, "/events/topic:own-events")["rows"]] == ["thing-1"]
    request = ask(client, "/events/bank?correlation=r-1")["events"]
    assert len(request) == 50
    assert request[0]["stream"] == "account-1"


def test_events_with_their_causes_and_sealed_values(client: TestClient) -> None:
    found = ask(client, "/events/bank/account-1")
    assert [event["version"] for event in found["events"]] == [4, 3, 2, 1]
    opened, deposited = found["events"][-1], found["events"][-2]
    assert (opened["type"], opened["tags"], opened["headers"]) == ("opened", ["owner:ann"], {"who": "me"})
    assert json.loads(opened["data"]) == {"owner": "ann"}
    assert (deposited["causation_id"], deposited["command_id"]) == (opened["id"], "c-1")
    assert f'href="#event-{opened["id"]}"' in client.get("/events/bank/account-1").text
    found = ask(client, "/events/bank/customer-a%2Fb%3F")
    assert json.loads(found["events"][0]["data"]) == {"customer": "a", "name": "sealed"}
    assert changed(found["state_step"]) == {"name": ("", "(personal)")}
    assert "xxxx" not in client.get("/events/bank/customer-a%2Fb%3F").text


def test_a_long_stream_comes_in_pages(client: TestClient) -> None:
    found, versions = ask(client, "/events/bank/account-2"), []
    while True:
        versions += [event["version"] for event in found["events"]]
        if not found["older"]:
            break
        found = ask(client, found["older"])
    assert versions == list(range(120, 0, -1))
    assert 60 in {event["version"] for event in ask(client, "/events/bank/account-2?version=60")["events"]}


def changed(step: Any) -> dict[str, tuple[Any, Any]]:
    found = step["difference"]["columns"]
    return {one["name"]: (one["before"], one["after"]) for one in found if one["before"] != one["after"]}


def test_an_aggregate_is_stepped_through_forward_and_back(client: TestClient) -> None:
    step = ask(client, "/events/bank/account-1?version=1")["state_step"]
    assert (changed(step), step["back"]) == ({"owner": ("", "ann")}, "")
    step = ask(client, step["forward"].partition("#")[0])["state_step"]
    assert changed(step) == {"balance": ("0", "30"), "entries[0]": (None, "30"), "entries": ("[]", None)}
    step = ask(client, step["end"].partition("#")[0])["state_step"]
    assert (step["version"], step["forward"], changed(step)["balance"]) == (4, "", ("35", "42"))
    step = ask(client, step["back"].partition("#")[0])["state_step"]
    assert (step["version"], changed(step)["balance"]) == (3, ("30", "35"))
    assert "<ins>35</ins>" in client.get("/events/bank/account-1?version=3").text
    assert ask(client, "/events/topic:own-events/thing-1")["state_step"] is None


def test_what_is_wrong_is_a_sentence_and_the_events_are_there(client: TestClient) -> None:
    found = ask(client, "/events/bank/account-13?version=2")
    assert "fails with ValueError: an unlucky number" in found["state_step"]["problem"]
    assert len(found["events"]) == 2
    found = ask(client, "/events/broken/account-1")
    assert "has no aggregate 'acount'" in found["state_step"]["problem"]
    assert len(found["events"]) == 4
    assert "there is no file" in ask(client, "/events/missing")["problem"]
    for path in ("/events/nobody", "/events/bank/account-99", "/events/nobody/x-1"):
        ask(client, path, 404)
    ask(client, "/events/bank/account-1?version=-1&before=x")


def test_looking_writes_nothing(client: TestClient) -> None:
    before = ask(client, "/events")["rows"][0]["position"]
    ask(client, "/events/bank/account-2?version=100")
    assert ask(client, "/events")["rows"][0]["position"] == before


def test_asking_for_a_topic_that_is_not_there_does_not_make_it(client: TestClient) -> None:
    assert "nobody-made-it" in ask(client, "/events/topic:nobody-made-it")["problem"]
    assert "nobody-made-it" in ask(client, "/events/topic:nobody-made-it/thing-1")["problem"]
    with Cluster(parse_bootstrap(client.bootstrap)) as cluster:  # type: ignore[attr-defined]
        assert [topic.name for topic in cluster.topics()] == ["own-events"]


def test_odd_data_is_shown_and_large_data_is_cut(client: TestClient) -> None:
    store = open_store("sqlite:///bank.db")
    large = json.dumps({"values": list(range(100_000))}).encode()
    odd = [b'{"half":"\\ud800"}', b"[" * 90_000, b"\xff\xfe", large]
    store.append([StreamAppend("odd-1", [NewEvent("odd", each) for each in odd])])
    store.close()
    shown = [event["data"] for event in ask(client, "/events/bank/odd-1")["events"]]
    assert [len(each) for each in shown[:2]] == [20_000, 2]
    assert json.loads(shown[3]) == {"half": "\ud800"}
    assert "\\ud800" in client.get("/events/bank/odd-1").text


def test_a_state_that_held_what_was_redacted_is_not_kept(client: TestClient) -> None:
    assert client is not None  # the code of the bank is where this process is
    section = StoreSection("bank", "sqlite:///bank.db", "", ("event_page_bank:account",))
    stores = EventStores(Settings(parse_bootstrap("127.0.0.1:1"), language(), stores=(section,)))
    store = stores.open("bank")
    opened, deposited = NewEvent("opened", b'{"owner":"eve"}'), NewEvent("deposited", b'{"amount":3}')
    store.append([StreamAppend("account-5", [opened, deposited])])
    account = stores.aggregate_of("bank", "account-5")
    assert account is not None
    assert stores.step("bank", account, "account-5", 2).after["owner"] == "eve"
    redact(store, "account-5", 1, reason="a name")
    assert stores.step("bank", account, "account-5", 2).after["owner"] == ""
    stores.close()


def test_a_store_that_hangs_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stores, "_PATIENCE_S", 0.1)
    sections = StoreSection("hangs", "sqlite:///hangs.db"), StoreSection("works", "sqlite:///works.db")
    stores = EventStores(Settings(parse_bootstrap("127.0.0.1:1"), language(), stores=sections))
    goes_on = threading.Event()

    async def ask_both() -> tuple[list[Any], int]:
        hanging = [stores.ask("hangs", goes_on.wait) for _ in range(40)]
        return await asyncio.gather(*hanging, return_exceptions=True), await stores.ask("works", lambda: 5)

    refusals, answer = asyncio.run(ask_both())
    goes_on.set()
    stores.close()
    assert {str(each) for each in refusals} == {"it does not answer within 0 s"}
    assert answer == 5


def test_a_category_is_listed_once(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/names.db")
    for name in ("a", "a b-1", "a!", "a-1", "a-2", "b-1"):
        store.append([StreamAppend(name, [NewEvent("named", b"{}")])])
    assert event_stores.list_categories(store) == ["a", "a b", "a!", "b"]
    store.close()
