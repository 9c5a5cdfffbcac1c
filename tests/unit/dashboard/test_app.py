"""Every page from a known state: full, empty, before the first look, and without a broker."""

import json
from dataclasses import replace

import pytest
from starlette.testclient import TestClient

from headrace.cep import Pattern
from headrace.cep.pictures.diagram import as_json
from headrace.client.resets import Move
from headrace.dashboard.alerts import Alert, Severity
from headrace.dashboard.errors import BadForm
from headrace.dashboard.pages import PAGES
from headrace.dashboard.pages.groups import pack, unpack
from headrace.dashboard.pages.records import new_record, row
from headrace.dashboard.reports import with_batches
from headrace.dashboard.watch import Problem, State
from headrace.model import TopicPartition
from headrace.status import EVENTS, Status
from tests.unit.dashboard.dashboard_cases import NOW, dashboard, group, lag, queue, read, snapshot, state, topic

PATHS = ("/", "/topics", "/topics/orders", "/topics/orders/records", "/groups", "/groups/billing", "/queues",
         "/queues/emails", "/events", "/pipelines", "/pipelines/revenue", "/patterns",
         "/patterns/revenue:fraud", "/searches", "/gateways", "/changes", "/derived", "/views",
         "/alerts")  # fmt: skip
PROGRESS = {"job": "revenue", "batch": 4, "rows": 10, "watermark": "2026-05-01T11:59:00.000Z", "late_rows": 3}
FRAUD = Pattern.begin("small", "amount < 10").followed_by("big", "amount > 1000").within("1 minute")
PATTERN = {
    "name": "fraud", "version": None, "state": "running", "problem": None, "matches": 7, "timed_out": 3, "dropped": 0,
    "partial": 12, "matches_in_batch": 2,
    "keys": [{"key": "c7 · Oslo", "partial": 9}, {"key": "c8 · <b>", "partial": 3}],
    "diagram": as_json(FRAUD.compile()),
}  # fmt: skip


def client(found):
    return TestClient(dashboard(found).app, "http://127.0.0.1:8088")


def full():
    jobs = with_batches(
        {},
        [
            read("revenue", json.dumps(PROGRESS | {"batch": batch, "patterns": [PATTERN]}), at_ms=NOW)
            for batch in range(4)
        ],
    )
    return state(
        snapshot(queues=[queue()]),
        jobs=jobs,
        alerts=(Alert("a", Severity.DANGER, "billing", "loses records.", "/groups/billing", NOW),),
    )


@pytest.mark.parametrize("path", PATHS)
def test_a_page_shows_what_is_known(path):
    answer = client(full()).get(path)
    assert answer.status_code == 200
    assert '<main id="main"' in answer.text
    assert answer.text.count("<h1") == 1


@pytest.mark.parametrize("path", PATHS)
def test_a_page_before_the_first_look_and_without_a_broker(path):
    assert "Connecting to the cluster" in client(State()).get(path).text
    away = State(1, NOW, problem=Problem("cannot reach a broker at 127.0.0.1:1", NOW, is_away=True))
    answer = client(away).get(path)
    assert answer.status_code == 503
    assert "No broker is reachable" in answer.text
    assert "Cannot reach a broker at 127.0.0.1:1." in answer.text


@pytest.mark.parametrize("path", PATHS)
def test_a_page_keeps_what_was_seen_while_the_broker_is_away(path):
    answer = client(replace(full(), problem=Problem("gone", NOW, is_away=True))).get(path)
    assert answer.status_code == 200
    assert "The broker is unreachable." in answer.text


def test_a_danger_is_told_on_every_page():
    for path in PATHS:
        assert "loses records." in client(full()).get(path).text


