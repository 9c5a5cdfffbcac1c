"""Kafka's own command-line tools: the Java client. Each call is a JVM, so scenarios use few of them.

A tool's outcome is its exit status, what it says on standard output with ids and addresses left out, and the names of
the exceptions that it tells of.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple, Self

from peers.kafka.tools import run_tool

if TYPE_CHECKING:
    from collections.abc import Iterable

_TOPICS = "org.apache.kafka.tools.TopicCommand"
_CONFIGS = "kafka.admin.ConfigCommand"
_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
_DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
_LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
_PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
_ACLS = "org.apache.kafka.tools.AclCommand"
_ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
_REASSIGNMENT = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
_QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
_FEATURES = "org.apache.kafka.tools.FeatureCommand"
_CLIENT_METRICS = "org.apache.kafka.tools.ClientMetricsCommand"
_CLUSTER = "org.apache.kafka.tools.ClusterTool"
_GROUPS = "org.apache.kafka.tools.GroupsCommand"
_STREAMS_GROUPS = "org.apache.kafka.tools.streams.StreamsGroupCommand"
_TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
_API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"

_EXCEPTION = re.compile(r"org\.apache\.kafka\.common\.errors\.(\w+)")
_BY_CHANCE = re.compile(r"TopicId: \S+|127\.0\.0\.1:\d+")


_PATIENCE = ("--timeout-ms", "20000")


class Said(NamedTuple):
    """What a tool said."""

    status: int
    lines: list[str]
    errors: list[str]


class Java:
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")

    def __init__(self, servers: str) -> None:
        self.servers = servers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def _run(self, tool: str, *args: str, said: str = "", command: str = "") -> Said:
        before = [command] if command else []  # some have theirs in front of everything
        args = (*before, "--bootstrap-server", self.servers, *args)
        finished = run_tool(tool, *args, check=False, standard_input=said)
        lines = [_BY_CHANCE.sub("…", line.rstrip()) for line in finished.stdout.splitlines()]
        errors = sorted(set(_EXCEPTION.findall(finished.stdout + finished.stderr)))
        # The sentence of an error is the broker's own; its kind is what is compared.
        told = [line for line in lines if line and not line.startswith("Error while executing")]
        return Said(finished.returncode, told, errors)

    def topics(self, *args: str) -> Said:
        return self._run(_TOPICS, *args)

    def configs(self, *args: str) -> Said:
        return self._run(_CONFIGS, *args)

    def produce(self, topic: str, lines: Iterable[str], *properties: str, codec: str = "none") -> Said:
        """Lines of `headers TAB key TAB value`."""
        args = ["--topic", topic, "--compression-codec", codec, "--reader-property", "parse.key=true"]
        args += ["--reader-property", "parse.headers=true", "--reader-property", "null.marker=NULL"]
        for each in properties:
            args += ["--command-property", each]
        return self._run(_PRODUCER, *args, said="".join(f"{line}\n" for line in lines))

    def consume(self, topic: str, count: int, *args: str) -> Said:
        shown = ("timestamp", "partition", "offset", "key", "headers")
        formatting = [part for name in shown for part in ("--formatter-property", f"print.{name}=true")]
        return self._run(_CONSUMER, "--topic", topic, "--max-messages", str(count), *_PATIENCE, *formatting, *args)

    def offsets(self, topic: str, time: str) -> Said:
        return self._run(_OFFSETS, "--topic", topic, "--time", time)

    def delete_records(self, asked: str) -> Said:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "offsets.json"
            path.write_text(asked, encoding="utf-8")
            return self._run(_DELETE_RECORDS, "--offset-json-file", str(path))

    def acls(self, *args: str) -> Said:
        return self._run(_ACLS, *args)

    def elect(self, *args: str) -> Said:
        return self._run(_ELECTION, *args)

    def reassign(self, plan: str, *args: str) -> Said:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "plan.json"
            path.write_text(plan, encoding="utf-8")
            return self._run(_REASSIGNMENT, "--reassignment-json-file", str(path), *args)

    def plan(self, topics: object, *args: str) -> Said:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "topics.json"
            path.write_text(json.dumps(topics), encoding="utf-8")
            return self._run(_REASSIGNMENT, "--topics-to-move-json-file", str(path), *args)

    def log_dirs(self, topic: str) -> Said:
        return self._run(_LOG_DIRS, "--describe", "--topic-list", topic)

    def performance(self, topic: str, records: int, *properties: str) -> Said:
        """The producer's own benchmark; how fast it was is left out."""
        args = ["--topic", topic, "--num-records", str(records), "--record-size", "100", "--throughput", "-1"]
        args += ["--command-property", f"bootstrap.servers={self.servers}", *properties]
        finished = run_tool(_PERFORMANCE, *args, check=False)
        return Said(finished.returncode, [], sorted(set(_EXCEPTION.findall(finished.stdout + finished.stderr))))

    def quorum(self, *args: str) -> Said:
        return self._run(_QUORUM, *args)

    def features(self, *args: str) -> Said:
        return self._run(_FEATURES, *args)

    def client_metrics(self, *args: str) -> Said:
        return self._run(_CLIENT_METRICS, *args)

    def cluster(self, command: str, *args: str) -> Said:
        return self._run(_CLUSTER, *args, command=command)

    def streams_groups(self, *args: str) -> Said:
        return self._run(_STREAMS_GROUPS, *args, "--timeout", "20000")

    def groups(self, *args: str) -> Said:
        return self._run(_GROUPS, *args)

    def transactions(self, *args: str) -> Said:
        return self._run(_TRANSACTIONS, *args)

    def api_versions(self) -> Said:
        return self._run(_API_VERSIONS)
