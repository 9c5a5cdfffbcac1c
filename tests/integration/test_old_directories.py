"""Data directories that earlier versions wrote are opened: every record, offset, group, transaction and ACL is there.

`old_directories/NN-….tar.gz` are directories as versions of 15 and 16 November 2026 left them, before and after the way
of writing changed: before groups; with groups and transactions; with topic ids; with derived systems; before and after
the broker had a log of its own for its metadata. With each goes what was in it, as its clients knew it.

`PYTHONPATH=OTHER/src:. python -m tests.integration.test_old_directories NAME [killed]` makes one with the code of
`OTHER`. So nothing of Headrace is imported here but the broker that opens them.
"""

import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import admin as kafka_admin

KEPT = Path(__file__).with_name("old_directories")
SETTINGS = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "2"}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PATIENCE_S = 60


def end_of(future: Any) -> Any:
    return future.result(timeout=PATIENCE_S)


class Clients:
    """What users have: a client that is not ours."""

    def __init__(self, servers: str) -> None:
        self.servers = {"bootstrap.servers": servers}
        self.admin = kafka_admin.AdminClient(self.servers)

    def make_topics(self) -> None:
        wanted = {"orders": (2, {"retention.ms": "-1"}), "latest": (1, {"cleanup.policy": "compact"}), "paid": (1, {})}
        topics = [kafka_admin.NewTopic(name, count, 1, config=config) for name, (count, config) in wanted.items()]
        for made in self.admin.create_topics(topics).values():
            end_of(made)

    def produce(self, topic: str, first: int, count: int, codec: str = "none", **settings: Any) -> None:
        producer = confluent_kafka.Producer({**self.servers, "compression.type": codec, **settings})
        for number in range(first, first + count):
            headers = [("n", b"%d" % number), ("none", None)]
            key = b"key-%d" % (number % 7)
            producer.produce(topic, b"%s %d" % (codec.encode(), number), key, partition=0, headers=headers)
        assert producer.flush(PATIENCE_S) == 0

    def transact(self, name: str, end: str) -> confluent_kafka.Producer:
        """Three records in a transaction that is committed, aborted, or left open."""
        producer = confluent_kafka.Producer({**self.servers, "transactional.id": name})
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        for number in range(3):
            producer.produce("paid", b"%s %d" % (name.encode(), number), b"k", partition=0)
        assert producer.flush(PATIENCE_S) == 0
        if end == "commit":
            producer.commit_transaction(PATIENCE_S)
        elif end == "abort":
            producer.abort_transaction(PATIENCE_S)
        return producer

    def commit(self, group: str, topic: str, offset: int) -> None:
        consumer = confluent_kafka.Consumer({**self.servers, "group.id": group})
        place = confluent_kafka.TopicPartition(topic, 0, offset, metadata=f"{group} was here")
        consumer.commit(offsets=[place], asynchronous=False)
        consumer.close()

    def read(self, topic: str, partition: int, isolation: str = "read_uncommitted") -> list[list[Any]]:
        """Every record up to the end, which a marker may be: offset, time, key, value, headers."""
        settings = {"group.id": "reading", "enable.partition.eof": True, "isolation.level": isolation}
        settings["enable.auto.commit"] = False
        consumer = confluent_kafka.Consumer({**self.servers, **settings})
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
        records = []
        while True:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"{topic} {partition} does not end"
            if message.error():
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
                consumer.close()
                return records
            headers = [[name, None if value is None else value.hex()] for name, value in message.headers() or ()]
            record = [message.offset(), message.timestamp()[1], message.key(), message.value()]
            records.append([*record[:2], *(each and each.decode() for each in record[2:]), headers])

    def committed(self, group: str, topic: str) -> tuple[int, str]:
        asked = confluent_kafka.ConsumerGroupTopicPartitions(group, [confluent_kafka.TopicPartition(topic, 0)])
        (future,) = self.admin.list_consumer_group_offsets([asked]).values()
        (place,) = end_of(future).topic_partitions
        return place.offset, place.metadata

    def settings(self, topic: str) -> dict[str, str]:
        resource = kafka_admin.ConfigResource(kafka_admin.ResourceType.TOPIC, topic)
        (future,) = self.admin.describe_configs([resource]).values()
        own = kafka_admin.ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {name: entry.value for name, entry in end_of(future).items() if entry.source == own}

    def secure(self) -> list[str]:
        """What only newer versions keep: an ACL, a user's password, and a setting of the broker."""
        kept = []
        acl = kafka_admin.AclBinding(*ACL)
        for name, do in {
            "acl": lambda: end_of(self.admin.create_acls([acl])[acl]),
            "user": lambda: end_of(
                self.admin.alter_user_scram_credentials(
                    [
                        kafka_admin.UserScramCredentialUpsertion(
                            "alice",
                            kafka_admin.ScramCredentialInfo(kafka_admin.ScramMechanism.SCRAM_SHA_256, 4096),
                            b"secret",
                        )
                    ]
                )["alice"]
            ),
        }.items():
            try:
                do()
            except confluent_kafka.KafkaException:
                continue  # that version has no such thing
            kept.append(name)
        return kept

    def what_is_there(self) -> dict[str, Any]:
        """Everything that a later version has to show as well."""
        topics = self.admin.list_topics(timeout=PATIENCE_S).topics
        return {
            "topics": {name: len(topic.partitions) for name, topic in topics.items() if not name.startswith("__")},
            "settings": {name: self.settings(name) for name in ("orders", "latest")},
            "orders": [self.read("orders", partition) for partition in range(2)],
            "latest": self.read("latest", 0),
            "paid": self.read("paid", 0, "read_committed"),
            "paid, not all of it for good": self.read("paid", 0),
        }


