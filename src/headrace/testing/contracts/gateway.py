"""What every gateway must do, whatever it speaks; see `headrace.gateways.gateway`.

    class TestMyGateway(InwardGatewayContract):
        kind = "mine"

        def values(self, topic: str, port: int) -> dict[str, object]:
            return {"topic": topic, "port": port}

        def send(self, section, messages):
            with socket.create_connection(("127.0.0.1", section["port"])) as there:
                there.sendall(b"".join(message + b"\\n" for message in messages))

`InwardGatewayContract` is for what brings records into topics, `OutwardGatewayContract` for what takes them out.
"""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from headrace.broker.embedded import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import create_topic, delete_topics, ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.connection import ConnectionSettings
from headrace.client.errors import ClientError
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.client.writer import NewRecord, Writer
from headrace.errors import HeadraceError
from headrace.gateways.gateway import Gateway
from headrace.gateways.section import check_section, kind_of, status_of
from headrace.records import Header
from headrace.section_keys import check_keys, with_defaults

TOPIC = "contract"
WITHIN_S = 30.0
STOPS_WITHIN_S = 3.0
_COMMITTED = FetchOptions(committed=True)


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for something to become true."""
    ends = time.monotonic() + WITHIN_S
    pause = threading.Event()
    while not condition():
        if time.monotonic() > ends:
            pytest.fail(f"not within {WITHIN_S:g} s: {what}")
        pause.wait(0.02)


def free_port() -> int:
    """A port of loopback that nobody has just now, for TCP and UDP alike."""
    for _ in range(50):
        with socket.socket() as one, socket.socket(type=socket.SOCK_DGRAM) as other:
            one.bind(("127.0.0.1", 0))
            number = int(one.getsockname()[1])
            with suppress(OSError):
                other.bind(("127.0.0.1", number))
                return number
    raise AssertionError("no port is free")


def read_topic(bootstrap: str, topic: str) -> list[tuple[bytes | None, bytes]]:
    """Keys and values of a topic, as a reader of committed records sees them."""
    with Cluster(parse_bootstrap(bootstrap), ConnectionSettings()) as cluster:
        held = bounds(cluster, cluster.partitions(topic), committed=True)
        starts = {where: bound.start for where, bound in held.items() if bound.end > bound.start}
        ends = {where: held[where].end for where in starts}
        return [
            (None if record.key is None else bytes(record.key), bytes(record.value or b""))
            for group in read_records(cluster, starts, until=ends, options=_COMMITTED)
            for _, record in group
        ]


def write_topic(bootstrap: str, topic: str, values: Sequence[bytes], headers: Sequence[Header] = ()) -> None:
    """Records without keys, written when this returns."""
    with Cluster(parse_bootstrap(bootstrap), ConnectionSettings()) as cluster:
        ensure_topic(cluster, topic)
        writer = Writer(cluster, topic)
        for value in values:
            writer.add(NewRecord(None, value, time.time_ns() // 1_000_000, headers))
        writer.flush()


@dataclass
class Running:
    """A gateway in a thread, and what it ended with."""

    gateway: Gateway
    stopping: threading.Event
    errors: list[BaseException] = field(default_factory=list)
    thread: threading.Thread | None = None

    def stop(self) -> float:
        """Tell it to stop; how long it took."""
        began = time.monotonic()
        self.stopping.set()
        if self.thread is not None:
            self.thread.join(WITHIN_S)
            assert not self.thread.is_alive(), "it does not stop"
        return time.monotonic() - began


class GatewayContract:
    """What all have to do."""

    kind: ClassVar[str]

    def values(self, topic: str, port: int) -> dict[str, Any]:
        """What a section says, besides its kind: this topic, and this port if it listens."""
        raise NotImplementedError

    def prepare(self, bootstrap: str) -> None:
        """Make what has to be there; the broker just runs for the first time."""
        with Cluster(parse_bootstrap(bootstrap), ConnectionSettings()) as cluster:
            ensure_topic(cluster, TOPIC)

    def section(self, port: int, **more: Any) -> dict[str, Any]:
        """A whole section with its defaults, as a gateway is given it; checked."""
        given = {"kind": self.kind, **self.values(TOPIC, port), **more}
        keys = kind_of(self.kind).keys
        own = {name: value for name, value in given.items() if name != "kind"}
        assert check_keys(keys, own, "gateways.test") == []
        section = {"kind": self.kind, **with_defaults(keys, own)}
        check_section("test", section)
        return section

    @contextmanager
    def running(self, bootstrap: str, section: Mapping[str, Any]) -> Iterator[Running]:
        """A gateway at work; what it fails with is raised at the end."""
        stopping = threading.Event()
        gateway = kind_of(self.kind).make("test", section, parse_bootstrap(bootstrap), stopping)
        found = Running(gateway, stopping)

        def run() -> None:
            try:
                gateway.run()
            except BaseException as error:  # noqa: BLE001 - raised in the test
                found.errors.append(error)

        found.thread = threading.Thread(target=run, name="gateway-under-test", daemon=True)
        found.thread.start()
        try:
            yield found
        finally:
            found.stop()
        for error in found.errors:
            raise error

    @pytest.fixture
    def port(self) -> int:
        return free_port()

    @pytest.fixture
    def broker(self, tmp_path: Path) -> Iterator[Broker]:
        with Broker(tmp_path / "broker") as broker:
            self.prepare(broker.bootstrap_servers)
            yield broker

    # --- what is said of it

    def test_its_kind_loads_nothing_that_an_extra_brings(self) -> None:
        kind = kind_of(self.kind)
        code = f"import sys; from headrace.gateways.section import kind_of; kind_of({self.kind!r}); print(*sys.modules)"
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        loaded = set(found.stdout.split())
        assert not loaded & {*kind.modules, "pyspark", "numba", "numpy", "pandas", "pyarrow", "starlette", "uvicorn"}

    def test_its_keys_can_be_options(self) -> None:
        names = [key.name for key in kind_of(self.kind).keys]
        assert len(set(names)) == len(names)
        assert not {"kind", "name", "bootstrap", "json", "config", "help"} & set(names)

    def test_what_is_wrong_with_a_section_is_a_sentence(self, port: int) -> None:
        good = self.section(port)
        for key in kind_of(self.kind).keys:
            values: tuple[Any, ...] = (-1, "", "\ud800", [], [""], {}, True, "a b\n", "x" * 300, "\0", 2**70, -1.5)
            for value in values:
                section = {**good, key.name: value}
                if check_keys(kind_of(self.kind).keys, {k: v for k, v in section.items() if k != "kind"}, "here"):
                    continue  # refused before the kind is asked
                with suppress(HeadraceError):
                    check_section("test", section)

    # --- its life

    def test_it_says_how_it_is_and_stops_soon(self, broker: Broker, port: int) -> None:
        with self.running(broker.bootstrap_servers, self.section(port)) as running:
            self.until_ready(running)
            said = status_of(self.kind, running.gateway, 0.0, None, is_over=False)
            assert said.state == "running", said
            assert said.text("source")
            assert said.text("target")
            assert said.text("problem") == ""
            assert running.stop() < STOPS_WITHIN_S
            at_last = status_of(self.kind, running.gateway, 0.0, None, is_over=True)
            assert (at_last.state, at_last.text("source")) == ("stopped", said.text("source"))

    def test_it_stops_soon_where_the_broker_was_never_there(self, port: int) -> None:
        with self.running(f"127.0.0.1:{free_port()}", self.section(port)) as running:
            until(
                lambda: running.gateway.progress.waiting or not self.is_busy_without(running), "it says that it waits"
            )
            assert running.stop() < STOPS_WITHIN_S

    def is_busy_without(self, running: Running) -> bool:
        """Whether it would have to say that it waits for the broker; not what asks it only for records that come."""
        return running.gateway.progress.records < 0

    def until_ready(self, running: Running) -> None:
        """Wait until it takes what is sent to it."""
        until(
            lambda: running.errors or (not running.gateway.progress.waiting and self.is_listening(running)),
            "it is ready",
        )
        for error in running.errors:
            raise error

    def is_listening(self, running: Running) -> bool:  # noqa: ARG002 - for those that know it
        """Whether it can be sent to already."""
        return True


class InwardGatewayContract(GatewayContract):
    """What brings records into a topic."""

    is_lossy: ClassVar[bool] = False
    """Whether what comes while the broker is away may be dropped (and counted), as what has no acknowledgement is."""
    bad_input: ClassVar[bool] = True
    """Whether there is input that is bad in itself."""

    def send(self, section: Mapping[str, Any], messages: Sequence[bytes]) -> None:
        """Send them as a program would that speaks this; returns when they were taken. Raises while it is not there."""
        raise NotImplementedError

    def send_bad(self, section: Mapping[str, Any]) -> int:
        """Send what cannot be read, in several ways; how many of them are to be counted as refused, at the least."""
        raise NotImplementedError

    def found(self, bootstrap: str) -> list[bytes]:
        """The messages that are in the topic, as they were sent."""
        return [value for _, value in read_topic(bootstrap, TOPIC)]

    def send_until_taken(self, section: Mapping[str, Any], messages: Sequence[bytes]) -> None:
        """Send, and again while nobody listens."""
        ends = time.monotonic() + WITHIN_S
        while True:
            try:
                self.send(section, messages)
                return
            except (OSError, HeadraceError):
                if time.monotonic() > ends:
                    raise
                threading.Event().wait(0.05)

    def expect(self, bootstrap: str, messages: Sequence[bytes], running: Running) -> None:
        """Wait until the topic holds exactly these, in any order."""
        wanted = sorted(messages)

        def is_there() -> bool:
            for error in running.errors:
                raise error
            with suppress(ClientError):
                return sorted(self.found(bootstrap)) == wanted
            return False

        until(is_there, f"{len(messages)} messages are in the topic, each once")

    def test_what_is_sent_is_in_the_topic(self, broker: Broker, port: int) -> None:
        section = self.section(port)
        messages = [b"message %d" % number for number in range(300)]
        with self.running(broker.bootstrap_servers, section) as running:
            self.until_ready(running)
            self.send_until_taken(section, messages[:1])
            self.send(section, messages[1:])
            self.expect(broker.bootstrap_servers, messages, running)
            until(lambda: running.gateway.progress.records == 300, "it counts what it wrote")
            assert running.gateway.progress.received >= 300

    def test_it_goes_on_after_a_restart(self, broker: Broker, port: int) -> None:
        section = self.section(port)
        sent: list[bytes] = []
        for turn in range(2):
            with self.running(broker.bootstrap_servers, section) as running:
                self.until_ready(running)
                messages = [b"turn %d message %d" % (turn, number) for number in range(20)]
                self.send_until_taken(section, messages)
                sent += messages
                self.expect(broker.bootstrap_servers, sent, running)

    def test_bad_input_is_counted_and_harms_nothing(self, broker: Broker, port: int) -> None:
        if not self.bad_input:
            pytest.skip("whatever is sent is a message")
        section = self.section(port)
        with self.running(broker.bootstrap_servers, section) as running:
            self.until_ready(running)
            self.send_until_taken(section, [b"before"])
            bad = self.send_bad(section)
            assert bad > 0
            until(lambda: running.gateway.progress.refused >= bad, f"{bad} are counted as refused")
            self.send(section, [b"after"])
            self.expect(broker.bootstrap_servers, [b"before", b"after"], running)

    def test_a_broker_that_goes_and_comes_back(self, tmp_path: Path, port: int) -> None:
        at = free_port()
        section = self.section(port)
        folder = tmp_path / "own"
        with self.running(f"127.0.0.1:{at}", section) as running:
            sent: list[bytes] = []
            for turn in range(2):
                with Broker(folder, listen=f"127.0.0.1:{at}") as broker:
                    if turn == 0:
                        self.prepare(broker.bootstrap_servers)
                    self.until_ready(running)
                    messages = [b"turn %d message %d" % (turn, number) for number in range(20)]
                    self.send_until_taken(section, messages)
                    sent += messages
                    self.expect(broker.bootstrap_servers, sent, running)
                    until(lambda: not running.gateway.progress.waiting, "it does not say that it waits")

    def test_two_of_the_same_port(self, broker: Broker, port: int) -> None:
        section = self.section(port)
        if "port" not in section:
            pytest.skip("it takes no port")
        with self.running(broker.bootstrap_servers, section) as running:
            self.until_ready(running)
            self.send_until_taken(section, [b"one"])
            with (
                pytest.raises(HeadraceError, match=str(port)),
                self.running(broker.bootstrap_servers, section) as other,
            ):
                until(lambda: other.errors, "the second says that the port is taken")


class OutwardGatewayContract(GatewayContract):
    """What takes records out of a topic, and sends them on."""

    def receiving(self, section: Mapping[str, Any]) -> AbstractContextManager[Callable[[], list[bytes]]]:
        """A program that receives; what it is given says what came so far."""
        raise NotImplementedError

    def expect_received(self, received: Callable[[], list[bytes]], messages: Sequence[bytes], running: Running) -> None:
        """Wait until all of these came; more than once is possible where a side was restarted."""

        def is_there() -> bool:
            for error in running.errors:
                raise error
            return set(received()) == set(messages)

        until(is_there, f"{len(messages)} messages came")

    def test_what_is_in_the_topic_comes(self, broker: Broker, port: int) -> None:
        section = self.section(port)
        with self.running(broker.bootstrap_servers, section) as running, self.receiving(section) as received:
            self.until_ready(running)
            messages = [b"message %d" % number for number in range(300)]
            write_topic(broker.bootstrap_servers, TOPIC, messages)
            self.expect_received(received, messages, running)
            assert len(received()) == 300
            until(lambda: running.gateway.progress.records == 300, "it counts what it sent")

    def test_a_record_that_cannot_be_sent_holds_up_no_other(self, broker: Broker, port: int) -> None:
        section = self.section(port)
        with self.running(broker.bootstrap_servers, section) as running, self.receiving(section) as received:
            self.until_ready(running)
            write_topic(broker.bootstrap_servers, TOPIC, [b"no text"], [Header("no\udcfftext", b"")])
            write_topic(broker.bootstrap_servers, TOPIC, [b"many"], [Header(f"{n}", b"") for n in range(20_000)])
            write_topic(broker.bootstrap_servers, TOPIC, [b"long"], [Header("n" * 70_000, b"")])
            write_topic(broker.bootstrap_servers, TOPIC, [b"last"])
            until(lambda: running.errors or b"last" in received(), "the record behind them comes")

    def test_of_a_topic_that_is_made_again_all_comes(self, broker: Broker, port: int) -> None:
        section = self.section(port)
        with self.running(broker.bootstrap_servers, section) as running, self.receiving(section) as received:
            self.until_ready(running)
            sent = [b"before %d" % number for number in range(20)]
            write_topic(broker.bootstrap_servers, TOPIC, sent)
            self.expect_received(received, sent, running)
            with Cluster(parse_bootstrap(broker.bootstrap_servers), ConnectionSettings()) as cluster:
                delete_topics(cluster, [TOPIC])
                create_topic(cluster, TOPIC, partitions=1)
            sent += (after := [b"after %d" % number for number in range(40)])
            write_topic(broker.bootstrap_servers, TOPIC, after)
            self.expect_received(received, sent, running)

    def test_it_goes_on_where_it_was(self, broker: Broker, port: int) -> None:
        section = self.section(port)
        with self.receiving(section) as received:
            sent: list[bytes] = []
            for turn in range(2):
                with self.running(broker.bootstrap_servers, section) as running:
                    self.until_ready(running)
                    messages = [b"turn %d message %d" % (turn, number) for number in range(20)]
                    write_topic(broker.bootstrap_servers, TOPIC, messages)
                    sent += messages
                    self.expect_received(received, sent, running)

    def test_a_broker_that_goes_and_comes_back(self, tmp_path: Path, port: int) -> None:
        at = free_port()
        section = self.section(port)
        with self.running(f"127.0.0.1:{at}", section) as running, self.receiving(section) as received:
            sent: list[bytes] = []
            for turn in range(2):
                with Broker(tmp_path / "own", listen=f"127.0.0.1:{at}") as broker:
                    if turn == 0:
                        self.prepare(broker.bootstrap_servers)
                    self.until_ready(running)
                    messages = [b"turn %d message %d" % (turn, number) for number in range(20)]
                    write_topic(broker.bootstrap_servers, TOPIC, messages)
                    sent += messages
                    self.expect_received(received, sent, running)
