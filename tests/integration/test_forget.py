"""`headrace forget` on event stores and topics: done, reported, verified, killed and run again."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import configs_of_topics, create_topic
from headrace.client.cluster import Cluster
from headrace.client.writer import NewRecord
from headrace.dead_letters import write_letters
from headrace.delivery.letters import Letter
from headrace.eventsourcing import EventTypes, Projection, ProjectionRunner, StreamAppend, View, open_store
from headrace.eventsourcing.model import Snapshot
from headrace.forgetting import Keyring, open_keys
from headrace.forgetting.master_key import create_master_key
from tests.integration.cli_runs import Run, assert_one_sentence, run_cli
from tests.integration.sync_topics import write

ADA = "Ada Łovelace"
FILE = """
[broker]
bootstrap = "{bootstrap}"

[forgetting]
keys = "sqlite:///keys.db"
master_key_file = "master.key"
topics = {{ "signups" = "customer", "visits" = "customer" }}

[events.file]
url = "sqlite:///shop.db"

[events.log]
url = "kafka://{bootstrap}/shop-events"
"""


@dataclass(frozen=True)
class Registered:
    customer: str
    name: str


class Shop:
    """A folder with a stack's file, keys, event stores and topics, on a broker that runs."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.folder, self.bootstrap = folder, bootstrap
        self.config = folder / "headrace.toml"
        self.config.write_text(FILE.format(bootstrap=bootstrap))
        create_master_key(folder / "master.key")
        self.keys = self.open_keys()
        self.types = EventTypes()
        self.types.event("registered", subject="customer", personal=["name"])(Registered)
        self.types.use_keys(self.keys)
        self.stores = [open_store(f"sqlite:///{folder}/shop.db"), open_store(f"kafka://{bootstrap}/shop-events")]

    def open_keys(self) -> Keyring:
        return open_keys("sqlite:///keys.db", master_key_file="master.key", folder=self.folder, recheck_s=0)

    def register(self, customer: str, name: str) -> None:
        for store in self.stores:
            store.append([StreamAppend(f"customer-{len(customer)}", [self.types.encode(Registered(customer, name))])])

    def names(self) -> list[str]:
        return [self.types.decode(event).name for store in self.stores for event in store.read()]

    def run(self, *arguments: str, stdin: str = "") -> Run:
        return run_cli(*arguments, "--config", str(self.config), bootstrap=self.bootstrap, stdin=stdin)

    def forget(self, subject: str, *more: str) -> Run:
        return self.run("forget", subject, "--yes", "--json", *more)

    def verify(self, subject: str, *values: str) -> Run:
        return self.run("forget", subject, "--verify", "--values", "-", "--json", stdin="\n".join(values))

    def cluster(self) -> Cluster:
        return Cluster(parse_bootstrap(self.bootstrap))

    def make_topic(self, name: str, policy: str, values: list[tuple[str | None, Any]]) -> None:
        with self.cluster() as cluster:
            create_topic(cluster, name, partitions=1, configs={"cleanup.policy": policy})
        self.write(name, values)

    def write(self, name: str, values: list[tuple[str | None, Any]]) -> None:
        encoded = [(None if key is None else key.encode(), json.dumps(value).encode()) for key, value in values]
        write(self.bootstrap, name, [NewRecord(key, value, 1) for key, value in encoded])


def found(run: Run, place: str) -> list[tuple[str, str, int]]:
    return [
        (one["what"], one["outcome"], one["count"]) for one in run.json["findings"] if one["place"].startswith(place)
    ]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    settings = {"log.cleaner.backoff.ms": "200"}
    with Broker(tmp_path / "broker", durability="os", settings=settings) as broker:
        made = Shop(tmp_path, broker.bootstrap_servers)
        yield made
        for each in (*made.stores, made.keys):
            each.close()


