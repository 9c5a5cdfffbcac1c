"""A search whose broker is killed in the middle of transactions, and two searches of one name: each hit once."""

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import add_partitions, create_topic, delete_topics
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.client.writer import NewRecord, Writer
from headrace.connect.errors import TakenOver
from headrace.retry import Backoff
from headrace.searches.hits import read_hit
from headrace.searches.runner import SearchRunner
from headrace.searches.settings import SearchSettings
from headrace.stores.compacted_topic import CompactedTopic
from tests.integration.waiting import wait_until
from tests.ports import free_port

KILLS = int(os.environ.get("HEADRACE_KILLS", "3"))
SEED = int(os.environ.get("HEADRACE_SEED", str(random.randrange(2**31))))
SETTINGS = SearchSettings("s", "documents", "searches", "hits", from_start=True)


def publish(cluster: Cluster, count: int, first: int = 0, partition: int | None = None) -> None:
    writer = Writer(cluster, "documents")
    for number in range(first, first + count):
        value = json.dumps({"title": "a red bike", "n": number}).encode()
        where = number % 2 if partition is None else partition
        writer.add(NewRecord(b"%d" % number, value, int(time.time() * 1000), partition=where))
    writer.flush()


def found(cluster: Cluster) -> Counter[tuple[str, int, int]]:
    held = bounds(cluster, cluster.partitions("hits"), committed=True)
    starts = {where: bound.start for where, bound in held.items() if bound.end > bound.start}
    until = {where: held[where].end for where in starts}
    reading = read_records(cluster, starts, until=until, options=FetchOptions(committed=True)) if starts else ()
    hits = [read_hit(record.key, record.value) for some in reading for _, record in some]
    return Counter((hit.query, hit.partition, hit.offset) for hit in hits if hit is not None)


def ends(cluster: Cluster) -> int:
    held = bounds(cluster, cluster.partitions("hits"), committed=True)
    return sum(bound.end for bound in held.values())


class Running(threading.Thread):
    """A search at work, and how it ended."""

    def __init__(self, servers: str) -> None:
        super().__init__()
        self.runner = SearchRunner(SETTINGS, parse_bootstrap(servers), backoff=Backoff(0.05, 0.2))
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            self.runner.run()
        except Exception as error:
            self.error = error

    def end(self) -> None:
        self.runner.stopping.set()
        self.join(60)
        assert not self.is_alive()


def test_a_broker_that_is_killed_in_the_middle(tmp_path: Path) -> None:
    print(f"HEADRACE_SEED={SEED}")
    chosen = random.Random(SEED)
    port = free_port()
    broker = Broker(tmp_path, own_process=True, listen=f"127.0.0.1:{port}").start()
    servers = broker.bootstrap_servers
    with Cluster(parse_bootstrap(servers)) as cluster:
        create_topic(cluster, "documents", partitions=2)
        queries = CompactedTopic(cluster, "searches")
        for number in range(40):
            queries.write(f"q{number}", b'{"query": "title:bike"}')
        publish(cluster, 1_000)
    search = Running(servers)
    for kill in range(KILLS):
        before = search.runner.progress.hits
        wait_until(lambda before=before: search.runner.progress.hits > before, "it goes on")  # type: ignore[misc]
        time.sleep(chosen.random() * 0.05)  # so that it is killed anywhere within a transaction
        assert broker.pid is not None
        os.kill(broker.pid, signal.SIGKILL)
        broker.stop()
        broker = Broker(tmp_path, own_process=True, listen=f"127.0.0.1:{port}").start()
        with Cluster(parse_bootstrap(servers)) as cluster:
            publish(cluster, 1_000, 1_000 * (kill + 1))
    total = 1_000 * (1 + KILLS)
    with Cluster(parse_bootstrap(servers)) as cluster:
        # All hits are read only once there are so many records: to read them takes longer than to find them.
        wait_until(lambda: ends(cluster) >= 40 * total, "it goes on", patience_s=180)
        wait_until(lambda: sum(found(cluster).values()) >= 40 * total, "it comes to the end")
        search.end()
        assert search.error is None
        hits = found(cluster)
    assert set(hits.values()) == {1}
    assert len(hits) == 40 * total
    broker.stop()


def test_the_first_of_two_ends_and_a_topic_grows_and_is_made_again() -> None:
    with Broker(durability="os") as broker, Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
        create_topic(cluster, "documents", partitions=2)
        queries = CompactedTopic(cluster, "searches")
        queries.write("q", b'{"query": "title:bike"}')
        publish(cluster, 100)
        first = Running(broker.bootstrap_servers)
        wait_until(lambda: len(found_or_none(cluster)) == 100, "the first is at work")
        second = Running(broker.bootstrap_servers)
        wait_until(lambda: second.runner.progress.queries == 1, "the second has taken over")
        publish(cluster, 400, 100)
        wait_until(lambda: len(found(cluster)) == 500, "one of them goes on")
        first.join(60)
        assert isinstance(first.error, TakenOver)
        assert second.error is None
        # Partitions that are added while it runs are read from their first document on.
        add_partitions(cluster, "documents", 3)
        cluster.topic("documents", refresh=True)
        publish(cluster, 50, 500, partition=2)
        wait_until(lambda: len(found(cluster)) == 550, "documents of the new partition match, too")
        # Queries of a topic that was made again are those in it, and no others.
        delete_topics(cluster, ["searches"])
        wait_until(lambda: second.runner.progress.queries == 0, "without its topic no query stands")
        CompactedTopic(cluster, "searches").write("r", b'{"query": "title:bike"}')
        wait_until(lambda: second.runner.progress.queries == 1, "the new one stands")
        publish(cluster, 10, 550, partition=2)
        wait_until(lambda: len(found(cluster)) >= 560, "and is matched")
        second.end()
        hits = found(cluster)
        assert set(hits.values()) == {1}
        assert Counter(query for query, _, _ in hits) == {"q": 550, "r": 10}


def found_or_none(cluster: Cluster) -> Counter[tuple[str, int, int]]:
    try:
        return found(cluster)
    except ClientError:
        return Counter()
