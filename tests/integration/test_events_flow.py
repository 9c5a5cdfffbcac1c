"""Events of stores in databases flow into topics: each once, in the order of positions, as records of the one form."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from sqlite3 import connect
from typing import Any

import pytest
from confluent_kafka import Consumer

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import delete_topics
from headrace.client.cluster import Cluster
from headrace.errors import HeadraceError
from headrace.eventsourcing.flow import from_section
from headrace.eventsourcing.opening import open_store
from headrace.status import CAPTURES, read_statuses
from tests.integration.event_flows import Flow, append, copied, wait_for_copies
from tests.integration.table_sink_stores import PostgresServer
from tests.integration.waiting import wait_until

_NUMBERS = count()


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/events.db"
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return f"{server.url}{'&' if '?' in server.url else '?'}table=flow_{next(_NUMBERS)}"


def test_each_event_once_in_order_and_as_it_was_stored(url: str, bootstrap: str) -> None:
    topic = name = f"flow-{next(_NUMBERS)}"
    store = open_store(url)
    append(store, "a-1", 1, 2, causation_id="c", correlation_id="r", headers={"who": "ann", "headrace-x": "é"})
    append(store, "b-1", 3, schema=2)
    with Flow(name, {"url": url, "topic": topic}, bootstrap):
        assert wait_for_copies(bootstrap, topic, store) == list(store.read())
        append(store, "a-1", 4)  # while it runs
        assert wait_for_copies(bootstrap, topic, store) == list(store.read())
    append(store, "b-1", 5)  # while it does not
    with Flow(name, {"url": url, "topic": topic}, bootstrap) as flow:
        assert wait_for_copies(bootstrap, topic, store) == list(store.read())
        wait_until(
            lambda: flow.status is not None and flow.status.number("lag_records") == 0,
            "it does not say that it is through",
        )
    with Cluster(parse_bootstrap(bootstrap)) as cluster:
        status = read_statuses(cluster, CAPTURES)[f"events.{name}"]
    assert (status.state, status.facts["topics"], status.facts["position"]["position"]) == ("stopped", [topic], 5)
    assert "password" not in json.dumps(dict(status.facts))
    store.close()


def test_any_consumer_reads_type_stream_version_and_tags(tmp_path: Path, bootstrap: str) -> None:
    url, topic = f"sqlite:///{tmp_path}/events.db", f"flow-{next(_NUMBERS)}"
    store = open_store(url)
    append(store, "a-1", 1)
    with Flow(topic, {"url": url, "topic": topic, "partitions": 3, "compression": "zstd"}, bootstrap):
        consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest",
             "topic.metadata.refresh.interval.ms": 100, "allow.auto.create.topics": "false"}
        )  # fmt: skip
        consumer.subscribe([topic])
        found: list[Any] = []

        def poll() -> bool:
            message = consumer.poll(0.2)
            found.extend([message] if message is not None and message.error() is None else [])
            return bool(found)

        wait_until(poll, "nothing came")
        consumer.close()
    (message,) = found
    headers = message.headers()
    assert (message.key(), json.loads(message.value())) == (b"a-1", {"n": 1})
    assert dict(headers)["headrace-event-type"] == b"counted"
    assert dict(headers)["headrace-event-version"] == b"1"
    assert dict(headers)["headrace-event-position"] == b"1"
    assert [value for header, value in headers if header == "headrace-event-tag"] == [b"n:1", b"all"]
    store.close()


def test_killed_again_and_again_nothing_is_lost_or_doubled(url: str, bootstrap: str) -> None:
    topic = f"flow-{next(_NUMBERS)}"
    store = open_store(url)
    stop = threading.Event()

    def write(stream: str) -> None:
        for number in count(1):
            if stop.wait(0.005):
                return
            append(store, stream, *range(number * 10, number * 10 + 3))

    writers = [threading.Thread(target=write, args=(f"w-{each}",)) for each in range(3)]
    for writer in writers:
        writer.start()
    arguments = [topic, "--url", url, "--topic", topic, "--bootstrap", bootstrap]
    for _ in range(3):
        before = len(copied(bootstrap, topic))
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace.cli.main", "events", "flow", *arguments], stderr=subprocess.PIPE
        )
        # The one that was killed may have left a transaction open, which the next one ends.
        wait_until(lambda: len(copied(bootstrap, topic)) > before, "nothing flows")  # noqa: B023 - called here
        process.kill()
        process.communicate()
    stop.set()
    for writer in writers:
        writer.join()
    with Flow(topic, {"url": url, "topic": topic}, bootstrap):
        found = wait_for_copies(bootstrap, topic, store)
    assert found == list(store.read())
    assert [each.position for each in found] == sorted({each.position for each in found})
    store.close()


def test_two_of_the_same_name_do_not_write_twice(tmp_path: Path, bootstrap: str) -> None:
    url, topic = f"sqlite:///{tmp_path}/events.db", f"flow-{next(_NUMBERS)}"
    store = open_store(url)
    section = {"url": url, "topic": topic}
    append(store, "a-1", 1)
    with Flow(topic, section, bootstrap) as first:
        wait_for_copies(bootstrap, topic, store)
        with Flow(topic, section, bootstrap):
            for number in count(2):  # the first one notices when it wants to write
                append(store, "a-1", number)
                wait_for_copies(bootstrap, topic, store)
                if not first.is_running:
                    break
            found = wait_for_copies(bootstrap, topic, store)
    assert "was started elsewhere" in first.wait_for_failure()
    assert found == list(store.read())
    store.close()


def test_another_store_or_topic_under_the_same_name_is_refused(tmp_path: Path, bootstrap: str) -> None:
    name = topic = f"flow-{next(_NUMBERS)}"
    urls = {number: f"sqlite:///{tmp_path}/{number}.db" for number in (1, 3, 5)}
    for number, url in urls.items():
        store = open_store(url)
        append(store, "a-1", *range(number))
        if number == 3:
            with Flow(name, {"url": url, "topic": topic}, bootstrap):
                wait_for_copies(bootstrap, topic, store)
        store.close()
    for number in (1, 5):  # one that is shorter, and one that is longer
        with Flow(name, {"url": urls[number], "topic": topic}, bootstrap) as flow:
            assert "this store has another event there, or none: for another store" in flow.wait_for_failure()
    with Flow(name, {"url": urls[3], "topic": "others"}, bootstrap) as flow:
        assert f"events up to position 3 are in topic {topic!r}, and would be missing" in flow.wait_for_failure()
    assert len(copied(bootstrap, topic)) == 3
    assert copied(bootstrap, "others") == []


def test_a_store_that_is_set_back_while_it_flows_is_refused(tmp_path: Path, bootstrap: str) -> None:
    url, topic = f"sqlite:///{tmp_path}/events.db", f"flow-{next(_NUMBERS)}"
    store = open_store(url)
    append(store, "a-1", 1, 2)
    with closing(connect(tmp_path / "events.db")) as file, closing(connect(":memory:")) as backup:
        file.backup(backup)
        append(store, "a-1", 3, 4)
        with Flow(topic, {"url": url, "topic": topic}, bootstrap) as flow:
            wait_for_copies(bootstrap, topic, store)
            backup.backup(file)
            append(store, "b-1", 5, 6, 7)  # what flowed would not be all of it
            assert "this store has another event there, or none" in flow.wait_for_failure()
    store.close()


def test_a_topic_that_was_deleted_does_not_go_on_with_events_missing(tmp_path: Path, bootstrap: str) -> None:
    url, topic = f"sqlite:///{tmp_path}/events.db", f"flow-{next(_NUMBERS)}"
    store = open_store(url)
    append(store, "a-1", 1, 2)
    with Flow(topic, {"url": url, "topic": topic}, bootstrap):
        wait_for_copies(bootstrap, topic, store)
    with Cluster(parse_bootstrap(bootstrap)) as cluster:
        delete_topics(cluster, [topic])
    append(store, "a-1", 3)
    with Flow(topic, {"url": url, "topic": topic}, bootstrap) as flow:
        assert f"events up to position 2 flowed to topic {topic!r}, and nothing is there" in flow.wait_for_failure()
    with Flow(f"{topic}-again", {"url": url, "topic": topic}, bootstrap):
        assert wait_for_copies(bootstrap, topic, store) == list(store.read())
    store.close()


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        ({"topic": "t"}, r"\[events.shop\] has no url"),
        ({"url": "sqlite:///x.db"}, "has no topic for its events to flow to"),
        ({"url": "sqlite:///x.db", "topic": "a b"}, "'a b' is not legal"),
        ({"url": "mysql://u:secret@h/d", "topic": "t"}, "'mysql:…' is not the address of an event store"),
        ({"url": "sqlite:///x.db", "topic": "t", "compression": "rar"}, "unknown compression 'rar'"),
        ({"url": "sqlite:///x.db", "topics": "t"}, "has no key 'topics': did you mean 'topic'"),
    ],
)
def test_a_wrong_section_gets_one_sentence(section: dict[str, Any], reason: str) -> None:
    with pytest.raises(HeadraceError, match=reason) as caught:
        from_section("shop", section)
    assert "secret" not in str(caught.value)
