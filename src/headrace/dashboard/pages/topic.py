"""One topic: its partitions, its settings, who reads it, how busy it is."""

from collections.abc import Sequence

from headrace.client.admin import Config, describe_configs
from headrace.client.errors import ClientError
from headrace.dashboard.charts import chart
from headrace.dashboard.desk import Desk
from headrace.dashboard.errors import NotThere
from headrace.dashboard.format import setting, setting_meaning
from headrace.dashboard.history import History, smoothed
from headrace.dashboard.page import Asked, Model, Page
from headrace.dashboard.snapshot import Snapshot, TopicSample

CONFIG_SECONDS = 15.0


def topic_in(snapshot: Snapshot, name: str) -> TopicSample:
    """The topic of this name."""
    topic = snapshot.topics.get(name)
    if topic is None:
        raise NotThere(f"There is no topic {name!r}: it was deleted, or the name is another.")
    return topic


def model(snapshot: Snapshot, history: History, name: str, configs: Sequence[Config], problem: str = "") -> Model:
    """What the page shows."""
    topic = topic_in(snapshot, name)
    readers = [group for group in snapshot.groups.values() if name in group.topics]
    return {
        "topic": topic,
        "replicas": max((len(partition.replicas) for partition in topic.partitions), default=0),
        "rate": smoothed(history.topics.get(name, ())),
        "throughput": chart("Written", "records/s", [("written", history.topics.get(name, ()))]),
        "largest": max((partition.records for partition in topic.partitions), default=0),
        "readers": [
            {
                "name": group.name,
                "state": group.state,
                "lag": sum(lag.records or 0 for lag in group.partitions if lag.partition.topic == name),
            }
            for group in readers
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


async def view(desk: Desk, asked: Asked) -> Model:
    """What the page shows now."""
    state, name = desk.state, asked.path["name"]
    assert state.snapshot is not None
    topic_in(state.snapshot, name)
    configs: Sequence[Config] = ()
    problem = ""
    if state.problem is None:
        try:
            configs = await desk.ask_seldom(
                ("configs", name), CONFIG_SECONDS, lambda cluster: describe_configs(cluster, name)
            )
        except ClientError as error:  # the settings may be kept from us; the rest is worth showing
            problem = str(error)
    return model(state.snapshot, state.history, name, configs, problem)


PAGE = Page("/topics/{name}", "Topic", "topic.html", view, parent="/topics")