def test_forgotten_everywhere_and_verified(shop: Shop) -> None:
    for customer, name in (("c-1", ADA), ("c-2", "Grace"), ("c-1", f"{ADA} King")):
        shop.register(customer, name)
    sealed = [shop.keys.seal({"customer": who, "name": name}, subject=who, fields=["name"])
              for who, name in (("c-1", ADA), ("c-2", "Grace"))]  # fmt: skip
    shop.make_topic("orders", "delete", [(None, one) for one in sealed])
    with shop.cluster() as cluster:
        letter = Letter("orders", 0, 0, 1, b"k", json.dumps(sealed[0]).encode(), "bad", "json", "job")
        write_letters(cluster, "orders.dead-letters", [letter])

    shop.stores[0].write_snapshot("customer-3", Snapshot(1, "fold", f'{{"name":"{ADA}"}}'.encode()))
    seen = shop.verify("c-1", ADA)
    where = {hit["where"] for hit in seen.json["hits"]}
    assert where - {"file shop.db"} == {"the snapshot of stream customer-3", "file shop.db-wal"}, "one from before"

    dry = shop.forget("c-1", "--dry-run")
    assert dry.code == 0, dry
    assert found(dry, "key store") == [("keys", "erased", 1)]
    assert shop.names() == [ADA, "Grace", f"{ADA} King"] * 2

    done = shop.forget("c-1")
    assert done.code == 0, done
    assert found(done, "key store") == [("keys", "erased", 1)]
    assert found(done, "event store file") == [("events", "unreadable", 2), ("snapshots", "erased", 1)]
    assert found(done, "topic shop-events") == [("records", "unreadable", 2)]
    assert found(done, "topic orders") == [("records", "unreadable", 1), ("records", "unreadable", 1)]
    assert ADA not in done.out
    assert shop.names() == ["(forgotten)", "Grace", "(forgotten)"] * 2
    assert shop.keys.open_sealed(sealed[1])["name"] == "Grace"

    again = shop.forget("c-1")
    assert again.code == 0
    assert found(again, "event store file") == [("events", "unreadable", 2)]
    verified = shop.verify("c-1", ADA, "Łovelace")
    assert verified.code == 0, verified
    assert verified.json["hits"] == []
    status = shop.run("keys", "status", "--json")
    assert (status.code, len(status.json["forgotten"]), status.json["brought_back"]) == (0, 1, [])


def test_plain_records_go_by_compaction_or_are_reported(shop: Shop) -> None:
    plain = {"customer": "c-1", "name": ADA}
    other = {"customer": "c-2", "name": "Grace"}
    change = {"before": None, "after": plain, "op": "c"}
    shop.make_topic("signups", "compact", [("a", plain), ("b", other), ("c", change), ("a", {**plain, "n": 2})])
    shop.make_topic("visits", "delete", [("a", plain), (None, plain), (None, other)])
    with shop.cluster() as cluster:
        letter = Letter("signups", 0, 0, 1, b"a", json.dumps(plain).encode(), "bad", "json", "job")
        write_letters(cluster, "signups.dead-letters", [letter])
        before = configs_of_topics(cluster, ["signups"])
    seen = shop.verify("c-1", ADA)
    assert seen.code == 1
    assert {(hit["place"], hit["value"]) for hit in seen.json["hits"]} == {
        ("topic signups", 1), ("topic signups.dead-letters", 1), ("topic visits", 1),
    }  # fmt: skip
    assert ADA not in seen.out

    done = shop.forget("c-1")
    assert done.code == 1, done
    assert found(done, "topic signups") == [("plain records", "erased", 3), ("plain records", "erased", 1)]
    assert found(done, "topic visits") == [("plain records", "could not be", 1), ("plain records", "could not be", 1)]
    assert "retention deletes them after 7 days" in done.out
    with shop.cluster() as cluster:
        assert configs_of_topics(cluster, ["signups"]) == before, "its settings are put back"
    verified = shop.verify("c-1", ADA)
    assert {hit["place"] for hit in verified.json["hits"]} == {"topic visits"}
    assert shop.verify("c-1", "Grace").json["hits"], "others are untouched"


