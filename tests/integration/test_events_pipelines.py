"""Events of a store in Spark and in a view: what each says of itself as columns, and what it holds by its type."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace import Broker
from headrace.eventsourcing import NewEvent, StreamAppend, open_store
from headrace.pipelines.jobs.load import load
from headrace.pipelines.operators import read_events
from headrace.pipelines.operators.errors import BadField
from headrace.stores.views.question import everything
from tests.integration.event_flows import Flow, wait_for_copies
from tests.integration.test_views import run, views_in

pytestmark = [pytest.mark.java, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

TYPES = {"account-opened": "owner string", "deposited": "amount long"}
VIEWS = """
from headrace.pipelines.operators import aggregates as agg
from headrace.pipelines.operators import appended, group_changes, read_events
from headrace.pipelines.views import sqlite, topic, view

@view(key="stream", inputs={"events": topic("bank.events", includeHeaders=True)}, store=sqlite(STORE_PATH))
def balances(events):
    deposits = events.transform(read_events({"deposited": "amount long"})).where("type = 'deposited'")
    return (
        deposits.selectExpr("stream", "deposited.amount AS amount", "version", "time")
        .transform(appended(time="time"))
        .transform(group_changes(by="stream", balance=agg.sum("amount"), deposits=agg.count()))
    )
"""


def event(kind: str, *tags: str, **data: Any) -> NewEvent:
    return NewEvent(kind, json.dumps(data).encode(), tags, time_ms=1_700_000_000_000, correlation_id="r")


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with the events of a store in SQLite in `bank.events`, and a store of its own in `own`."""
    with Broker() as broker:
        bootstrap = broker.bootstrap_servers
        url = f"sqlite:///{tmp_path_factory.mktemp('events')}/bank.db"
        stores = [open_store(url), open_store(f"kafka://{bootstrap}/own")]
        for store in stores:
            for name in ("ann", "bob"):
                opened = event("account-opened", f"owner:{name}", "new", owner=name)
                store.append([StreamAppend(f"account-{name}", [opened, event("deposited", amount=len(name))])])
            store.append([StreamAppend("account-ann", [event("deposited", amount=40)])])
        with Flow("bank", {"url": url, "topic": "bank.events"}, bootstrap):
            wait_for_copies(bootstrap, "bank.events", stores[0])
        for store in stores:
            store.close()
        yield bootstrap


def read(spark: SparkSession, bootstrap: str, topic: str, **options: str) -> Any:
    return spark.read.format("headrace").options(bootstrap=bootstrap, subscribe=topic, **options)


@pytest.mark.parametrize("topic", ["bank.events", "own"])
def test_events_are_columns(spark: SparkSession, bootstrap: str, topic: str) -> None:
    frame = read(spark, bootstrap, topic, includeHeaders="true").load().transform(read_events(TYPES))
    rows = [row.asDict(recursive=True) for row in frame.orderBy("position").collect()]
    assert [(row["position"], row["stream"], row["version"], row["type"]) for row in rows] == [
        (1, "account-ann", 1, "account-opened"), (2, "account-ann", 2, "deposited"),
        (3, "account-bob", 1, "account-opened"), (4, "account-bob", 2, "deposited"), (5, "account-ann", 3, "deposited"),
    ]  # fmt: skip
    first, last = rows[0], rows[-1]
    assert (first["category"], first["tags"], last["tags"]) == ("account", ["owner:ann", "new"], [])
    assert (first["account_opened"], first["deposited"]) == ({"owner": "ann"}, None)
    assert (last["account_opened"], last["deposited"], last["data"]) == (None, {"amount": 40}, '{"amount": 40}')
    assert (last["correlation_id"], last["causation_id"], last["schema_version"]) == ("r", None, 1)
    assert last["time"].timestamp() == 1_700_000_000
    assert len({row["event_id"] for row in rows}) == 5


def test_values_that_the_source_decodes_keep_their_columns(spark: SparkSession, bootstrap: str) -> None:
    schema = "owner string, amount long, _key binary, _headers array<struct<key: string, value: binary>>, "
    schema += "_timestamp timestamp, _offset long"
    frame = read(spark, bootstrap, "bank.events", format="json").schema(schema).load().transform(read_events())
    found = frame.orderBy("position").selectExpr("stream", "version", "owner", "amount").collect()
    assert tuple(found[0]) == ("account-ann", 1, "ann", None)
    assert tuple(found[-1]) == ("account-ann", 3, None, 40)


def test_a_view_of_events(spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    file = tmp_path / "event_views.py"
    file.write_text(VIEWS.replace("STORE_PATH", repr(str(tmp_path / "views.db"))))
    (job,) = load(file)
    run(job, spark, tmp_path / "state", bootstrap)
    reader = views_in([job])["balances"].store.reader("balances")
    found = reader.page(everything(reader.kept().shape)).rows
    reader.close()
    assert {row["stream"]: (row["balance"], row["deposits"]) for row in found} == {
        "account-ann": (43, 2),
        "account-bob": (3, 1),
    }


def test_what_is_wrong_gets_one_sentence(spark: SparkSession, bootstrap: str) -> None:
    raw = read(spark, bootstrap, "own", includeHeaders="true").load()
    with pytest.raises(BadField, match="includeHeaders=True"):
        read(spark, bootstrap, "own").load().transform(read_events())
    with pytest.raises(BadField, match="would have the same column"):
        read_events({"a-b": "x int", "a.b": "x int"})
    with pytest.raises(BadField, match="the schema of 'a' cannot be read: 'x whole'"):
        raw.transform(read_events({"a": "x whole"}))
