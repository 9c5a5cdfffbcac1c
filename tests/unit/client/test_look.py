"""Topics and groups as a notebook and a prompt show them, from a broker that runs."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer

import headrace
from headrace.client.errors import UnknownTopic
from headrace.client.html_tables import facts, shown, table
from headrace.client.look import Look


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[headrace.Broker]:
    with headrace.Broker(tmp_path_factory.mktemp("broker"), durability="os") as running:
        producer = Producer({"bootstrap.servers": running.bootstrap_servers})
        for number in range(10):
            producer.produce("orders", value=str(number))
        producer.flush()
        consumer = Consumer(
            {
                "bootstrap.servers": running.bootstrap_servers,
                "group.id": "bar",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "client.id": "till-1",
            }
        )
        consumer.subscribe(["orders"])
        read = [message for message in consumer.consume(6, timeout=30) if not message.error()]
        consumer.commit(message=read[5], asynchronous=False)
        yield running
        consumer.close()


def test_a_cluster_is_seen_whole(broker: headrace.Broker) -> None:
    seen = headrace.look(broker)
    assert repr(seen).splitlines()[0] == f"cluster at {broker.bootstrap_servers}: topics 1, groups 1"
    assert "orders           1       10" in repr(seen)
    assert "<td" in seen._repr_html_()
    assert "bar" in seen._repr_html_()
    assert isinstance(headrace.look(broker.bootstrap_servers), Look)


def test_a_topic_and_a_group_are_seen_in_detail(broker: headrace.Broker) -> None:
    seen = headrace.look(broker)
    topic = seen.topic("orders")
    assert "topic orders: partitions 1, records 10" in repr(topic)
    assert topic.description.partitions[0].bounds.end == 10
    group = seen.group("bar")
    assert "lag 4" in repr(group)
    assert "till-1" in repr(group)
    assert "orders-0" in group._repr_html_()
    with pytest.raises(UnknownTopic):
        seen.topic("oders")


def test_a_job_is_seen_without_its_secrets() -> None:
    pytest.importorskip("pyspark")
    from headrace.pipelines import job, topic
    from headrace.pipelines.sink import sqlite

    word = "hidden-from-everybody"

    @job(
        inputs={"orders": topic("orders", watermark=("at", "10 minutes"), **{"kafka.sasl.password": word})},
        outputs={"copy": topic("copies"), "table": sqlite("a.sqlite", "earnings", keys="customer")},
    )
    def copying(orders: object) -> object:
        return orders

    html = copying._repr_html_()
    for part in ("job copying", "topic orders", "at, 10 minutes late", "topic copies", "table earnings"):
        assert part in html
    assert word not in html
    assert word not in repr(topic("orders", **{"kafka.sasl.password": word}))


def test_cells_are_escaped_cut_and_set_right() -> None:
    assert "&lt;b&gt;" in table(["a"], [("<b>",)])
    assert "text-align:right" in table(["a"], [(1234,)], marked={0})
    assert [shown(value) for value in (None, True, 1234, 0.5, 1e9, b"tea")] == [
        "–", "true", "1,234", "0.5", "1,000,000,000.0", "tea",
    ]  # fmt: skip
    assert len(shown("x" * 500)) == 120
    assert "&amp;" in facts("a & b", [("c", None)])
