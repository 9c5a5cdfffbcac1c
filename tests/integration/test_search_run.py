"""`headrace search run`, killed again and again while documents and queries come: each hit once, and none left out."""

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import add_partitions, create_topic, delete_topics
from headrace.client.cluster import Cluster
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.client.writer import NewRecord, Writer
from headrace.connect.delivery import Sender
from headrace.model import TopicPartition
from headrace.percolation.stored import StoredQuery
from headrace.searches import runner as runner_module
from headrace.searches.hits import SearchHit, read_hit
from headrace.searches.places import read_places
from headrace.searches.runner import PLACES, SearchProgress, SearchRunner
from headrace.searches.settings import SearchError, SearchSettings
from headrace.stores.compacted_topic import CompactedTopic, SeveralPartitions
from tests.integration.waiting import wait_until

KILLS = int(os.environ.get("HEADRACE_KILLS", "3"))
SEED = int(os.environ.get("HEADRACE_SEED", str(random.randrange(2**31))))
WORDS = ("bike", "car", "boat", "plane", "train", "scooter", "skates", "sledge")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "broker", durability="os") as broker:
        yield broker


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    with Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
        create_topic(cluster, "listings", partitions=2)
        yield cluster


def store(cluster: Cluster, *queries: StoredQuery) -> None:
    topic = CompactedTopic(cluster, "searches")
    for query in queries:
        topic.write(query.id, query.as_json())


def publish(cluster: Cluster, documents: list[object], at_ms: int | None = None) -> None:
    writer = Writer(cluster, "listings")
    for number, document in enumerate(documents):
        value = document if isinstance(document, bytes) else json.dumps(document).encode()
        writer.add(NewRecord(b"%d" % number, value, timestamp=at_ms or int(time.time() * 1000), partition=number % 2))
    writer.flush()


def read(cluster: Cluster, topic: str = "listings.hits") -> list[tuple[bytes | None, bytes | None]]:
    held = bounds(cluster, cluster.partitions(topic), committed=True)
    starts = {where: bound.start for where, bound in held.items() if bound.end > bound.start}
    until = {where: held[where].end for where in starts}
    found = read_records(cluster, starts, until=until, options=FetchOptions(committed=True)) if starts else ()
    return [(record.key, record.value) for some in found for _, record in some]


def hits(cluster: Cluster) -> list[SearchHit]:
    found = [read_hit(*each) for each in read(cluster)]
    assert None not in found
    return [hit for hit in found if hit is not None]


def settings(**more: object) -> SearchSettings:
    return SearchSettings("listings", "listings", hits="listings.hits", **more)  # type: ignore[arg-type]


def run_until_idle(broker: Broker, **more: object) -> SearchRunner:
    runner = SearchRunner(settings(**more), parse_bootstrap(broker.bootstrap_servers))
    runner.run(until_idle=True)
    return runner


def test_hits_name_what_matched_and_what_cannot_be_read_is_a_dead_letter(broker: Broker, cluster: Cluster) -> None:
    store(cluster, StoredQuery("bikes", "title:bike", tags=("wheels",), owner="ann"), StoredQuery("bad", "title:(("))
    publish(cluster, [{"title": "a red bike", "price": 5}, b"\xff not json", {"title": "a car"}, b"[1]"])
    runner = run_until_idle(broker, from_start=True, with_document=True)
    (hit,) = hits(cluster)
    assert (hit.query, hit.owner, hit.tags, hit.topic, hit.partition, hit.offset) == (
        "bikes", "ann", ("wheels",), "listings", 0, 0,
    )  # fmt: skip
    assert hit.document == {"title": "a red bike", "price": 5}
    assert [(piece.field, [piece.text[slice(*mark)] for mark in piece.marks]) for piece in hit.highlights] == [
        ("title", ["bike"])
    ]
    assert hit.queries_offset == 2
    assert len(read(cluster, "listings.dead-letters")) == 2
    assert set(runner.progress.refused) == {"bad"}
    assert (runner.progress.documents, runner.progress.hits, runner.progress.letters) == (4, 1, 2)


