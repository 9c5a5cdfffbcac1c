"""What a person is told."""

import json

from headrace.client.lag import Retention
from headrace.connect.sync.places import group_of
from headrace.dashboard.alerts import Known, Severity, find_alerts, is_growing
from headrace.dashboard.history import DEPTH, History, Point
from headrace.dashboard.reports import BatchReport, with_batches
from headrace.model import TopicPartition
from headrace.status import CAPTURES, DERIVED, GATEWAYS, Status
from tests.unit.dashboard.dashboard_cases import NOW, group, lag, queue, read, snapshot, topic


def alerts(found=None, history=None, jobs=None, statuses=None, before=None):
    known = Known(NOW, found or snapshot(), history or History(), jobs or {}, statuses or {})
    return find_alerts(known, before or {})


def keys(*args, **others):
    return [alert.key for alert in alerts(*args, **others)]


def test_all_is_well():
    assert keys() == []


def test_partitions_without_a_leader_come_before_those_with_too_few_copies():
    lost = topic("lost", leader=-1)
    thin = topic("thin", replicas=(1, 2, 3), in_sync=(1, 2))
    found = alerts(snapshot(topics=[thin, lost]))
    assert [(alert.key, alert.severity) for alert in found] == [
        ("leader:lost", Severity.DANGER), ("replicas:thin", Severity.WARNING),
    ]  # fmt: skip
    assert found[0].sentence.startswith("2 partitions (0, 1) have no leader")


def test_a_reader_close_to_losing_records_and_one_that_lost_some():
    near = lag(next_ms=NOW - 23 * 3_600_000, retention=Retention(ms=24 * 3_600_000))
    lost = lag(committed=5, start=40)
    found = alerts(snapshot(groups=[group("slow", [near]), group("late", [lost])]))
    assert [alert.key for alert in found] == ["loss:slow", "removed:late"]
    assert "in 1 h retention.ms starts to delete" in found[0].sentence
    assert "35 records were deleted" in found[1].sentence


def test_nobody_reads_and_a_place_behind_the_end():
    found = snapshot(groups=[group("idle", members=0, state="Empty"), group("ahead", [lag(committed=500)])])
    assert keys(found) == ["beyond:ahead", "unread:idle"]


def test_a_copy_reads_without_members_and_that_is_no_news():
    assert keys(snapshot(groups=[group(group_of("cache"), members=0, state="Empty")])) == []
    retrying = Status("cache", {"state": "retrying", "problem": "the target is down"}, NOW)
    (alert,) = alerts(statuses={DERIVED: {"cache": retrying}})
    assert (alert.severity, alert.sentence) == (Severity.WARNING, "the target is down")


def growing(step, start=1000):
    return tuple(Point(NOW + turn * 2000, start + turn * step) for turn in range(20))


def test_a_lag_that_grows():
    assert is_growing(growing(50))
    assert not is_growing(growing(0))
    assert not is_growing(growing(-20))
    assert not is_growing(growing(50)[:4])
    assert not is_growing(growing(0.5, start=10)), "a handful of records is no lag"
    assert keys(history=History(group_lags={"billing": growing(50)})) == ["growing:billing"]


def batch(number, at_ms, *, input_rate=10.0, processing_rate=100.0, place=300):
    return BatchReport(
        "revenue", "out", number, at_ms, None, 10, input_rate, processing_rate, 100, None, 0, 0, 0, None, None,
        {TopicPartition("orders", 1): place},
    )  # fmt: skip


def test_a_queue_that_grows_one_whose_messages_wait_and_one_with_dead_letters():
    history = History(queues={("emails", "mailers"): {DEPTH: growing(50)}})
    assert keys(snapshot(queues=[queue(letters=0)]), history) == ["depth:emails:mailers"]
    (old,) = alerts(snapshot(queues=[queue(oldest_ms=NOW - 2 * 3_600_000, letters=None)]))
    assert (old.key, old.severity, old.link) == ("oldest:emails:mailers", Severity.WARNING, "/queues/emails")
    assert "has waited for 2 h" in old.sentence
    (dead,) = alerts(snapshot(queues=[queue()]))
    assert dead.key == "letters:queue:dlq.emails"
    assert dead.sentence.startswith("1 message is a dead letter in dlq.emails: see headrace queue redrive emails")
    (many,) = alerts(snapshot(queues=[queue(letters=20_000, is_exact=False)]))
    assert many.sentence.startswith("up to 20,000 messages are dead letters")


