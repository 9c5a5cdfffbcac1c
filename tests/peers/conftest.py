"""Against other people's servers, which are large: `make test-peers` fetches and runs them, `make test` does not.

Tests of integration run on another PostgreSQL with `HEADRACE_POSTGRES=<its bin>`, and on MySQL 8 with
`HEADRACE_MYSQL=<its mysqld>`.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from peers.apicurio.registry import CONFLUENT, apicurio_registry
from peers.http_server import HttpServer, running
from peers.opensearch.node import opensearch_node

collect_ignore_glob = [] if os.environ.get("HEADRACE_PEERS") else ["test_*.py"]


@pytest.fixture(scope="session")
def opensearch_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    """A node with nothing in it."""
    with running(opensearch_node(tmp_path_factory.mktemp("opensearch"))) as node:
        yield node


@pytest.fixture(scope="session")
def registry_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A registry that knows nothing yet."""
    folder: Path = tmp_path_factory.mktemp("apicurio")
    with running(apicurio_registry(folder)) as server:
        yield server.url + CONFLUENT