@pytest.mark.parametrize(
    ("path", "words"),
    [("/", "No topics yet"), ("/topics", "No topics yet"), ("/groups", "No groups yet"),
     ("/pipelines", "headrace pipeline run"), ("/patterns", "No patterns yet"), ("/searches", "No searches yet"),
     ("/gateways", "No gateways yet"),
     ("/changes", "No captures yet"), ("/derived", "No derived systems yet"),
     ("/views", "No views yet"), ("/alerts", "No problems"), ("/topics?q=zzz", "No topic matches"),
     ("/groups?q=zzz", "No group matches"), ("/queues", "No queues yet"), ("/queues?q=zzz", "No queue matches")],
)  # fmt: skip
def test_an_empty_page_says_what_to_do(path, words):
    found = snapshot() if "q=" in path else snapshot(topics=[], groups=[])
    assert words in client(state(found)).get(path).text


@pytest.mark.parametrize(
    "path",
    [
        "/topics/gone",
        "/groups/gone",
        "/queues/gone",
        "/pipelines/gone",
        "/patterns/gone",
        "/topics/gone/records",
        "/nowhere",
    ],
)
def test_what_is_not_there_is_not_found(path):
    answer = client(full()).get(path)
    assert answer.status_code == 404
    assert "There is no" in answer.text or "No job" in answer.text or "No pattern" in answer.text


@pytest.mark.parametrize("path", PATHS)
def test_every_page_is_json_too(path):
    body = client(full()).get("/api" + (path if path != "/" else "/overview")).json()
    assert body["at_ms"] == NOW
    assert body["problem"] is None
    assert len(body) > 2


def test_json_tells_what_the_page_tells():
    assert client(full()).get("/api/groups").json()["rows"][0]["lag"] == 60
    assert client(full()).get("/api/topics").json()["rows"][0]["records"] == 300


def test_a_queue_with_nobody_and_one_on_a_kafka():
    lone = queue("lone")
    found = state(snapshot(queues=[replace(lone, groups=()), queue("kafkas", in_flight=None, redeliveries=None)]))
    page = client(found).get("/queues").text
    assert "no group yet" in page
    assert "kafkas" in page
    assert "Messages wait until" in client(found).get("/queues/lone").text
    (row,) = client(found).get("/api/queues/kafkas").json()["rows"]
    assert (row["depth"], row["age_ms"], row["in_flight"], row["letters"]["number"]) == (7, 60_000, None, 1)


def test_what_others_wrote_is_escaped():
    bad = "<script>alert(1)</script>"
    found = snapshot(topics=[topic()], groups=[group(bad), group("x", problem=bad)])
    for path in ("/", "/groups", f"/groups/{bad.replace('/', '%2F')}", "/topics/orders", f"/topics?q={bad}"):
        answer = client(state(found)).get(path)
        assert answer.status_code == 200
        assert "<script>alert" not in answer.text
    rows = dashboard()._templates.part("record_rows.html", {"rows": [row(read(bad, '{"a": "' + bad + '"}'))]})
    assert "<script>" not in rows
    assert "&lt;script&gt;" in rows


def test_a_filter_and_an_order():
    found = state(
        snapshot(topics=[topic("a", (5,)), topic("b", (50,)), topic("__c", (500,), internal=True)], groups=[])
    )
    names = lambda query: [row["name"] for row in client(found).get(f"/api/topics?{query}").json()["rows"]]  # noqa: E731
    assert names("") == ["a", "b"]
    assert names("sort=records&internal=1") == ["__c", "b", "a"]
    assert names("q=B") == ["b"]
    assert names("sort=nonsense") == ["a", "b"]


def test_live_parts_are_the_blocks_that_say_so():
    made = dashboard(full())
    page = next(page for page in PAGES if page.path == "/topics")
    parts = made._templates.live_parts(page, made.desk.state, {
        "rows": [], "found": 0, "hidden": 0, "is_filtered": False, "q": "", "sort": "name", "with_internal": False,
    })  # fmt: skip
    assert parts.keys() == {"bell", "banner", "main"}
    assert "No topics yet" in parts["main"]


def test_pages_do_not_share_a_path_or_a_key():
    assert len({page.path for page in PAGES}) == len(PAGES)
    keys = [page.menu.shortcut for page in PAGES if page.menu]
    assert len(set(keys)) == len(keys)


def test_a_value_that_is_long_is_cut_and_says_so():
    shown = row(read("k", "x" * 50_000))
    assert len(shown["value"]) == 240
    assert len(shown["whole"]) == 20_000
    assert shown["is_cut"]
    assert row(read(None, None))["value"] is None


