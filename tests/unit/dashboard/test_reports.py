"""What jobs and others write about themselves."""

import json
from dataclasses import replace

import pytest

from headrace.connect.sync.places import group_of
from headrace.dashboard.reports import (
    BATCHES,
    MAX_JOBS,
    MAX_STATUSES,
    batch_report,
    copy_status,
    position,
    with_batches,
)
from headrace.dashboard.statuses import job_state, row
from headrace.dashboard.watch import State
from headrace.model import TopicPartition
from headrace.pipelines.jobs.progress import Progress, SourceProgress
from headrace.status import PIPELINES, Status, join_statuses, last_by_name, own_status, status_by_others
from tests.unit.dashboard.dashboard_cases import NOW, group, lag, read


def written(job="revenue", batch=3):
    source = SourceProgress("orders", 10.0, 20.0, {TopicPartition("web-orders", 1): 55}, 7)
    return Progress(
        job, "out", batch, "2026-05-01T12:00:00.000Z", 120, 10.0, 20.0, 300, "2026-05-01T11:59:00.000Z", 5, 640, 2,
        (source,), 90,
    )  # fmt: skip


def test_what_a_job_writes_is_what_is_read():
    report = batch_report(read("revenue", json.dumps(written().as_json())))
    assert (report.job, report.batch, report.rows, report.batch_ms) == ("revenue", 3, 120, 300)
    assert (report.state_rows, report.state_bytes, report.late_rows) == (5, 640, 2)
    assert (report.lag_records, report.lag_ms) == (7, 90)
    assert report.places == {TopicPartition("web-orders", 1): 55}
    assert report.started_ms == 1_777_636_800_000


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "{",
        "[]",
        "{}",
        '{"job": 1}',
        '{"job": "a", "batch": "x"}',
        '{"job":"a","batch":1,"sources":[1]}',
        b"\xff",
    ],
)
def test_what_is_no_report_is_left_out(value):
    assert batch_report(read("revenue", value)) is None


def test_reports_are_bounded_by_job_and_in_all():
    news = [read("a", json.dumps(written("a", batch).as_json())) for batch in range(BATCHES + 30)]
    jobs = with_batches({}, news)
    assert [report.batch for report in jobs["a", "out"]] == list(range(30, BATCHES + 30))
    many = with_batches(jobs, [read("x", json.dumps(written(f"job-{number}").as_json())) for number in range(MAX_JOBS)])
    assert len(many) == MAX_JOBS
    assert ("a", "out") not in many


def test_the_last_status_counts_and_a_tombstone_takes_it_away():
    known = last_by_name({}, [read("shop", '{"state": "snapshot"}'), read("shop", '{"state": "running"}')], own_status)
    assert known["shop"].text("state") == "running"
    assert last_by_name(known, [read("shop", None)], own_status) == {}
    many = last_by_name({}, [read(f"s{number}", "{}") for number in range(MAX_STATUSES + 5)], own_status, MAX_STATUSES)
    assert len(many) == MAX_STATUSES


def test_a_secret_in_a_status_is_not_told():
    said = own_status(read("shop", '{"database_password": "hunter2", "slot": "s"}'))
    assert said.text("database_password") == "hidden"
    assert "hunter2" not in json.dumps(row(said, NOW))


def test_a_row_knows_what_was_not_told():
    shown = row(
        own_status(read("shop", '{"snapshot_done": 5, "snapshot_total": 10, "tables": ["a", "b"], "wal": 7}')), NOW
    )
    assert (shown["snapshot_share"], shown["tables"], shown["lag_ms"]) == (0.5, ["a", "b"], None)
    assert (shown["state"], shown["others"]) == ("running", {"wal": "7"})
    assert row(own_status(read("shop", "{}", at_ms=NOW - 120_000)), NOW)["state"] == "silent"


def test_a_stored_position_tells_of_a_capture():
    key = '{"connector": "shop"}'
    said = position(read(key, '{"lsn": "0/1A2B", "count": 3, "snapshot": {"table": "orders"}}'))
    assert (said.name, said.text("position"), said.text("state")) == ("shop", "lsn 0/1A2B, count 3", "snapshot")
    assert position(read(key, '{"lsn": "0/1A2B"}')).text("state") == ""
    known = last_by_name({}, [read(key, '{"lsn": "0/1"}')], position)
    assert last_by_name(known, [read(key, None)], position) == {}
    assert position(read('{"other": 1}', "{}")) is None


def test_a_copy_shows_its_lag_and_says_how_it_stands():
    said = copy_status(group(group_of("cache"), [lag(0, 40), lag(1, 90)], members=0, state="Empty"))
    assert (said.name, said.number("lag_records"), said.text("source")) == ("cache", 70, "orders")
    assert copy_status(group("billing")) is None
    told = own_status(read("cache", '{"state": "waiting", "waiting": "for its target", "dead_letters": 2}'))
    checked = status_by_others(
        read('{"connector":"cache","about":"verification"}', '{"verified_ms": 5, "differences": 0}')
    )
    assert own_status(read('{"connector":"cache","about":"verification"}', "{}")) is None
    assert status_by_others(read("cache", "{}")) is None
    (whole,) = join_statuses({"cache": told}, {"cache": checked}, {"cache": said}).values()
    shown = row(whole, NOW)
    assert (shown["state"], shown["waiting"], shown["lag_records"]) == ("waiting", "for its target", 70)
    assert (shown["dead_letters"], shown["verified_ms"], shown["differences"]) == (2, 5, 0)
    assert row(whole, NOW + 200_000)["state"] == "silent"  # a comparison does not mean that it runs


def test_tellings_are_join_statuses():
    one = {"shop": Status("shop", {"position": "lsn 1", "state": "snapshot"}, NOW)}
    other = {"shop": Status("shop", {"slot": "s", "state": ""}, NOW - 5), "stock": Status("stock", {}, NOW)}
    both = join_statuses(one, other)
    assert both["shop"] == Status("shop", {"position": "lsn 1", "state": "snapshot", "slot": "s"}, NOW)
    assert both.keys() == {"shop", "stock"}


def test_a_position_is_shown_in_words():
    held = Status("shop", {"position": {"lsn": "0/1A2B", "commit_lsn": "0/1A2C", "tables": {"a": [1]}}}, NOW)
    assert row(held, NOW)["position"] == "lsn 0/1A2B, commit lsn 0/1A2C"


def test_a_job_that_reported_how_it_ended_is_believed():
    last = batch_report(read("revenue", json.dumps(written().as_json()), at_ms=NOW - 1000))
    for said, at_ms, shown in (
        ("failed", NOW, "failed"), ("waiting", NOW, "waiting"), ("stopped", NOW - 500, "stopped"),
        ("stopped", NOW - 5000, "running"),  # it was started again, and has had a batch since
    ):  # fmt: skip
        known = {PIPELINES: {"revenue": Status.of("revenue", "pipeline", said)}}
        known[PIPELINES]["revenue"] = replace(known[PIPELINES]["revenue"], at_ms=at_ms)
        assert job_state(last, None, State(at_ms=NOW, statuses=known)) == shown
    silent = replace(Status.of("revenue", "pipeline", "running"), at_ms=NOW)
    later = State(at_ms=NOW + 200_000, statuses={PIPELINES: {"revenue": silent}})
    assert (job_state(last, 5, later), job_state(last, 0, later)) == ("silent", "ended")
