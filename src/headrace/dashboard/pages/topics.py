"""Topics: all of them, one by itself, and its schema."""

from collections.abc import Callable, Sequence
from typing import Any

from headrace.client.admin import Config, describe_configs
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.offsets import Start, StartKind, find_stretch
from headrace.client.reader import read_records
from headrace.connect.avro.places import schemas_at
from headrace.dashboard.charts import chart, sparkline
from headrace.dashboard.format import setting, setting_meaning
from headrace.dashboard.history import smooth
from headrace.dashboard.page import Asked, Desk, Menu, Model, Page, find_in
from headrace.dashboard.pages.groups import owner
from headrace.dashboard.statuses import dead_letter_topics, job_state
from headrace.dashboard.values import Shape, shape_of
from headrace.errors import HeadraceError

CONFIG_SECONDS = 15.0
SAMPLE = 200  # records, over all partitions
SCHEMA_SECONDS = 15.0
MOST = 500  # rows on the page; the filter finds the others

SORTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "name": lambda row: row["name"],
    "records": lambda row: -row["records"],
    "size": lambda row: -(row["size_bytes"] or 0),
    "rate": lambda row: -(row["rate"] or 0),
}


async def view_topics(desk: Desk, asked: Asked) -> Model:
    """All topics, how large and how busy they are."""
    snapshot, history, query = desk.snapshot, desk.state.history, asked.query
    letters = dead_letter_topics(desk.state)
    wanted, sort = query.get("q", "").strip().lower(), query.get("sort", "name")
    with_internal = query.get("internal") == "1"
    rows = [
        {
            "name": topic.name,
            "is_internal": topic.is_internal,
            "letters": letters.get(topic.name),
            "partitions": len(topic.partitions),
            "replicas": max((len(partition.replicas) for partition in topic.partitions), default=0),
            "is_whole": all(partition.is_whole for partition in topic.partitions),
            "records": topic.records,
            "size_bytes": topic.size_bytes,
            "rate": smooth(history.topics.get(topic.name, ())),
            "spark": sparkline(history.topics.get(topic.name, ())),
            "groups": sum(topic.name in group.topics for group in snapshot.groups.values()),
        }
        for topic in snapshot.topics.values()
        if (with_internal or not topic.is_internal) and wanted in topic.name.lower()
    ]
    rows.sort(key=lambda row: (SORTS.get(sort, SORTS["name"])(row), row["name"]))
    return {
        "rows": rows[:MOST],
        "found": len(rows),
        "hidden": max(len(rows) - MOST, 0),
        "internal_count": sum(topic.is_internal for topic in snapshot.topics.values()),
        "is_filtered": bool(wanted),
        "q": query.get("q", ""),
        "sort": sort if sort in SORTS else "name",
        "with_internal": with_internal,
    }


async def view_topic(desk: Desk, asked: Asked) -> Model:
    """One topic: its partitions, its settings, who reads it, how busy it is."""
    state, snapshot, name = desk.state, desk.snapshot, asked.path["name"]
    history, topic = state.history, find_in(snapshot.topics, "topic", name)
    configs: Sequence[Config] = ()
    problem = ""
    if state.problem is None:
        try:
            configs = await desk.ask_seldom(
                ("configs", name), CONFIG_SECONDS, lambda cluster: describe_configs(cluster, name)
            )
        except ClientError as error:  # the settings may be kept from us; the rest is worth showing
            problem = str(error)
    letters = dead_letter_topics(state)
    readers = [group for group in snapshot.groups.values() if name in group.topics]
    return {
        "topic": topic,
        "replicas": max((len(partition.replicas) for partition in topic.partitions), default=0),
        "rate": smooth(history.topics.get(name, ())),
        "throughput": chart("Written", "records/s", [("written", history.topics.get(name, ()))]),
        "largest": max((partition.records for partition in topic.partitions), default=0),
        "readers": [
            {
                "name": group.name,
                "state": group.state,
                "owner": owner(group, state.statuses, snapshot.at_ms),
                "lag": sum(lag.records or 0 for lag in group.partitions if lag.partition.topic == name),
                "lag_ms": max((age for where, age in group.ages_ms().items() if where.topic == name), default=None),
            }
            for group in readers
        ],
        "letters": letters.get(name),
        "letter_topics": [found for found, known in letters.items() if known.source == name],
        "jobs": [
            {
                "name": reports[-1].job,
                "state": job_state(reports[-1], snapshot.waiting(reports[-1].places), state),
                "lag": snapshot.waiting({at: to for at, to in reports[-1].places.items() if at.topic == name}),
                "lag_ms": state.job_ages_ms.get(key, {}).get(name),
            }
            for key, reports in sorted(state.jobs.items())
            if name in reports[-1].topics
        ],
        "configs": [
            {
                "name": config.name,
                "value": setting(config.name, config.value),
                "meaning": setting_meaning(config.name, config.value),
                "is_own": config.is_own,
            }
            for config in sorted(configs, key=lambda config: (not config.is_own, config.name))
        ],
        "config_problem": problem,
    }


def sample(cluster: Cluster, topic: str, registry: str) -> tuple[Shape, Shape]:
    """The shapes of keys and values of the last records."""
    partitions = cluster.partitions(topic)
    stretch = find_stretch(cluster, partitions, Start(StartKind.LAST, max(SAMPLE // len(partitions), 1)))
    records = [read.record for group in read_records(cluster, stretch.starts, until=stretch.ends) for read in group]
    look_up = schemas_at(registry, lambda: cluster).look_up
    return shape_of([one.key for one in records], look_up), shape_of([one.value for one in records], look_up)


async def view_schema(desk: Desk, asked: Asked) -> Model:
    """The fields of a topic's keys and values, from the registry or inferred from the last records."""
    name = asked.path["name"]
    topic = find_in(desk.snapshot.topics, "topic", name)
    keys, values, problem = Shape("nothing"), Shape("nothing"), ""
    try:
        keys, values = await desk.ask_seldom(
            ("schema", name), SCHEMA_SECONDS, lambda cluster: sample(cluster, name, desk.settings.registry)
        )
    except HeadraceError as error:
        problem = str(error)
    return {"topic": topic, "keys": keys, "values": values, "problem": problem, "sample": SAMPLE}


TOPICS = Page("/topics", "Topics", "topics.html", view_topics, Menu("Log", "Topics", "t", "topics"))
TOPIC = Page("/topics/{name}", "Topic", "topic.html", view_topic, parent="/topics")
SCHEMA = Page("/topics/{name}/schema", "Schema", "schema.html", view_schema, parent="/topics")
