"""Events on any Kafka: one writer at a time, and whoever takes over fences the one before."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.eventsourcing.errors import InvalidStore
from headrace.eventsourcing.kafka_store import KafkaEventStore
from headrace.eventsourcing.model import NewEvent, StreamAppend, where
from headrace.eventsourcing.sqlite_store import SqliteEventStore
from headrace.storage import event_index
from headrace.testing.contracts.event_erasure import ChainContract, RefusedArchivingContract, RefusedRedactionContract
from headrace.testing.contracts.events import EventStoreContract

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_NUMBERS = count()


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


class TestKafkaEventStore(EventStoreContract, RefusedArchivingContract, RefusedRedactionContract, ChainContract):
    @pytest.fixture
    def open_store(self, bootstrap: str) -> Callable[[], Any]:
        topic = f"events-{next(_NUMBERS)}"
        return lambda: KafkaEventStore(lambda: Cluster(parse_bootstrap(bootstrap)), topic)


def test_a_file_that_is_not_an_index_is_left_alone(bootstrap: str, tmp_path: Path) -> None:
    """A damaged index is made anew; what somebody named by mistake was removed just so."""
    notes, shop = tmp_path / "notes.txt", tmp_path / "shop.db"
    notes.write_text("my notes\n" * 1000)
    SqliteEventStore(shop).close()
    before = shop.read_bytes()
    for path in (notes, shop, tmp_path / "nowhere" / "index"):
        with pytest.raises(InvalidStore, match="name another file"):
            KafkaEventStore(lambda: Cluster(parse_bootstrap(bootstrap)), "not-indexed", index=str(path))
    assert notes.read_text() == "my notes\n" * 1000
    assert shop.read_bytes() == before


def test_an_index_in_a_file_is_taken_up_again(bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as it was written; what comes behind is read from the topic, by a store that did not write it, too."""
    monkeypatch.setattr(event_index, "PORTION", 50)
    topic, path = f"events-{next(_NUMBERS)}", str(tmp_path / "index")

    def open_store(index: str) -> KafkaEventStore:
        return KafkaEventStore(lambda: Cluster(parse_bootstrap(bootstrap)), topic, index=index)

    other = open_store(str(tmp_path / "other"))
    with pytest.raises(InvalidStore, match="another store uses it"):  # both would write the same portions
        open_store(str(tmp_path / "other"))
    for life in range(3):
        store = open_store(path)
        for number in range(20):
            store.append([StreamAppend(f"s-{number % 3}", [NewEvent("noted", b"", (f"n:{number}",))])])
        assert len(list(store.read(where(tags=["n:7"])))) == life + 1
        other.append([StreamAppend("s-0", [NewEvent("noted", b"")])])
        store.close()
    versions = [each.version for each in other.read_stream("s-0")]
    assert versions == list(range(1, 3 * 7 + 3 + 1))
    other.close()