def test_queries_change_between_documents(broker: Broker, cluster: Cluster) -> None:
    run_until_idle(broker)  # its first start of all begins with the next document
    publish(cluster, [{"title": "bike one"}])
    run_until_idle(broker)
    store(cluster, StoredQuery("q", "title:bike"))
    publish(cluster, [{"title": "bike two"}])
    run_until_idle(broker)
    store(cluster, StoredQuery("q", "title:bike", paused=True, version=2))
    publish(cluster, [{"title": "bike three"}])
    run_until_idle(broker)
    store(cluster, StoredQuery("q", "title:car", version=3))
    publish(cluster, [{"title": "bike four"}, {"title": "car four"}])
    run_until_idle(broker)
    CompactedTopic(cluster, "searches").write("q", None)
    publish(cluster, [{"title": "car five"}])
    run_until_idle(broker)
    assert sorted((hit.version, hit.highlights[0].text) for hit in hits(cluster)) == [(1, "bike two"), (3, "car four")]


def test_a_query_may_ask_for_the_last_hours_and_no_document_comes_twice(broker: Broker, cluster: Cluster) -> None:
    now_ms = int(time.time() * 1000)
    run_until_idle(broker)
    publish(cluster, [{"title": f"old bike {number}"} for number in range(4)], at_ms=now_ms - 5 * 3_600_000)
    publish(cluster, [{"title": f"bike {number}"} for number in range(1_000)])
    run_until_idle(broker)
    store(cluster, StoredQuery("q", "title:bike", also_match_last_us=3_600_000_000))
    publish(cluster, [{"title": f"new bike {number}"} for number in range(10)])
    run_until_idle(broker)
    found = Counter((hit.partition, hit.offset, hit.is_backfill) for hit in hits(cluster))
    assert set(found.values()) == {1}
    by_kind = Counter(is_backfill for _, _, is_backfill in found)
    assert sum(by_kind.values()) == 1_010
    assert not {(part, offset) for part, offset, old in found if old} & {
        (part, offset) for part, offset, old in found if not old
    }
    run_until_idle(broker)  # it is not done again
    assert len(hits(cluster)) == 1_010


def test_a_topic_that_was_made_again_is_read_from_its_start(broker: Broker, cluster: Cluster) -> None:
    store(cluster, StoredQuery("q", "title:bike"))
    publish(cluster, [{"title": "bike"} for _ in range(10)])
    run_until_idle(broker, from_start=True)
    delete_topics(cluster, ["listings"])
    create_topic(cluster, "listings", partitions=2)
    cluster.topic("listings", refresh=True)
    publish(cluster, [{"title": "bike"} for _ in range(4)])
    run_until_idle(broker)
    assert len(hits(cluster)) == 14


def test_a_hit_that_the_topic_does_not_take_is_a_dead_letter_and_the_stream_goes_on(
    broker: Broker, cluster: Cluster
) -> None:
    create_topic(cluster, "listings.hits", partitions=1, configs={"max.message.bytes": "100000"})
    store(cluster, StoredQuery("q", "title:bike"), StoredQuery("r", "title:bike", tags=("t",)))
    publish(cluster, [{"title": "bike", "more": "x" * 200_000}, {"title": "bike"}, {"title": "bike \ud800"}])
    runner = run_until_idle(broker, from_start=True, with_document=True)
    assert sorted((hit.query, hit.partition, hit.offset) for hit in hits(cluster)) == [
        (query, *place) for query in "qr" for place in ((0, 1), (1, 0))
    ]
    assert all(json.loads((value or b"").decode()) for _, value in read(cluster))
    assert (runner.progress.hits, runner.progress.letters) == (4, 1)
    assert len(read(cluster, "listings.dead-letters")) == 1