def test_a_key_that_is_somebody_elses_by_now_keeps_its_record(shop: Shop) -> None:
    of_ada, of_grace = {"customer": "c-1", "name": ADA}, {"customer": "c-2", "name": "Grace"}
    shop.make_topic("signups", "compact", [("seat-1", of_ada), ("seat-2", of_grace), ("seat-1", of_grace)])
    assert found(shop.forget("c-1"), "topic signups") == [("plain records", "erased", 1)]
    hits = shop.verify("c-1", ADA, "Grace").json["hits"]
    assert [(hit["place"], hit["value"]) for hit in hits] == [("topic signups", 2)] * 2, "both seats are Grace's"


def test_views_that_were_told_something_are_reported_until_they_are_rebuilt(shop: Shop) -> None:
    shop.register("c-1", ADA)
    people = Projection("people", types=shop.types)

    @people.on
    def registered(view: View, event: Registered) -> None:
        view.put(event.customer, {"name": event.name})

    runner = ProjectionRunner(shop.stores[0], people)
    runner.catch_up()
    for _ in range(2):
        done = shop.forget("c-1")
        assert done.code == 1
        assert ("view people", "could not be", 0) in found(done, "event store file")
        assert [hit["where"] for hit in shop.verify("c-1", ADA).json["hits"]]
    runner.rebuild()
    assert shop.forget("c-1").code == 0
    assert runner.get("c-1") == {"name": "(forgotten)"}


def test_a_subject_that_nobody_knows_is_not_said_to_be_erased(shop: Shop) -> None:
    done = shop.forget("c-l")
    assert found(done, "key store") == [("keys", "nothing there", 0)]
    assert "check how it is written" in done.out


def test_a_key_store_from_a_backup_is_noticed_and_forgets_again(shop: Shop) -> None:
    shop.register("c-1", ADA)
    shop.keys.store.close()
    shutil.copy(shop.folder / "keys.db", shop.folder / "backup.db")
    assert shop.forget("c-1").code == 0
    for file in shop.folder.glob("keys.db*"):
        file.unlink()
    shutil.copy(shop.folder / "backup.db", shop.folder / "keys.db")
    assert shop.verify("c-1", ADA).code == 1
    status = shop.run("keys", "status", "--json")
    assert status.code == 1
    assert len(status.json["brought_back"]) == 1
    other = shop.forget("c-2")  # whoever it is run for
    assert other.code == 0, other
    assert ("keys of others", "erased", 1) in found(other, "key store")
    shop.types.use_keys(shop.open_keys())
    assert shop.names() == ["(forgotten)"] * 2
    assert shop.run("keys", "status").code == 0