def test_nobody_works_on_a_queue_and_that_is_told_once():
    """As of any group without members; that its messages are old then is no news."""
    empty = queue(members=0, oldest_ms=NOW - 2 * 3_600_000, letters=None)
    workers = group("mailers", [lag(topic="emails")], members=0, state="Empty", kind="share")
    assert keys(snapshot(groups=[workers], queues=[empty])) == ["unread:mailers"]
    history = History(group_lags={"mailers": growing(50)})
    assert keys(snapshot(groups=[group("mailers", kind="share")]), history) == []


def test_a_job_that_is_silent_though_records_wait():
    silent = (batch(1, NOW - 120_000, place=150),)
    assert keys(jobs={("revenue", "out"): silent}) == ["silent:revenue.out"]
    assert keys(jobs={("revenue", "out"): (batch(1, NOW - 120_000, place=200),)}) == [], "it has read all: it ended"


def test_a_job_that_takes_in_more_than_it_processes():
    slow = tuple(batch(number, NOW - 1000, input_rate=200.0) for number in range(6))
    assert keys(jobs={("revenue", "out"): slow}) == ["slow:revenue.out"]


def test_what_captures_and_copies_report():
    shop = Status("shop", {"slot_lag_bytes": 900, "slot_lag_limit_bytes": 1000}, NOW)
    broken = Status("stock", {"state": "failed", "problem": "the slot is gone"}, NOW)
    index = Status("index", {"differences": 3, "verified_ms": 1_700_000_000_000}, NOW)
    found = alerts(statuses={CAPTURES: {"shop": shop, "stock": broken}, DERIVED: {"index": index}})
    assert {alert.key: alert.severity for alert in found} == {
        "slot:shop": Severity.DANGER,
        f"failed:{CAPTURES}:stock": Severity.DANGER,
        f"differs:{DERIVED}:index": Severity.WARNING,
    }
    (differs,) = (alert.sentence for alert in found if alert.subject == "index")
    assert differs == "differs from its source in 3 rows, as verified at 2023-11-14 22:13:20 UTC."


def test_an_alert_keeps_its_beginning():
    found = snapshot(groups=[group("idle", members=0, state="Empty")])
    first = alerts(found)
    known = Known(NOW + 5000, found, History(), {}, {})
    (later,) = find_alerts(known, {alert.key: alert for alert in first})
    assert later.since_ms == NOW


def test_a_pattern_that_is_not_matched_and_one_that_dropped_some():
    pattern = {"name": "tried", "matches": 3}
    failed = pattern | {"name": "odd", "state": "failed", "problem": "unknown column 'x'\n  x > 1\n  ^"}
    report = {"job": "fraud", "batch": 1, "patterns": [pattern, pattern | {"name": "many", "dropped": 1}, failed]}
    jobs = with_batches({}, [read("fraud", json.dumps(report))])
    found = {alert.key: alert for alert in alerts(snapshot(groups=[]), jobs=jobs)}
    assert set(found) == {"cap:fraud:many", "pattern:fraud:odd"}
    assert found["cap:fraud:many"].severity is Severity.WARNING
    assert "dropped 1 partial match at the cap" in found["cap:fraud:many"].sentence
    assert found["pattern:fraud:odd"].severity is Severity.DANGER
    assert found["pattern:fraud:odd"].sentence == "is not matched: unknown column 'x'."
    assert found["pattern:fraud:odd"].link == "/patterns/fraud%3Aodd"


def test_what_a_gateway_dropped_or_could_not_read_is_told():
    said = Status.of("metrics", "statsd", "running", dropped=12, refused=3)
    fine = Status.of("access", "file", "running", dropped=0)
    found = {alert.key: alert for alert in alerts(statuses={GATEWAYS: {"metrics": said, "access": fine}})}
    assert {key: alert.severity for key, alert in found.items()} == {
        "dropped:metrics": Severity.WARNING,
        "refused:metrics": Severity.NOTE,
    }
    assert "12 records" in found["dropped:metrics"].sentence
