"""The topics of a stack on a real broker: made, set, and never harmed."""

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import describe_configs
from headrace.client.cluster import Cluster
from headrace.stack.topics_task import ensure_topics


def test_topics_become_what_the_file_says(headrace_broker: Broker) -> None:
    wanted = {"up-a": {"partitions": 2, "configs": {"retention.ms": "5000"}}, "up-b": {"partitions": 1, "configs": {}}}
    with Cluster(parse_bootstrap(headrace_broker.bootstrap_servers)) as cluster:
        assert list(ensure_topics(cluster, wanted)) == [
            "made topic up-a with 2 partitions",
            "made topic up-b with 1 partition",
        ]
        assert list(ensure_topics(cluster, wanted)) == []
        changed = {"up-a": {"partitions": 4, "configs": {"retention.ms": "6000"}}}
        told, done = ensure_topics(cluster, changed)
        assert told.startswith("topic up-a has 2 partitions and not 4 as the file says, and keeps them")
        assert done == "set retention.ms=6000 for topic up-a"
        assert len(cluster.topic("up-a", refresh=True).partitions) == 2
        held = {config.name: config.value for config in describe_configs(cluster, "up-a")}
        assert held["retention.ms"] == "6000"
