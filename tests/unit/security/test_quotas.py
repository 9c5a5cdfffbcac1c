"""Which quota applies to a client, what can be a quota, and how long somebody waits who used too much."""

from __future__ import annotations

import math

import pytest

from headrace.security.quotas import (
    CONNECTION_RATE,
    FETCH_RATE,
    IDLE_MS,
    MAX_THROTTLE_MS,
    MUTATION_RATE,
    PRODUCE_RATE,
    REQUEST_PERCENTAGE,
    Entity,
    InvalidQuota,
    Ledger,
    Quotas,
    check_quota,
    match_entities,
    parse_entity,
)

# From the most specific to the least, each with whose use counts towards it.
LEVELS = [
    (Entity("alice", "app"), Entity("alice", "app")),
    (Entity("alice", None), Entity("alice", "app")),
    (Entity("alice"), Entity("alice")),
    (Entity(None, "app"), Entity("alice", "app")),
    (Entity(None, None), Entity("alice", "app")),
    (Entity(None), Entity("alice")),
    (Entity(client_id="app"), Entity(client_id="app")),
    (Entity(client_id=None), Entity(client_id="app")),
]


def _quotas(**values: dict[Entity, float]) -> Quotas:
    quotas = Quotas()
    for key, by_entity in values.items():
        for entity, value in by_entity.items():
            quotas.set(entity, {**quotas.of(entity), key: value})
    return quotas


def _ledger(key: str, entity: Entity, value: float, **options: int) -> Ledger:
    quotas = _quotas(**{key: {entity: value}})
    return Ledger(lambda: quotas, **options)


def test_the_most_specific_quota_applies() -> None:
    quotas = _quotas(producer_byte_rate={entity: rank + 1 for rank, (entity, _) in enumerate(LEVELS)})
    for rank, (entity, counted) in enumerate(LEVELS):
        assert quotas.find(PRODUCE_RATE, "alice", "app") == (rank + 1, counted)
        assert quotas.find(FETCH_RATE, "alice", "app") is None
        quotas.set(entity, {})
    assert quotas.find(PRODUCE_RATE, "alice", "app") is None
    assert not quotas


def test_a_client_without_a_name_is_only_a_user() -> None:
    quotas = _quotas(producer_byte_rate={Entity(None, None): 1, Entity(client_id=None): 2, Entity(None): 3})
    assert quotas.find(PRODUCE_RATE, "alice", "") == (3, Entity("alice"))
    quotas.set(Entity(None), {})
    assert quotas.find(PRODUCE_RATE, "alice", "") is None


def test_one_quota_does_not_hide_another_of_a_less_specific_entity() -> None:
    quotas = _quotas(producer_byte_rate={Entity("alice"): 1}, consumer_byte_rate={Entity(None): 2})
    assert quotas.find(FETCH_RATE, "alice", "app") == (2, Entity("alice"))


@pytest.mark.parametrize(
    ("parts", "flaw"),
    [
        ({}, "empty client quota entity"),
        ({"user": ""}, "Empty user"),
        ({"group": "g"}, "entity type: group"),
        ({"ip": "127.0.0.1", "user": "alice"}, "stands alone"),
        ({"ip": "no such address"}, "not an IP address"),
    ],
)
def test_entities_that_cannot_be(parts: dict[str, str | None], flaw: str) -> None:
    with pytest.raises(InvalidQuota, match=flaw):
        parse_entity(parts)


def test_addresses_have_one_name() -> None:
    assert parse_entity({"ip": "0:0:0:0:0:0:0:1"}) == Entity(ip="::1")
    assert parse_entity({"ip": None}) == Entity(ip=None)


@pytest.mark.parametrize(
    ("entity", "key", "value", "flaw"),
    [
        (Entity("alice"), CONNECTION_RATE, 1, "Invalid configuration key"),
        (Entity(ip=None), PRODUCE_RATE, 1, "Invalid configuration key"),
        (Entity("alice"), PRODUCE_RATE, 0, "greater than 0"),
        (Entity("alice"), REQUEST_PERCENTAGE, math.nan, "greater than 0"),
        (Entity("alice"), PRODUCE_RATE, 1.5, "fractional"),
        (Entity("alice"), PRODUCE_RATE, 1e19, "too large"),
        (Entity(ip=None), CONNECTION_RATE, 2**31, "too large"),
    ],
)
def test_quotas_that_cannot_be(entity: Entity, key: str, value: float, flaw: str) -> None:
    with pytest.raises(InvalidQuota, match=flaw):
        check_quota(entity, key, value)


def test_a_percentage_may_be_a_fraction() -> None:
    check_quota(Entity("alice"), REQUEST_PERCENTAGE, 0.5)
    check_quota(Entity("alice"), PRODUCE_RATE, 2**53)


def test_filters() -> None:
    quotas = _quotas(
        producer_byte_rate={Entity("alice"): 1, Entity("alice", "app"): 2, Entity(None): 3, Entity(client_id="app"): 4}
    )

    def found(exact: dict[str, str | None], any_of: tuple[str, ...] = (), *, strict: bool = False) -> list[float]:
        return sorted(values[PRODUCE_RATE] for _, values in match_entities(quotas, exact, any_of, strict=strict))

    assert found({}) == [1, 2, 3, 4]
    assert found({}, strict=True) == []
    assert found({"user": "alice"}) == [1, 2]
    assert found({"user": "alice"}, strict=True) == [1]
    assert found({"user": None}) == [3]
    assert found({}, ("client-id",)) == [2, 4]
    assert found({"client-id": "app"}, ("user",), strict=True) == [2]