ACL = (
    kafka_admin.ResourceType.TOPIC,
    "orders",
    kafka_admin.ResourcePatternType.LITERAL,
    "User:alice",
    "*",
    kafka_admin.AclOperation.READ,
    kafka_admin.AclPermissionType.ALLOW,
)


# --- making one


def make(name: str, *, killed: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "headrace.cli.main", "broker", "start", "--json"]
        command += ["--data-dir", f"{folder}/data", "--listen", "127.0.0.1:0"]
        if "before-groups" not in name:
            for setting in SETTINGS.items():
                command += ["--set", "=".join(setting)]
        broker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert broker.stdout is not None
        clients = Clients(json.loads(broker.stdout.readline())["listeners"][0])
        open_producers: list[confluent_kafka.Producer] = []  # one that is dropped may abort what it left open
        facts = _fill(clients, open_producers)
        broker.send_signal(signal.SIGKILL if killed else signal.SIGTERM)
        broker.wait()
        facts["ended"] = "killed" if killed else "in order"
        Path(folder, "facts.json").write_text(json.dumps(facts))
        KEPT.mkdir(exist_ok=True)
        with tarfile.open(KEPT / f"{name}.tar.gz", "w:gz", compresslevel=9) as archive:
            archive.add(f"{folder}/data", "data")
            archive.add(f"{folder}/facts.json", "facts.json")


def _fill(clients: Clients, open_producers: list[confluent_kafka.Producer]) -> dict[str, Any]:
    clients.make_topics()
    for number, codec in enumerate(CODECS):
        clients.produce("orders", number * 10, 10, codec)
        clients.produce("latest", number * 10, 10, codec)
    clients.produce("orders", 50, 5, **{"enable.idempotence": True})
    facts: dict[str, Any] = {"groups": {}, "transactions": [], "secured": clients.secure()}
    try:
        clients.commit("billing", "orders", 17)
        clients.commit("shipping", "latest", 3)
        facts["groups"] = {"billing": ["orders", 17], "shipping": ["latest", 3]}
        for end in ("commit", "abort", "open"):
            open_producers.append(clients.transact(f"x-{end}", end))
            facts["transactions"].append(end)
    except confluent_kafka.KafkaException as error:
        facts["without"] = str(error)
    return facts | {"there": clients.what_is_there()}


# --- opening it


@pytest.fixture(params=sorted(path.name.removesuffix(".tar.gz") for path in KEPT.glob("*.tar.gz")))
def old(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A directory that was kept, and what was in it."""
    with tarfile.open(KEPT / f"{request.param}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "data", json.loads((tmp_path / "facts.json").read_text())


@pytest.fixture
def clients(old: tuple[Path, dict[str, Any]]) -> Iterator[Clients]:
    from headrace import Broker

    with Broker(old[0], settings=SETTINGS) as broker:
        yield Clients(broker.bootstrap_servers)


def test_all_that_was_there_is_there_and_goes_on(old: tuple[Path, dict[str, Any]], clients: Clients) -> None:
    folder, facts = old
    assert clients.what_is_there() == facts["there"]
    for group, (topic, offset) in facts["groups"].items():
        assert clients.committed(group, topic) == (offset, f"{group} was here")
    _check_secured(clients, facts["secured"])

    # It goes on: the numbers of a producer, of a transaction and of a group are those of before.
    there = len(facts["there"]["orders"][0])
    clients.produce("orders", 55, 5, **{"enable.idempotence": True})
    assert [record[0] for record in clients.read("orders", 0)] == list(range(there + 5))
    paid = [record[3] for record in facts["there"]["paid"]]
    for end in facts["transactions"]:
        clients.transact(f"x-{end}", "commit")
        paid += [f"x-{end} {number}" for number in range(3)]
    if facts["transactions"]:
        clients.commit("billing", "orders", 40)
        assert clients.committed("billing", "orders")[0] == 40
        for end in facts["transactions"]:
            # A commit is answered before its marker is written: the next one of the same name waits for that.
            clients.transact(f"x-{end}", "abort")
        assert [record[3] for record in clients.read("paid", 0, "read_committed")] == paid
    # The way back: earlier versions refuse this file if there is more in it than they know.
    known = {"cluster_id", "directory_id", "starts", "next_producer_id"}
    assert json.loads((folder / "broker.json").read_text()).keys() == known


def _check_secured(clients: Clients, secured: list[str]) -> None:
    if "acl" in secured:
        anything = kafka_admin.AclBindingFilter(
            kafka_admin.ResourceType.ANY,
            None,
            kafka_admin.ResourcePatternType.ANY,
            None,
            None,
            kafka_admin.AclOperation.ANY,
            kafka_admin.AclPermissionType.ANY,
        )
        assert end_of(clients.admin.describe_acls(anything)) == [kafka_admin.AclBinding(*ACL)]
    if "user" in secured:
        described = end_of(clients.admin.describe_user_scram_credentials(["alice"])["alice"])
        assert [info.iterations for info in described.scram_credential_infos] == [4096]


if __name__ == "__main__":
    os.chdir(Path(__file__).parents[2])
    make(sys.argv[1], killed=sys.argv[2:] == ["killed"])