@pytest.mark.parametrize("moment", ["forget_digest", "add_act", "_restore", "delete_snapshots"])
def test_killed_in_the_middle_and_run_again(shop: Shop, moment: str) -> None:
    shop.register("c-1", ADA)
    shop.stores[0].write_snapshot("customer-3", Snapshot(1, "fold", b"{}"))
    shop.make_topic("signups", "compact", [("a", {"customer": "c-1", "name": ADA})])
    killer = f"""
import os, signal, sys
from headrace.eventsourcing.sql import SqlEventStore
from headrace.forgetting.keyring import Keyring
from headrace.forgetting.ledger import Ledger
from headrace.stack.forgetting.topics import TopicPlace
for owner in (SqlEventStore, Keyring, Ledger, TopicPlace):
    if hasattr(owner, {moment!r}):
        setattr(owner, {moment!r}, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
from headrace.cli.main import main
sys.argv = ["headrace", "forget", "c-1", "--yes", "--config", {str(shop.config)!r}, "--bootstrap", {shop.bootstrap!r}]
main()
"""
    killed = subprocess.run([sys.executable, "-c", killer], capture_output=True, timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL, killed
    done = shop.forget("c-1")
    assert done.code == 0, done
    assert shop.names() == ["(forgotten)"] * 2
    assert shop.verify("c-1", ADA).json["hits"] == []
    with shop.cluster() as cluster:
        assert not configs_of_topics(cluster, ["signups"])["signups"]["segment.ms"].is_own


def test_two_who_forget_at_once_and_late_records(shop: Shop) -> None:
    shop.register("c-1", ADA)
    command = [sys.executable, "-m", "headrace.cli.main", "forget", "c-1", "--yes", "--json",
               "--config", str(shop.config), "--bootstrap", shop.bootstrap]  # fmt: skip
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ) for _ in range(2)]
    results = [json.loads(one.communicate(timeout=60)[0]) for one in both]
    assert [one.returncode for one in both] == [0, 0], results
    assert len(shop.keys.store.forgotten()) == 1
    late = shop.keys.seal_late(ADA, subject="c-1", field="name")
    shop.make_topic("orders", "delete", [(None, {"customer": "c-1", "name": late})])
    assert shop.verify("c-1", ADA).code == 0
    assert found(shop.forget("c-1"), "topic orders") == [("records", "unreadable", 1)]


@pytest.mark.parametrize("subject", ["x" * 249, "Renée 日本 '\"", "-- "])
def test_odd_subjects(shop: Shop, subject: str) -> None:
    shop.register(subject, ADA)
    done = run_cli(
        "forget", "--yes", "--json", "--config", str(shop.config), "--bootstrap", shop.bootstrap, "--", subject
    )
    assert done.code == 0, done
    assert found(done, "event store file")[0] == ("events", "unreadable", 1)


def test_what_is_wrong_is_one_sentence_and_nothing_is_done(shop: Shop) -> None:
    shop.register("c-1", ADA)
    assert_one_sentence(shop.run("forget", "", "--yes"), "a subject cannot be empty")
    assert shop.run("forget", "c-1").code == 2, "nobody to ask"
    assert shop.run("forget", "c-1", "--verify").code == 2
    assert_one_sentence(shop.verify("c-1", "ab"), "less than 3 letters")
    right = (shop.folder / "master.key").read_text()
    (shop.folder / "master.key").unlink()
    assert_one_sentence(shop.forget("c-1"), "master key", "check the path")
    create_master_key(shop.folder / "master.key")
    assert_one_sentence(shop.forget("c-1"), "is not the one", "nothing was read or written")
    (shop.folder / "master.key").write_text(right)
    (shop.folder / "master.key").chmod(0o644)
    assert_one_sentence(shop.forget("c-1"), "chmod 600")
    assert shop.names() == [ADA] * 2
    assert_one_sentence(run_cli("keys", "create", str(shop.folder / "master.key")), "left as it is")
    shop.config.write_text('[forgetting]\nkeys = "redis://x:geheim@y"\ntopic = 1\n')
    wrong = shop.forget("c-1")
    assert wrong.code == 1
    assert "geheim" not in wrong.err


def test_a_place_that_is_away_is_reported_and_the_others_are_done(shop: Shop) -> None:
    shop.register("c-1", ADA)
    text = shop.config.read_text().replace("shop-events", "never")
    shop.config.write_text(f'{text}\n[events.lost]\nurl = "sqlite:///lost.db"\n')
    done = shop.forget("c-1")
    assert done.code == 1
    assert found(done, "event store lost") == [("anything", "could not be", 0)]
    assert found(done, "event store file")[0] == ("events", "unreadable", 1)
    away = run_cli("forget", "c-1", "--yes", "--json", "--config", str(shop.config), bootstrap="127.0.0.1:1")
    assert away.code == 1
    assert found(away, "topics") == [("anything", "could not be", 0)]
    assert shop.names()[0] == "(forgotten)"