def test_the_wait_is_as_long_as_kafka_computes_it() -> None:
    """For a burst: (rate over ten seconds - quota) / quota x ten seconds."""
    ledger = _ledger(PRODUCE_RATE, Entity("alice"), 100)
    assert ledger.charge(PRODUCE_RATE, "alice", "app", 1000, 0) == 0  # 100 a second for ten seconds
    assert ledger.charge(PRODUCE_RATE, "alice", "app", 500, 0) == 5000  # 150 a second: half of that time
    assert ledger.charge(PRODUCE_RATE, "alice", "app", 100, 5000) == 1000  # what was waited for is over
    assert ledger.charge(PRODUCE_RATE, "alice", "app", 1000, 60_000) == 0


def test_a_burst_is_not_forgotten_while_it_is_waited_for() -> None:
    ledger = _ledger(PRODUCE_RATE, Entity("alice"), 100)
    assert ledger.charge(PRODUCE_RATE, "alice", "app", 2100, 0) == 11_000
    assert ledger.charge(PRODUCE_RATE, "alice", "app", 2100, 11_000) == 21_000


def test_a_wait_fits_the_wire() -> None:
    assert _ledger(PRODUCE_RATE, Entity("alice"), 1).charge(PRODUCE_RATE, "alice", "app", 1e12, 0) == MAX_THROTTLE_MS


def test_a_request_that_took_long_is_waited_for_a_second_at_most() -> None:
    ledger = _ledger(REQUEST_PERCENTAGE, Entity(None), 1)
    assert ledger.charge(REQUEST_PERCENTAGE, "alice", "app", 9, 0) == 0
    assert ledger.charge(REQUEST_PERCENTAGE, "alice", "app", 500, 0) == 1000


def test_what_is_not_sent_is_not_counted() -> None:
    ledger = _ledger(FETCH_RATE, Entity("alice"), 100)
    assert ledger.charge_fetch("alice", "app", 900, 0) == (True, 0)
    assert ledger.charge_fetch("alice", "app", 600, 0) == (False, 5000)
    assert ledger.charge_fetch("alice", "app", 600, 0) == (False, 5000)
    assert ledger.charge_fetch("alice", "app", 100, 0) == (True, 0)
    assert ledger.charge_fetch("bob", "app", 10**9, 0) == (True, 0)


def test_a_batch_beyond_the_quota_is_sent_when_nothing_else_was() -> None:
    ledger = _ledger(FETCH_RATE, Entity("alice"), 100)
    assert ledger.fetch_limit("alice", "app") == 1000
    assert ledger.charge_fetch("alice", "app", 5000, 0) == (True, 40_000)
    assert ledger.charge_fetch("alice", "app", 5000, 10_000)[0] is False
    assert ledger.charge_fetch("alice", "app", 5000, 40_000)[0] is False
    assert ledger.charge_fetch("alice", "app", 5000, 50_000) == (True, 40_000)


def test_mutations_are_refused_once_the_tokens_are_used_up() -> None:
    ledger = _ledger(MUTATION_RATE, Entity("alice"), 2)

    def charge(count: int, now_ms: int, *, strict: bool = True) -> tuple[bool, int]:
        return ledger.charge_mutations("alice", "app", count, now_ms, strict=strict)

    assert charge(32, 0) == (True, 0)  # 22 tokens: one that is there lets any number through
    assert charge(1, 0) == (False, 5000)
    assert charge(1, 4000) == (False, 1000)
    assert charge(1, 5000) == (True, 0)
    assert charge(1, 5000, strict=False) == (True, 1000)


def test_connections_of_an_address() -> None:
    quotas = _quotas(connection_creation_rate={Entity(ip=None): 1, Entity(ip="10.0.0.1"): 2})
    ledger = Ledger(lambda: quotas)
    assert [ledger.charge_connection("10.0.0.2", 0) for _ in range(12)] == [0] * 10 + [1000] * 2
    assert [ledger.charge_connection("10.0.0.1", 0) for _ in range(21)] == [0] * 20 + [500]


def test_a_client_that_invents_names_does_not_grow_the_memory() -> None:
    ledger = _ledger(PRODUCE_RATE, Entity(client_id=None), 1, most=100)
    assert ledger.charge(PRODUCE_RATE, "", "old", 1, 0) == 0
    for number in range(5000):
        ledger.charge(PRODUCE_RATE, "", f"{number}", 11, number // 10)
    assert len(ledger) == 100
    assert ledger.charge(PRODUCE_RATE, "", "4999", 1, 500) > 0  # those that were seen last are remembered


def test_whoever_was_silent_for_long_is_forgotten() -> None:
    ledger = _ledger(PRODUCE_RATE, Entity(client_id=None), 1)
    for number in range(50):
        ledger.charge(PRODUCE_RATE, "", f"{number}", 1, 0)
    ledger.charge(PRODUCE_RATE, "", "later", 1, IDLE_MS)
    assert len(ledger) == 1
