"""The store in memory keeps the contract of all stores."""

from collections.abc import Callable
from typing import Any

import pytest

from headrace.eventsourcing.memory import MemoryStore
from headrace.testing.contracts.event_erasure import ChainContract, ErasureContract
from headrace.testing.contracts.events import EventStoreContract, SnapshotStoreContract


class _Shared(MemoryStore):
    """Opened several times, and kept until the test is over."""

    def close(self) -> None:
        pass


class TestMemory(EventStoreContract, SnapshotStoreContract, ChainContract, ErasureContract):
    @pytest.fixture
    def open_store(self) -> Callable[[], Any]:
        shared = _Shared()
        return lambda: shared


def test_a_store_that_is_closed_keeps_nobody_waiting() -> None:
    store = MemoryStore()
    store.close()
    assert not store.wait(0, 60)
