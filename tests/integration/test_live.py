"""`live` on a real stream: rows come, the view follows, a stop leaves nothing behind."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from headrace import Broker
from headrace.pipelines import live
from headrace.pipelines.live_query import BadLive, Live
from headrace.pipelines.live_view import View

pytestmark = pytest.mark.java


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[str]:
    with Broker(tmp_path / "broker", durability="os") as broker:
        yield broker.bootstrap_servers


class Seen:
    """Shows to nobody, and remembers."""

    def __init__(self) -> None:
        self.views: list[View] = []
        self.last: View | None = None

    def paint(self, view: View) -> None:
        self.views.append(view)

    def close(self, view: View) -> None:
        self.last = view


def wait_for(shown: Live, condition: Callable[[View], bool]) -> View:
    deadline = time.monotonic() + 60
    while not condition(shown.view):
        assert shown.is_running, repr(shown)
        assert time.monotonic() < deadline, repr(shown)
        time.sleep(0.05)
    return shown.view


def test_a_stream_is_shown_while_it_runs(spark: SparkSession, servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers})

    def order(shop: str, cents: int) -> None:
        producer.produce("orders", value=f'{{"shop": "{shop}", "cents": {cents}}}')
        producer.flush()

    for number in range(30):
        order("ab"[number % 2], number)
    topics = spark.readStream.format("headrace").option("bootstrap", servers).option("format", "json")
    orders: DataFrame = (
        topics.option("startingOffsets", "earliest").schema("shop string, cents long").load("orders")
    )  # fmt: skip
    totals = orders.groupBy("shop").agg({"cents": "sum"}).toDF("shop", "total")

    with pytest.raises(BadLive, match='mode="update"'):
        live(totals)
    with pytest.raises(BadLive, match="did you mean 'cents'"):
        live(orders, plot="cent")
    with pytest.raises(BadLive, match="only numbers"):
        live(orders, plot="shop")
    with pytest.raises(BadLive, match="read once"):
        live(spark.range(3))

    seen = Seen()
    appended = live(orders, rows=5, plot="cents", every="100 milliseconds", on=seen)
    folder = Path(appended._folder)
    changing = live(totals, keys="shop", order_by="total", mode="update", every="100 milliseconds", on=Seen())
    view = wait_for(appended, lambda view: view.total == 30)
    assert [row[1] for row in view.visible] == [29, 28, 27, 26, 25]
    assert wait_for(changing, lambda view: view.total == 2).visible == (("b", 225), ("a", 210))
    order("a", 100)
    assert wait_for(appended, lambda view: view.total == 31).visible[0] == ("a", 100)
    assert wait_for(changing, lambda view: view.total == 3).visible == (("a", 310), ("b", 225))
    assert folder.exists()
    for each in (appended, changing):
        each.stop()
        each.stop()
    assert not folder.exists()
    assert seen.last is not None
    assert seen.last.state == "stopped"
    assert not spark.streams.active
    assert "31 rows" in repr(appended)
    assert "<table" in appended._repr_html_()
    with pytest.raises(NotImplementedError):
        appended._ipython_display_()  # only where it is in a cell already, it adds nothing

    broken: Any = orders.selectExpr("raise_error('no such drink') AS cents")
    with pytest.raises(BadLive, match="no such drink"):
        live(broken, every="100 milliseconds", on=Seen()).wait(60)
