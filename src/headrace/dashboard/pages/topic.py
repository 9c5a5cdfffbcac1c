"""One topic: its partitions, its settings, who reads it, how busy it is."""

from collections.abc import Sequence

from headrace.client.admin import Config, describe_configs
from headrace.client.errors import ClientError
from headrace.dashboard.charts import chart
from headrace.dashboard.dead_letters import dead_letter_topics
from headrace.dashboard.desk import Desk
from headrace.dashboard.errors import NotThere
from headrace.dashboard.format import setting, setting_meaning
from headrace.dashboard.history import smoothed
from headrace.dashboard.page import Asked, Model, Page
from headrace.dashboard.pages.groups import owner
from headrace.dashboard.pages.pipelines import state_of
from headrace.dashboard.snapshot import Snapshot, TopicSample
from headrace.dashboard.watch import State

CONFIG_SECONDS = 15.0


def topic_in(snapshot: Snapshot, name: str) -> TopicSample:
    """The topic of this name."""
    topic = snapshot.topics.get(name)
    if topic is None:
        raise NotThere(f"There is no topic {name!r}: it was deleted, or the name is misspelt.")
    return topic


def model(state: State, name: str, configs: Sequence[Config], problem: str = "") -> Model:
    """What the page shows."""
    snapshot, history = state.snapshot, state.history
    assert snapshot is not None
    topic = topic_in(snapshot, name)
    letters = dead_letter_topics(state)
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
                "state": state_of(reports[-1], snapshot.waiting(reports[-1].places), state.at_ms),
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
    return model(state, name, configs, problem)


PAGE = Page("/topics/{name}", "Topic", "topic.html", view, parent="/topics")
