"""A gateway of any kind in a thread of this process, or in a process of its own, and what it wrote."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.errors import UnknownTopic
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.gateways.gateway import Gateway, GatewayKind
from headrace.records import Record
from headrace.section_keys import with_defaults


@contextmanager
def running(kind: GatewayKind, bootstrap: str, name: str = "test", **values: Any) -> Iterator[Any]:
    """One at work in a thread; it has to end well."""
    stopping = threading.Event()
    gateway: Gateway = kind.make(name, with_defaults(kind.keys, values), parse_bootstrap(bootstrap), stopping)
    errors: list[BaseException] = []

    def run() -> None:
        try:
            gateway.run()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name=f"test-{name}")
    thread.start()
    try:
        yield gateway
    finally:
        stopping.set()
        thread.join(20)
        assert not errors, errors
        assert not thread.is_alive()


def started(kind: str, name: str, bootstrap: str, *options: str) -> "subprocess.Popen[str]":
    """`headrace gateway KIND …` in a process of its own, once it has reported itself."""
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace.cli.main", "gateway", kind, "--name", name, "--bootstrap", bootstrap, "--json",
         *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    if not process.stdout.readline():
        raise AssertionError(process.communicate())
    return process


def written(bootstrap: str, topic: str) -> list[Record]:
    """All records of a topic that count, partition by partition in their order."""
    with Cluster(parse_bootstrap(bootstrap)) as cluster:
        try:
            held = bounds(cluster, cluster.partitions(topic))
        except UnknownTopic:
            return []
        starts = {where: bound.start for where, bound in held.items() if bound.end > bound.start}
        until = {where: held[where].end for where in starts}
        found = read_records(cluster, starts, until=until, options=FetchOptions(committed=True))
        return [record for read in found for _, record in read]


def values_of(bootstrap: str, topic: str) -> list[bytes]:
    return [record.value or b"" for record in written(bootstrap, topic)]


def wait_for(condition: Callable[[], object], what: str, timeout_s: float = 30) -> None:
    """Until something is so; fails with what was waited for."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.02)


def checked(kind: GatewayKind, values: Mapping[str, Any], name: str = "test") -> object:
    """What the kind's own check makes of values."""
    return kind.check(name, with_defaults(kind.keys, values))
