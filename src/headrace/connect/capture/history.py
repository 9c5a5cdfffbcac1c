"""The history of tables' shapes, made anew from the database as it is: for when the topic that holds it was lost."""

import time

from headrace.client.cluster import Cluster
from headrace.connect.capture.settings import CaptureSettings
from headrace.connect.delivery import Delivery
from headrace.connect.errors import SourceRefused


def rebuild(settings: CaptureSettings, cluster: Cluster) -> str:
    """Write the history down again, and the position that goes with it, for a capture that does not run; the GTID.

    Whoever runs under the same name is fenced: a position must not be written from two places.
    """
    if settings.kind.connector != "mysql":
        raise SourceRefused(f"capture {settings.name!r} keeps no history: only those of MariaDB and MySQL need one")
    from headrace.connect.mysql.history import TopicHistory
    from headrace.connect.mysql.memory import rebuild_history

    delivery = Delivery(cluster, settings.name, settings.topics)
    position = delivery.begin()
    if position is None:
        raise SourceRefused(f"capture {settings.name!r} has no position yet, and so no history", "headrace cdc start")
    made = rebuild_history(settings.source, TopicHistory(cluster, settings.name), position)
    delivery.deliver([], made, time.time_ns() // 1_000_000)
    return str(made["gtid"])
