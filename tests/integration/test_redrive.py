"""Dead letters sent back: each record once, whoever is killed or takes over, and nothing that cannot be sent whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import create_topic
from headrace.client.cluster import Cluster
from headrace.dead_letters import write_letters
from headrace.delivery.headers import DEDUP_ID
from headrace.delivery.letters import Letter
from headrace.queues.redrive import RedriveError, Redriven, read_letters, redrive
from headrace.records import Header
from tests.reading import read_committed, wait_for_markers

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Broker() as broker, Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
        yield cluster


def fill(cluster: Cluster, topic: str, count: int) -> str:
    """So many letters of a topic; where they are."""
    create_topic(cluster, topic, partitions=2)
    headers = (Header("trace", b"7"), Header(DEDUP_ID, b"once"))
    letters = [
        Letter(topic, number % 2, number, 1, b"k", b"%d" % number, f"reason {number % 3}", "", "g", headers)
        for number in range(count)
    ]
    write_letters(cluster, f"dlq.{topic}", letters)
    return f"dlq.{topic}"


def values_in(cluster: Cluster, topic: str) -> list[int]:
    return sorted(int(message.value()) for message in read_committed(str(cluster), topic))


def test_every_letter_is_sent_back_once(cluster: Cluster) -> None:
    letters = fill(cluster, "once", 1200)  # more than a transaction has
    seen: list[int] = []
    assert redrive(cluster, letters, dry_run=True).sent == 1200
    assert redrive(cluster, letters, on_progress=lambda so_far: seen.append(so_far.sent)) == Redriven(1200, 1200)
    assert seen[-1] == 1200
    assert len(seen) >= 3
    assert values_in(cluster, "once") == list(range(1200))
    for message in read_committed(str(cluster), "once"):
        assert message.partition() == int(message.value()) % 2
        assert message.key() == b"k"
        assert message.headers() == [("trace", b"7")]  # it would be a duplicate of itself
    wait_for_markers(str(cluster), letters)
    assert redrive(cluster, letters) == Redriven(0, 0)


def test_some_are_sent_back_by_number_by_id_and_by_what_matches(cluster: Cluster) -> None:
    letters = fill(cluster, "some", 30)
    assert redrive(cluster, letters, matches=lambda letter: letter.reason == "reason 2", limit=4).sent == 4
    (first, *_), *_ = (some for some in read_letters(cluster, letters) if some)
    assert redrive(cluster, letters, ids=[first.letter.id]).sent == 1
    assert len(values_in(cluster, "some")) == 5
    assert redrive(cluster, letters).sent == 25
    assert values_in(cluster, "some") == list(range(30))


def test_one_that_is_interrupted_is_run_again_and_one_that_is_overtaken_ends(cluster: Cluster) -> None:
    letters = fill(cluster, "overtaken", 1200)

    def overtake(so_far: Redriven) -> None:
        if so_far.sent < 1200:
            redrive(cluster, letters, limit=100)

    with pytest.raises(RedriveError, match="another redrive"):
        redrive(cluster, letters, on_progress=overtake)
    redrive(cluster, letters)
    assert values_in(cluster, "overtaken") == list(range(1200))


def test_what_cannot_be_sent_whole_stays(cluster: Cluster) -> None:
    gone = Letter("never-made", 0, 0, 1, b"k", b"v", "reason", "", "g")
    cut = Letter("stays", 0, 99, 1, b"k", b"v", "reason", "", "g", cut=("value",))
    create_topic(cluster, "stays")
    write_letters(cluster, "dlq.stays", [gone, cut])
    done = redrive(cluster, "dlq.stays")
    assert (done.letters, done.sent, sorted(done.left.values())) == (2, 0, [1, 1])
    assert redrive(cluster, "dlq.stays", to="stays").sent == 1
