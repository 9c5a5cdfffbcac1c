"""What a dashboard tells Prometheus and probes: the state that it saw last."""

import time

from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from headrace.dashboard.metrics import FAMILIES
from headrace.dashboard.watch import Problem, State
from headrace.status import DERIVED, PIPELINES, Status
from tests.unit.dashboard.dashboard_cases import NOW, TOKEN, dashboard, group, lag, queue, snapshot, state


def client(found, **access):
    return TestClient(dashboard(found, **access).app, "http://127.0.0.1:8088")


def numbers(found):
    answer = client(found).get("/metrics")
    assert answer.status_code == 200
    families = list(text_string_to_metric_families(answer.text))
    declared = {family.name.removesuffix("_total") for family in FAMILIES}
    assert {family.name for family in families} <= declared
    return {(each.name, *sorted(each.labels.items())): each.value for family in families for each in family.samples}


def test_the_state_of_a_stack_as_numbers():
    now_ms = int(time.time() * 1000)
    statuses = {
        DERIVED: {"cache": Status("cache", {"state": "failed", "lag_records": 7, "lag_ms": 1500}, now_ms)},
        PIPELINES: {"revenue": Status("revenue", {"state": "running", "dead_letters": 2}, now_ms)},
    }
    groups = [group(partitions=[lag(0, 40, 100), lag(1, 190, 200)])]
    found = numbers(state(snapshot(groups=groups), statuses=statuses))
    assert found["headrace_cluster_seen",] == 1
    assert found["headrace_topic_size_bytes", ("topic", "orders")] == 3000
    assert found["headrace_topic_offsets_total", ("topic", "orders")] == 300
    assert found["headrace_group_lag_records", ("group", "billing"), ("topic", "orders")] == 70
    assert found["headrace_part_state", ("kind", "derived"), ("name", "cache"), ("state", "failed")] == 1
    assert found["headrace_part_lag_records", ("kind", "derived"), ("name", "cache")] == 7
    assert found["headrace_part_lag_seconds", ("kind", "derived"), ("name", "cache")] == 1.5
    assert found["headrace_part_dead_letters", ("kind", "pipeline"), ("name", "revenue")] == 2


def test_queues_as_numbers():
    found = numbers(
        state(snapshot(queues=[queue(), queue("on-kafka", in_flight=None, redeliveries=None, letters=None)]))
    )
    ours, kafkas = ((("group", "mailers"), ("topic", name)) for name in ("emails", "on-kafka"))
    assert found["headrace_share_in_flight_records", *ours] == 2
    assert found["headrace_share_redeliveries_total", *ours] == 3
    assert found["headrace_queue_oldest_seconds", *ours] == found["headrace_queue_oldest_seconds", *kafkas] == 60
    assert found["headrace_queue_dead_letters", *ours] == 1
    assert not any(
        name.startswith(("headrace_share", "headrace_queue_dead")) for name, *labels in found if kafkas == (*labels,)
    )


def test_a_dashboard_is_ready_when_it_sees_the_cluster():
    away = State(1, NOW, problem=Problem("cannot reach a broker at 127.0.0.1:1", NOW, is_away=True))
    for found, status in ((State(), 503), (away, 503), (state(), 200)):
        assert client(found).get("/readyz").status_code == status
        assert client(found).get("/healthz").status_code == 200
    assert "cannot reach a broker" in client(away).get("/readyz").text
    assert numbers(away) == {("headrace_cluster_seen",): 0}


def test_probes_need_no_login_and_numbers_do():
    guarded = client(state(), token=TOKEN)
    assert guarded.get("/readyz").status_code == guarded.get("/healthz").status_code == 200
    assert guarded.get("/metrics").status_code == 401
    assert guarded.get("/metrics", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