def test_records_by_hand():
    made = new_record({"key": "k", "value": "a\r\nb", "headers": "trace: 1\n\n x : y ", "partition": " 2 "}, NOW)
    assert (made.key, made.value, made.partition, made.timestamp) == (b"k", b"a\nb", 2, NOW)
    assert [(header.key, header.value) for header in made.headers] == [("trace", b"1"), ("x", b"y")]
    assert new_record({"key": "k", "tombstone": "1", "value": "x"}, NOW).value is None


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ({"partition": "x"}, "not a number"),
        ({"headers": "nonsense"}, "not name: value"),
        ({"tombstone": "1"}, "needs a key"),
    ],
)
def test_a_mistake_in_a_record_by_hand(form, reason):
    with pytest.raises(BadForm, match=reason):
        new_record(form, NOW)


def test_what_is_moved_is_what_was_shown():
    moves = [Move(TopicPartition("orders", 1), 5, 9)]
    assert [(move.partition, move.new) for move in unpack(pack(moves))] == [(TopicPartition("orders", 1), 9)]
    for nonsense in ("", "{}", "[1]", '[["a"]]', '[["a", "b", "c"]]'):
        if nonsense != "{}":
            with pytest.raises(BadForm):
                unpack(nonsense)


def test_a_group_that_lost_records_and_one_that_never_said_where_it_is():
    found = snapshot(groups=[group(partitions=[lag(0, 5, start=40), lag(1, None)])])
    html = client(state(found)).get("/groups/billing").text
    assert "lost 35" in html
    assert "no offset yet" in html


def test_projections_and_processes_are_on_the_page_of_events():
    said = Status("bank.balances", {"kind": "projection", "state": "failed", "position": 7, "lag_records": 3}, NOW)
    page = client(replace(full(), statuses={EVENTS: {said.name: said}})).get("/events").text
    assert "bank.<wbr>balances" in page or "bank.balances" in page
    assert "failed" in page


def patterns_of(*patterns):
    jobs = with_batches({}, [read("revenue", json.dumps(PROGRESS | {"patterns": patterns}), at_ms=NOW)])
    return client(state(snapshot(), jobs=jobs))


def test_a_pattern_shows_its_automaton_its_counts_and_its_keys():
    text = client(full()).get("/patterns/revenue:fraud").text
    assert '<svg xmlns="http://www.w3.org/2000/svg" class="hp"' in text
    assert "amount &gt; 1000" in text
    assert "<style" not in text, "a page may not have styles of its own"
    assert "c7 · Oslo" in text
    assert "c8 · &lt;b&gt;" in text
    body = client(full()).get("/api/patterns/revenue:fraud").json()
    assert (body["pattern"]["matches"], body["pattern"]["partial"], body["run_state"]) == (7, 12, "running")
    assert ".hp-box" in client(full()).get("/static/pictures.css").text


def test_a_pattern_that_is_paused_dropped_some_or_does_not_compile():
    failed = PATTERN | {"state": "failed", "problem": "unknown column 'x'\n  x > 1\n  ^", "diagram": None, "keys": []}
    shown = patterns_of(
        failed | {"name": "a"}, PATTERN | {"name": "b", "state": "paused", "dropped": 5, "version": "3"}
    )
    listed = shown.get("/patterns").text
    assert "paused" in listed
    assert "unknown column" in listed
    text = shown.get("/patterns/revenue:a").text
    assert "This pattern is not matched." in text
    assert "  ^" in text
    assert "There is none until the pattern is mended." in text
    assert "some matches may be missing" in shown.get("/patterns/revenue:b").text


def test_the_only_pattern_of_a_job_has_its_name():
    assert patterns_of(PATTERN | {"name": ""}).get("/patterns/revenue").status_code == 200


@pytest.mark.parametrize("bad", [3, {"matches": "many"}, {"diagram": {"boxes": 1}}, {"keys": [{"key": 1}]}])
def test_a_report_of_no_known_shape_is_left_out(bad):
    assert "No patterns yet" in patterns_of(bad).get("/patterns").text
