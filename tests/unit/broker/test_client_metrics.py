"""Which metrics clients are asked for, and how much of what they push is kept: pure, with time as an argument."""

import pytest

from headrace.broker.client_metrics import (
    MAX_CLIENTS,
    MAX_SERIES,
    MAX_TEXT_BYTES,
    Client,
    ClientMetrics,
    Subscription,
    is_reserved,
    parse_match,
)
from headrace.broker.errors import BrokerError
from headrace.broker.settings.setting import InvalidSetting
from headrace.protocol.schema import Uuid
from headrace.telemetry.otlp import InvalidMetrics, Point, read_metrics

SHOP = Client("shop", "librdkafka", "2.16.1", "127.0.0.1", 1234)
ALL = {"all": {"metrics": "*", "interval.ms": "1000"}}


def an_id(number: int) -> Uuid:
    return Uuid((number + 1000).to_bytes(16, "big"))


def subscribed(**settings: dict[str, str]) -> ClientMetrics:
    metrics = ClientMetrics()
    metrics.subscribe(settings)
    return metrics


def point(name: str, value: float, *, is_delta: bool = False, **attributes: str) -> Point:
    return Point(name, tuple(attributes.items()), value, is_sum=True, is_delta=is_delta)


@pytest.mark.parametrize(
    ("match", "fits"),
    [
        ("", True),
        ("client_id=shop", True),
        ("client_id=sh", False),
        ("client_id=sh.*,client_software_version=2\\..*", True),
        ("client_id=sh.*,client_software_name=java", False),
        ("client_source_port=1234,client_source_address=127.*", True),
    ],
)
def test_a_subscription_is_for_the_clients_that_it_matches(match: str, fits: bool) -> None:
    assert Subscription.of({"metrics": "*", "match": match}).fits(an_id(1), SHOP) is fits


@pytest.mark.parametrize("match", ["colour=red", "client_id", "client_id=", "client_id=a=b", "client_id=["])
def test_a_match_that_makes_no_sense_is_refused(match: str) -> None:
    with pytest.raises(InvalidSetting, match="match="):
        parse_match(match)


def test_a_client_is_asked_for_all_that_fits_at_the_shortest_interval() -> None:
    metrics = subscribed(
        a={"metrics": "org.a", "interval.ms": "5000"},
        b={"metrics": "org.b,org.a", "interval.ms": "2000"},
        c={"metrics": "org.c", "interval.ms": "100", "match": "client_id=other"},
    )
    instance = metrics.instance(an_id(1), SHOP, 0)
    assert (instance.metrics, instance.interval_ms) == (("org.a", "org.b"), 2000)


def test_a_client_is_asked_for_something_else_under_another_id() -> None:
    metrics = subscribed(**ALL)
    before = metrics.instance(an_id(1), SHOP, 0).subscription_id
    assert metrics.instance(an_id(1), SHOP, 0).subscription_id == before
    metrics.subscribe({"all": {"metrics": "org.a"}})
    assert metrics.instance(an_id(1), SHOP, 0).subscription_id != before


def test_a_client_that_comes_too_early_is_throttled_and_counted() -> None:
    instance = subscribed(**ALL).instance(an_id(1), SHOP, 10_000)
    instance.ask(10_000)
    instance.push(10_100, is_last=False)
    with pytest.raises(BrokerError):
        instance.push(10_900, is_last=False)
    instance.push(11_100, is_last=False)
    assert instance.throttled == 1
    instance.push(500, is_last=False)  # the clock was set back
    instance.ask(400)


def test_deltas_add_up_and_other_values_replace_each_other() -> None:
    metrics = subscribed(**ALL)
    instance = metrics.instance(an_id(1), SHOP, 0)
    for value in (3.0, 4.0):
        instance.take_in([point("sum", value, is_delta=True, topic="a"), point("gauge", value)])
    values = {each.name: (each.value, each.labels.get("topic")) for each in metrics.samples()}
    assert (values["sum"], values["gauge"]) == ((7.0, "a"), (4.0, None))


def test_no_client_makes_the_broker_keep_more_than_it_may() -> None:
    metrics = subscribed(**ALL)
    for number in range(MAX_CLIENTS + 10):
        metrics.instance(an_id(number), SHOP, number)
    assert len({each.labels["client_instance_id"] for each in metrics.samples()}) == MAX_CLIENTS
    many = metrics.instance(an_id(5000), SHOP, 2000)
    many.take_in(point(f"metric-{number}", 1.0) for number in range(MAX_SERIES + 7))
    assert (len(many.series), many.dropped) == (MAX_SERIES, 7)
    wide = metrics.instance(an_id(5001), SHOP, 2000)
    wide.take_in(point("x" * 1000, 1.0, number=str(number)) for number in range(100))
    assert wide.text_bytes <= MAX_TEXT_BYTES
    assert len(wide.series) + wide.dropped == 100


def test_a_client_that_is_silent_is_forgotten() -> None:
    metrics = subscribed(**ALL)
    metrics.instance(an_id(1), SHOP, 0)
    metrics.instance(an_id(2), SHOP, 61_000)
    assert len({each.labels["client_instance_id"] for each in metrics.samples()}) == 1


def test_an_invalid_subscription_that_another_version_wrote_stops_nobody() -> None:
    metrics = subscribed(bad={"metrics": "*", "match": "colour=red"}, worse={"interval.ms": "soon"}, **ALL)
    assert metrics.instance(an_id(1), SHOP, 0).metrics == ("*",)


def test_the_smallest_ids_are_nobodys() -> None:
    assert is_reserved(Uuid(bytes(16)))
    assert not is_reserved(an_id(0))


@pytest.mark.parametrize("data", [b"\xff" * 10, b"\x0a\x7f", b"not protobuf"])
def test_bytes_that_are_not_metrics_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidMetrics, match="not OTLP"):
        list(read_metrics(data))