def test_a_crowd_of_queries_on_one_word_is_written_document_by_document(broker: Broker, cluster: Cluster) -> None:
    crowd = 6_000
    topic = CompactedTopic(cluster, "searches")
    topic.write("q0", StoredQuery("q0", "title:bike").as_json())
    writer = Writer(cluster, "searches")
    for number in range(1, crowd):
        stored = StoredQuery(f"q{number}", "title:bike")
        writer.add(NewRecord(stored.id.encode(), stored.as_json(), timestamp=int(time.time() * 1000)))
    writer.flush()
    publish(cluster, [{"title": "bike"} for _ in range(6)] + [{"title": "car"}] * 20)
    committed: list[int] = []

    class Seen(SearchProgress):
        def __setattr__(self, name: str, value: object) -> None:
            if name == "hits":
                committed.append(value)  # type: ignore[arg-type]
            super().__setattr__(name, value)

    runner = SearchRunner(settings(from_start=True), parse_bootstrap(broker.bootstrap_servers), progress=Seen())
    runner.run(until_idle=True)
    assert max(after - before for before, after in itertools.pairwise(committed)) == crowd
    found = Counter((hit.query, hit.partition, hit.offset) for hit in hits(cluster))
    assert (len(found), set(found.values())) == (6 * crowd, {1})


def test_what_is_no_document_is_left_behind_as_well(broker: Broker, cluster: Cluster) -> None:
    store(cluster, StoredQuery("q", "title:bike"))
    where = TopicPartition("listings", 0)
    sender = Sender(cluster, "somebody", "somebody")
    sender.begin()
    sender.commit({where: [(b"1", b'{"title": "bike"}', -1, ()), (b"2", b'{"title": "bike"}', 5, ())]})
    run_until_idle(broker, from_start=True)
    assert [(hit.offset, hit.timestamp_ms) for hit in hits(cluster)] == [(0, -1), (1, 5)]
    stored = read_places(dict(each for each in read(cluster, PLACES) if each[0] and each[1]))  # type: ignore[misc]
    assert stored.documents[0] == bounds(cluster, [where])[where].end == 3


def test_a_query_that_stands_again_under_another_mapping_meets_no_document_twice(
    broker: Broker, cluster: Cluster
) -> None:
    store(cluster, StoredQuery("q", "price:>1", also_match_last_us=10**10))
    publish(cluster, [{"price": 5}])
    run_until_idle(broker, from_start=True)
    for kind in ("geo_point", "double"):
        mapping = {"fields": {"price": kind}, "malformed": "ignore"}
        CompactedTopic(cluster, "searches").write("mapping:default", json.dumps(mapping).encode())
        run_until_idle(broker)
    publish(cluster, [{"price": 5}])
    run_until_idle(broker)
    assert sorted((hit.partition, hit.offset) for hit in hits(cluster)) == [(0, 0), (0, 1)]


def test_many_backfills_are_read_few_at_a_time_and_all_of_them_end(broker: Broker, cluster: Cluster) -> None:
    publish(cluster, [{"title": "bike"} for _ in range(300)])
    store(cluster, *(StoredQuery(f"q{number}", "title:bike", also_match_last_us=10**10) for number in range(12)))
    run_until_idle(broker)
    publish(cluster, [{"title": "bike"} for _ in range(10)])
    run_until_idle(broker)
    found = Counter((hit.query, hit.partition, hit.offset) for hit in hits(cluster))
    assert (len(found), set(found.values())) == (12 * 310, {1})


def test_it_is_not_running_before_its_loops_are(broker: Broker, cluster: Cluster, monkeypatch: Any) -> None:
    runner = SearchRunner(settings(), parse_bootstrap(broker.bootstrap_servers))
    waited_for = []
    monkeypatch.setattr(runner_module, "warm_up", lambda: waited_for.append(runner.progress.waiting))
    runner.run(until_idle=True)
    assert waited_for == ["for its loops to be compiled"]
    assert runner.progress.waiting == ""


def test_queries_in_several_partitions_are_refused(broker: Broker, cluster: Cluster) -> None:
    create_topic(cluster, "searches", partitions=2)
    with pytest.raises(SeveralPartitions, match="has several partitions"):
        run_until_idle(broker)


def test_queries_that_get_further_partitions_end_the_search(broker: Broker, cluster: Cluster, monkeypatch: Any) -> None:
    monkeypatch.setattr(runner_module, "_LOOK_EVERY_S", 0.0)
    store(cluster, StoredQuery("bikes", "title:bike"))
    runner = SearchRunner(settings(), parse_bootstrap(broker.bootstrap_servers))
    raised: list[BaseException] = []

    def run() -> None:
        with pytest.raises(SeveralPartitions) as caught:
            runner.run()
        raised.append(caught.value)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: runner.progress.queries == 1, "it is at work")
    add_partitions(cluster, "searches", 2)
    thread.join(30)
    assert len(raised) == 1


