"""Redaction of an event in a topic of our broker: who may, what is left, and a crash before it was carried out."""

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headrace import Broker
from headrace.broker import events as broker_events
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.security import settings_from
from headrace.delivery.redaction import REDACTION, digest_of, make_stand_in
from headrace.eventsourcing.broker_store import BrokerEventStore
from headrace.eventsourcing.erasure import make_trace, redact
from headrace.eventsourcing.errors import InvalidAppend, StoreUnavailable
from headrace.eventsourcing.hash_chain import chain
from headrace.eventsourcing.model import NewEvent, StreamAppend
from headrace.eventsourcing.traces import RedactionTrace
from headrace.eventsourcing.verification import verify
from headrace.storage.errors import WriteFailed
from headrace.telemetry.audit import read_events
from tests.integration.cli_runs import run_cli
from tests.integration.waiting import wait_until
from tests.reading import read_committed

SECRET = b"<secret %d>"


def open_store(servers: str, topic: str = "kept", **settings: str) -> BrokerEventStore:
    security = settings_from(settings) if settings else None
    addresses = parse_bootstrap(servers)
    return BrokerEventStore(lambda: Cluster(addresses, security) if security else Cluster(addresses), topic)


def fill(store: BrokerEventStore, count: int = 10) -> None:
    for number in range(count):
        store.append([StreamAppend(f"s-{number % 3}", [NewEvent("noted", SECRET % number, ("t",))])])


def are_left(folder: Path) -> set[int]:
    """The secrets that are in some file."""
    held = b""
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError, IsADirectoryError):  # it may have another name by now
            held += path.read_bytes()
    return {number for number in range(10) if SECRET % number in held}


def test_no_file_has_it_any_more_and_every_reader_sees_that(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        store = open_store(broker.bootstrap_servers)
        fill(store)
        mark = chain(store)
        stops, met = threading.Event(), list[Exception]()

        def append_and_read() -> None:
            own = open_store(broker.bootstrap_servers)
            try:
                while not stops.is_set():
                    own.append([StreamAppend("busy", [NewEvent("noted", b"x")])])
                    assert [each.version for each in own.read_stream("s-1", to=3)] == [1, 2, 3]
            except Exception as error:
                met.append(error)
            own.close()

        other = threading.Thread(target=append_and_read)
        other.start()
        for version in (1, 3):  # of positions 2 and 8
            redact(store, "s-1", version, reason="r")
        stops.set()
        other.join()
        assert met == []
        # Readers see the new file some moments before it has taken the name of the old one, which is gone then.
        wait_until(lambda: are_left(tmp_path) == set(range(10)) - {1, 7}, "a file still has it")
        values = [record.value() for record in read_committed(broker.bootstrap_servers, "kept")]  # as any consumer does
        assert values[1] == make_stand_in(digest_of(SECRET % 1))
        assert values[2] == SECRET % 2
        found = verify(store, against=mark)
        assert found.is_intact
        assert [each.version for each in found.redacted] == [1, 3]
        store.close()
    with Broker(data_dir=tmp_path) as broker:
        store = open_store(broker.bootstrap_servers)
        assert verify(store, against=mark).is_intact
        store.append([StreamAppend("s-1", [NewEvent("noted", b"")], 5)])
        store.close()
    assert are_left(tmp_path) == set(range(10)) - {1, 7}


def make_request(version: int, data: bytes, stream: str = "s-1") -> NewEvent:
    told = RedactionTrace(stream, version, 0, "noted", digest_of(data).hex(), "r", "ann")
    return make_trace(REDACTION, stream, told)


def test_what_a_crash_came_before_is_done_at_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = threading.Event()

    def fail(*_: Any) -> int:
        tried.set()
        raise WriteFailed("the disk", OSError(5, "failed"))

    with Broker(data_dir=tmp_path) as broker:
        store = open_store(broker.bootstrap_servers)
        fill(store)
        monkeypatch.setattr(broker_events, "replace_values", fail)
        store.append([StreamAppend("s-1", [make_request(1, SECRET % 1)])])
        assert tried.wait(60)
        assert [each.data for each in store.read_stream("s-1", to=1)] == [SECRET % 1]
        store.close()
    monkeypatch.undo()
    with Broker(data_dir=tmp_path) as broker:
        store = open_store(broker.bootstrap_servers)
        stand_in = make_stand_in(digest_of(SECRET % 1))
        wait_until(lambda: next(store.read_stream("s-1")).data == stand_in, "the event is redacted")
        store.close()
    assert are_left(tmp_path) == set(range(10)) - {1}


def test_a_trace_that_is_about_nothing_changes_nothing(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        store = open_store(broker.bootstrap_servers)
        fill(store)
        with pytest.raises(InvalidAppend, match="does not say which event of its stream is redacted"):
            store.append([StreamAppend("s-1", [NewEvent(REDACTION, b"{}")])])
        with pytest.raises(InvalidAppend, match="does not say which event of its stream is redacted"):
            store.append([StreamAppend("s-1", [make_request(1, SECRET % 0, "s-0")])])
        # Another digest, an event that is not there, itself, and then one that is meant.
        for wrong in (make_request(1, b"other"), make_request(99, b""), make_request(4, b"")):
            store.append([StreamAppend("s-1", [wrong])])
        before = list(store.read_stream("s-1"))
        redact(store, "s-1", 2, reason="r")
        after = list(store.read_stream("s-1"))
        assert [*before[:1], after[1], *before[2:]] == after[:-1]
        store.close()


def test_who_may_only_write_may_not_redact_and_who_did_is_on_record(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.touch(0o600)
    users.write_text("ann=one-secret\nbob=another-secret\n")
    settings = {
        "authorization": "on",
        "super.users": "User:ANONYMOUS",
        "users.file": str(users),
        "audit.file": str(tmp_path / "audit.log"),
        "sasl.enabled.mechanisms": "PLAIN",
    }
    listen = ["127.0.0.1:0", "SASL_PLAINTEXT://127.0.0.1:0"]
    with Broker(tmp_path / "data", listen=listen, settings=settings) as broker:
        plain, login = broker.bootstrap_servers.split(",")
        admin = open_store(plain)
        fill(admin)
        for user, operations in (("ann", "read,write"), ("bob", "read,write,delete")):
            allowed = run_cli("acl", "add", user, operations, "--topic", "kept", bootstrap=plain)
            assert allowed.code == 0, allowed

        def as_user(user: str, password: str) -> BrokerEventStore:
            return open_store(login, **{"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
                                        "sasl.username": user, "sasl.password": password})  # fmt: skip

        ann, bob = as_user("ann", "one-secret"), as_user("bob", "another-secret")
        before = list(admin.read())
        with pytest.raises(StoreUnavailable, match="TOPIC_AUTHORIZATION_FAILED"):
            redact(ann, "s-1", 1, reason="r")
        assert list(admin.read()) == before
        redact(bob, "s-1", 1, reason="r")
        assert next(admin.read_stream("s-1")).data == make_stand_in(digest_of(SECRET % 1))
        for store in (admin, ann, bob):
            store.close()
    recorded = [each for each in read_events(tmp_path / "audit.log") if each.get("api") == "PRODUCE"]
    [denied, changed] = [(each["principal"], each["event"], each["resources"][0]) for each in recorded]
    assert denied == ("User:ann", "denial", {"type": "topic", "name": "kept"})
    assert changed == ("User:bob", "change", {"type": "topic", "name": "kept", "redacted": ["s-1 1"]})
