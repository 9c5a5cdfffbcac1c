"""PostgreSQL, Redis and a compacted topic as stores of views: the same contract as the files, without Spark."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
import redis as redis_driver

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import create_topic, delete_topics
from headrace.client.cluster import Cluster
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.pipelines.clusters import close_clusters
from headrace.pipelines.views import postgres, redis
from headrace.pipelines.views.topic_store import _WRITING, VIEWS_TOPIC, TopicBooks, TopicStore
from headrace.stores.errors import BadView, StoreAway
from headrace.stores.views.question import everything
from headrace.testing.contracts.view import ViewStoreContract, batch, row
from tests.integration.table_sink_stores import PostgresServer
from tests.servers.redis import RedisServer

_numbers = itertools.count()


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Broker(tmp_path_factory.mktemp("views")) as broker:
        yield broker.bootstrap_servers
    close_clusters()


class TestPostgres(ViewStoreContract):
    @pytest.fixture
    def store(self, postgres_server: PostgresServer) -> Any:
        return postgres(postgres_server.url, schema=f"views_{next(_numbers)}")

    def test_a_view_is_a_table_for_whoever_speaks_sql(self, store: Any) -> None:
        store.write(batch(store, 0, [row(1, "a", likes=4, tags=["x"])]))
        with psycopg.connect(store.url) as db:
            assert db.execute(f"SELECT likes, tags FROM {store.schema}.feed").fetchall() == [(4, ["x"])]
            found = db.execute(f"SELECT batch_id, row_count FROM {store.schema}.headrace_views").fetchall()
            assert found == [(0, 1)]

    def test_a_crash_of_the_server_leaves_whole_batches(self, store: Any, postgres_server: PostgresServer) -> None:
        store.write(batch(store, 0, [row(1, "a")]))
        reader = store.reader("feed")
        reader.kept()
        postgres_server.crash()
        with pytest.raises(StoreAway, match="PostgreSQL cannot be reached"):
            reader.kept()
        postgres_server.start()
        assert store.write(batch(store, 0, [row(1, "a")])) is None
        assert reader.row([1, "a"]).rows == [row(1, "a")]
        reader.close()


class TestRedis(ViewStoreContract):
    @pytest.fixture
    def store(self, redis_server: RedisServer) -> Any:
        return redis(redis_server.url, prefix=f"v{next(_numbers)}:")

    def test_a_row_is_json_under_its_key_and_old_versions_leave_nothing(self, store: Any) -> None:
        store.write(batch(store, 0, [row(1, "a", likes=4), row(2, "b")]))
        store.write(batch(store, 0, [row(1, "a", likes=5)], query="query-2", version=2))
        client = redis_driver.Redis.from_url(store.url)
        assert json.loads(client.get(f'{store.prefix}feed:{{"user":1,"post":"a"}}'))["likes"] == 4
        store.switch("feed", 2)
        rows = client.hget(f"{store.prefix}feed", "rows").decode()
        assert json.loads(client.get(rows + '{"user":1,"post":"a"}'))["likes"] == 5
        assert not client.exists(f'{store.prefix}feed:{{"user":1,"post":"a"}}')
        client.close()


class TestTopic(ViewStoreContract):
    restarts = False

    @pytest.fixture
    def store(self, bootstrap: str) -> Any:
        # What is known of views is one topic for a cluster, so each test has a name of its own.
        return _Named(TopicStore(f"feed-{next(_numbers)}", bootstrap, partitions=3))

    def test_a_batch_that_was_decided_but_not_told_of_is_not_written_twice(self, store: Any) -> None:
        store.write(batch(store, 0, [row(1, "a"), row(2, "b")]))
        with Cluster(parse_bootstrap(store.bootstrap)) as cluster:
            before = _records(cluster, store.name)
            known = _records(cluster, VIEWS_TOPIC)
            assert sum(1 for key, _ in known if key == store.view.encode()) == 1
            store.forget_the_last(cluster)
            store.write(batch(store, 0, [row(1, "a"), row(2, "b")]))
            assert _records(cluster, store.name) == before
        reader = store.reader("feed")
        assert len(reader.page(everything(reader.kept().shape)).rows) == 2
        reader.close()

    def test_a_reader_of_a_topic_made_again_reads_it_from_its_beginning(self, store: Any, reader: Any) -> None:
        store.write(batch(store, 0, [row(number, "a") for number in range(20)]))
        assert len(self.rows(reader)) == 20
        with Cluster(parse_bootstrap(store.bootstrap)) as cluster:
            delete_topics(cluster, [store.name])
            create_topic(cluster, store.name, partitions=3, configs={"cleanup.policy": "compact"})
        store.write(batch(store, 1, [row(number, "b") for number in range(3)]))
        assert set(self.rows(reader)) == {(number, "b") for number in range(3)}

    def test_a_topic_that_forgets_is_refused(self, store: Any) -> None:
        with Cluster(parse_bootstrap(store.bootstrap)) as cluster:
            create_topic(cluster, store.name, partitions=1)
        with pytest.raises(BadView, match="not compacted and would lose rows"):
            store.write(batch(store, 0, [row(1, "a")]))


class _Named:
    """A topic store whose views have names and queries of their own."""

    kind = "topic"

    def __init__(self, inner: TopicStore) -> None:
        self._inner = inner
        self.name, self.bootstrap = inner.name, inner.bootstrap
        self.view = f"view-of-{inner.name}"

    def write(self, made: Any) -> Any:
        label = replace(made.label, view=self.view)
        return self._inner.write(replace(made, label=label, query_id=f"{made.query_id}-{self.name}"))

    def switch(self, _: str, version: int) -> None:
        self._inner.switch(self.view, version)

    def reader(self, _: str) -> Any:
        return self._inner.reader(self.view)

    def forget_the_last(self, cluster: Cluster) -> None:
        TopicBooks(cluster).write(self.view, None)
        _WRITING.clear()  # as in another process


def _records(cluster: Cluster, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    held = bounds(cluster, cluster.partitions(topic))
    starts = {where: found.start for where, found in held.items()}
    ends = {where: found.end for where, found in held.items()}
    found = read_records(cluster, starts, until=ends, options=FetchOptions(committed=True))
    return sorted((one.record.key, one.record.value or b"") for group in found for one in group)