def test_another_topic_under_one_name_is_refused_and_no_hit_comes_again(broker: Broker, cluster: Cluster) -> None:
    store(cluster, StoredQuery("bikes", "title:bike"))
    publish(cluster, [{"title": "a bike"}])
    run_until_idle(broker, from_start=True)
    create_topic(cluster, "articles")
    other = SearchSettings("listings", "articles", hits="listings.hits", from_start=True)
    with pytest.raises(SearchError, match="is at work on topic listings: give"):
        SearchRunner(other, parse_bootstrap(broker.bootstrap_servers)).run(until_idle=True)
    publish(cluster, [{"title": "a bike"}])
    run_until_idle(broker, from_start=True)
    assert sorted((hit.partition, hit.offset) for hit in hits(cluster)) == [(0, 0), (0, 1)]


def test_each_hit_once_however_often_it_is_killed(broker: Broker, cluster: Cluster, tmp_path: Path) -> None:
    print("seed", SEED)
    chance = random.Random(SEED)
    (tmp_path / "headrace.toml").write_text('[search.listings]\ndocuments = "listings"\nfrom = "start"\n')
    store(cluster, *(StoredQuery(word, f"title:{word}", also_match_last_us=86_400_000_000) for word in WORDS[:4]))
    expected: Counter[str] = Counter()

    def some(count: int) -> list[object]:
        titles = [" ".join(chance.sample(WORDS, 3)) for _ in range(count)]
        expected.update(word for title in titles for word in title.split())
        return [{"title": title} for title in titles]

    def start(*more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "headrace.cli.main", "search", "run", "listings", "--config", "headrace.toml",
             "--bootstrap", broker.bootstrap_servers, "--json", *more],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        )  # fmt: skip

    publish(cluster, some(500))
    for number in range(KILLS):
        running = start()
        assert running.stdout is not None
        assert running.stdout.readline(), running.communicate()
        publish(cluster, some(1_000))
        # A query that comes in the middle is held against everything that came before it as well.
        if number + 4 < len(WORDS):
            word = WORDS[number + 4]
            store(cluster, StoredQuery(word, f"title:{word}", also_match_last_us=86_400_000_000))
        publish(cluster, some(1_000))
        time.sleep(chance.random())  # a kill comes whenever it comes
        running.send_signal(signal.SIGKILL)
        running.communicate()
    done = start("--once")
    out, err = done.communicate(timeout=120)
    assert (done.returncode, err) == (0, ""), out
    found = hits(cluster)
    assert set(Counter((hit.query, hit.partition, hit.offset) for hit in found).values()) == {1}
    stored = WORDS[: 4 + min(KILLS, 4)]
    assert Counter(hit.query for hit in found) == {word: expected[word] for word in stored}


def test_older_documents_are_read_in_portions_so_that_live_ones_go_on(
    broker: Broker, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fetch of older documents holds tens of thousands: between two looks for live ones there are few hundred."""
    run_until_idle(broker)
    publish(cluster, [{"title": "bike"} for _ in range(4_000)])
    run_until_idle(broker)
    store(cluster, StoredQuery("q", "title:bike", also_match_last_us=3_600_000_000))
    taken: list[int] = []
    held, match_older = runner_module._Work._hold, runner_module._Work._match_older

    def counted(work: Any, percolator: Any, records: Any, *given: Any, **named: Any) -> Any:
        if named["is_backfill"]:
            taken[-1] += len(records)
        return held(work, percolator, records, *given, **named)

    def in_turn(work: Any) -> None:
        taken.append(0)
        match_older(work)

    monkeypatch.setattr(runner_module, "_SLICE_S", 0.0001)
    monkeypatch.setattr(runner_module._Work, "_hold", counted)
    monkeypatch.setattr(runner_module._Work, "_match_older", in_turn)
    run_until_idle(broker)
    assert 0 < max(taken) <= 512
    assert len(hits(cluster)) == 4_000
    assert {hit.is_backfill for hit in hits(cluster)} == {True}
