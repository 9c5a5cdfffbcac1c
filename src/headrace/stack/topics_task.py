"""Makes the topics of a stack: `python -m headrace.stack.topics_task BOOTSTRAP FILE`, a task that ends.

What is missing is made; settings that the file names are set where they differ. A topic never loses anything by it:
partitions are not added to one that is there, because the places of its keys would move.
"""

import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headrace.client.address import parse_bootstrap
from headrace.client.admin import BROKERS_CHOICE, alter_configs, create_topic, describe_configs
from headrace.client.cluster import Cluster
from headrace.client.connection import ConnectionSettings
from headrace.client.errors import UnknownTopic
from headrace.errors import HeadraceError
from headrace.retry import Backoff
from headrace.telemetry import logs

_log = logs.get_logger("headrace.stack.topics")
_PATIENCE = Backoff(0.05, 2.0, retries=14)


def ensure_topics(cluster: Cluster, topics: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Make topics as they are described; tells what was done, or could not be."""
    for name, wanted in topics.items():
        try:
            there = cluster.topic(name, refresh=True)
        except UnknownTopic:
            create_topic(
                cluster,
                name,
                partitions=wanted["partitions"],
                replication_factor=wanted.get("replication_factor", BROKERS_CHOICE),
                configs=wanted["configs"],
            )
            yield f"made topic {name} with {_count(wanted['partitions'])}"
            continue
        if len(there.partitions) != wanted["partitions"]:
            yield (
                f"topic {name} has {_count(len(there.partitions))} and not {wanted['partitions']} as the file says, "
                f"and keeps them: headrace topic alter {name} adds some, and moves the places of its keys"
            )
        held = {config.name: config.value for config in describe_configs(cluster, name)}
        changes = {key: value for key, value in wanted["configs"].items() if held.get(key) != value}
        if changes:
            alter_configs(cluster, name, changes=changes)
            yield f"set {', '.join(f'{key}={value}' for key, value in changes.items())} for topic {name}"


def _count(number: int) -> str:
    return f"{number} partition" if number == 1 else f"{number} partitions"


def main() -> None:
    """Do it, and end; what is refused is one sentence."""
    logs.configure(as_json=True)
    bootstrap, file = sys.argv[1], Path(sys.argv[2])
    topics = tomllib.loads(file.read_text(encoding="utf-8"))["topics"]
    try:
        with Cluster(
            parse_bootstrap(bootstrap), ConnectionSettings(client_id="headrace-up"), retry=_PATIENCE
        ) as cluster:
            cluster.brokers()
            for sentence in ensure_topics(cluster, topics):
                _log.info(sentence)
    except HeadraceError as error:
        print(f"headrace: {error}", file=sys.stderr)  # noqa: T201 - the last word of a process
        sys.exit(1)


if __name__ == "__main__":
    main()
