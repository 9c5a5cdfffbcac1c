"""Dead letters sent back: each record once, whoever is killed or takes over, and nothing that cannot be sent whole."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import create_topic
from headrace.client.cluster import Cluster
from headrace.dead_letters import write_letters
from headrace.delivery.headers import DEDUP_ID
from headrace.delivery.letters import Letter
from headrace.queues.message import QueueError
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


INCOMPRESSIBLE = Random(1).randbytes(5000)


def letter_of(topic: str, offset: int, *, key: bytes | None = b"k", value: bytes = b"", header: bytes = b"") -> Letter:
    headers = (Header("large", header),) if header else ()
    return Letter(topic, 0, offset, 1, key, value or b"%d" % offset, "reason", "", "g", headers)


@pytest.mark.parametrize(
    ("topic", "setting", "refused"),
    [
        ("has-keys", {"cleanup.policy": "compact"}, letter_of("has-keys", 99, key=None)),
        ("has-small-ones", {"max.message.bytes": "2000"}, letter_of("has-small-ones", 99, value=INCOMPRESSIBLE)),
    ],
)
def test_a_letter_that_its_topic_does_not_take_keeps_no_other_from_being_sent(
    cluster: Cluster, topic: str, setting: dict[str, str], refused: Letter
) -> None:
    create_topic(cluster, topic, partitions=1, configs=setting)
    letters = [letter_of(topic, offset) for offset in range(20)]
    write_letters(cluster, f"dlq.{topic}", [*letters[:10], refused, *letters[10:]])
    done = redrive(cluster, f"dlq.{topic}")
    ((reason, count),) = done.left.items()
    assert (done.letters, done.sent, count) == (21, 20, 1)
    assert "refuses them" in reason
    wait_for_markers(str(cluster), f"dlq.{topic}")
    assert [found.letter.id for some in read_letters(cluster, f"dlq.{topic}") for found in some] == [refused.id]


def test_letters_that_fit_one_by_one_are_sent_however_small_the_batches_of_their_topic_are(cluster: Cluster) -> None:
    settings = {"max.message.bytes": "2000", "headrace.overflow": "reject", "headrace.overflow.records": "30"}
    create_topic(cluster, "tight", partitions=1, configs=settings)
    write_letters(cluster, "dlq.tight", [letter_of("tight", offset, header=b"h" * 900) for offset in range(20)])
    assert redrive(cluster, "dlq.tight") == Redriven(20, 20)
    assert values_in(cluster, "tight") == list(range(20))


def test_a_topic_that_drops_what_comes_takes_no_letter_with_it(cluster: Cluster) -> None:
    settings = {"headrace.overflow": "drop-newest", "headrace.overflow.records": "3"}
    create_topic(cluster, "dropping", partitions=1, configs=settings)
    write_letters(cluster, "dlq.dropping", [letter_of("dropping", offset) for offset in range(4)])
    with pytest.raises(QueueError, match="dropping-0 is full and drops what comes"):
        redrive(cluster, "dlq.dropping")
    wait_for_markers(str(cluster), "dlq.dropping")
    assert len([found for some in read_letters(cluster, "dlq.dropping") for found in some]) == 4
    assert values_in(cluster, "dropping") == []
