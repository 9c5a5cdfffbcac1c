"""One cluster per process and address: Spark uses its Python workers again, so their connections live on too.

A worker does one thing at a time, so what is kept here is never used twice at once; a forked worker starts without any.
"""

import os
from collections.abc import Mapping

from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.security import settings_from
from headrace.retry import Backoff

_PATIENCE = Backoff(0.005, 2.0, retries=14)  # about ten seconds: a broker's restart
_clusters: dict[tuple[int, str, tuple[tuple[str, str], ...]], Cluster] = {}


def cluster_at(bootstrap: str, connection: Mapping[str, str]) -> Cluster:
    """The cluster behind a bootstrap address; `connection` are Kafka's own names for how to reach it."""
    key = (os.getpid(), bootstrap, tuple(sorted(connection.items())))
    if key not in _clusters:
        _clusters[key] = Cluster(parse_bootstrap(bootstrap), settings_from(connection), retry=_PATIENCE)
    return _clusters[key]


def close_clusters() -> None:
    """Close every connection of this process; the next use connects anew."""
    for cluster in _clusters.values():
        cluster.close()
    _clusters.clear()
