"""Clients that wait as they are asked to use no more than their quotas, whatever they send and when."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.security.quotas import BURST_S, FETCH_RATE, PRODUCE_RATE, Entity, Ledger, Quotas

requests = st.lists(
    st.tuples(st.integers(1, 20_000), st.sampled_from([0, 1, 10, 300, 999, 1000, 5000, 12_000])), max_size=60
)


def _ledger(key: str, quota: int) -> Ledger:
    quotas = Quotas()
    quotas.set(Entity("alice"), {key: quota})
    return Ledger(lambda: quotas)


@given(st.integers(1, 5000), requests)
def test_what_is_produced_stays_within_the_quota(quota: int, sent: list[tuple[int, int]]) -> None:
    """Up to any moment: what the quota allows for the time so far, and a burst."""
    ledger = _ledger(PRODUCE_RATE, quota)
    now_ms, total = 0, 0
    for size_bytes, pause_ms in sent:
        now_ms += pause_ms
        total += size_bytes
        throttle_ms = ledger.charge(PRODUCE_RATE, "alice", "app", size_bytes, now_ms)
        assert ledger.charge(PRODUCE_RATE, "bob", "app", size_bytes, now_ms) == 0  # who has none is not slowed
        now_ms += throttle_ms
        assert total <= quota * (now_ms / 1000 + BURST_S) + 1


@given(st.integers(1, 5000), requests)
def test_what_is_fetched_stays_within_the_quota(quota: int, asked: list[tuple[int, int]]) -> None:
    ledger = _ledger(FETCH_RATE, quota)
    now_ms, total = 0, 0
    for size_bytes, pause_ms in asked:
        now_ms += pause_ms
        may_send, throttle_ms = ledger.charge_fetch("alice", "app", size_bytes, now_ms)
        total += size_bytes if may_send else 0
        assert may_send or throttle_ms
        now_ms += throttle_ms
        assert total <= quota * (now_ms / 1000 + BURST_S) + 1


@given(st.integers(1, 5000), st.lists(st.integers(1, 100_000), min_size=1, max_size=20))
def test_a_reader_that_waits_gets_everything(quota: int, batches: list[int]) -> None:
    """However small the quota and however large a batch, it comes after one wait, or two where rounding is short."""
    ledger = _ledger(FETCH_RATE, quota)
    now_ms = 0
    for size_bytes in batches:
        waits = 0
        while True:
            may_send, throttle_ms = ledger.charge_fetch("alice", "app", size_bytes, now_ms)
            now_ms += throttle_ms
            if may_send:
                break
            waits += 1
            assert waits <= 2
