"""Lines over real sockets: each a record, answered once durable; slow brokers slow senders down."""

import contextlib
import gc
import os
import resource
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import Broker
from headrace.gateways.errors import GatewayError
from headrace.gateways.lines.kind import KIND
from headrace.gateways.lines.server import LinesGateway
from tests.certificates import make_authority, make_certificate
from tests.integration.gateways.running import checked, running, started, values_of, wait_for, written
from tests.ports import free_port


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker(durability="os") as broker:
        yield broker.bootstrap_servers


def connect(gateway: LinesGateway) -> socket.socket:
    assert gateway.port is not None
    return socket.create_connection(("127.0.0.1", gateway.port), timeout=20)


def everything(client: socket.socket) -> bytes:
    client.shutdown(socket.SHUT_WR)
    found = b""
    while piece := client.recv(65536):
        found += piece
    return found


def test_a_line_is_a_record_also_the_last_without_an_end(bootstrap: str) -> None:
    with running(KIND, bootstrap, "plain", port=0, key="client", header="from") as gateway:
        with connect(gateway) as client:
            client.sendall(b"one\r\ntwo\n\nthree")
            assert everything(client) == b""  # it is closed once all is durable
        records = written(bootstrap, "plain")
        assert [record.value for record in records] == [b"one", b"two", b"", b"three"]
        assert records[0].key == b"127.0.0.1"
        assert [(header.key, header.value) for header in records[0].headers] == [("from", b"127.0.0.1")]
        assert gateway.progress.received == gateway.progress.records == 4


def test_what_was_sent_before_the_end_is_written(bootstrap: str) -> None:
    lines = [b"%d" % number for number in range(50_000)]
    with (
        running(KIND, bootstrap, "ended", port=0) as gateway,
        socket.create_connection(("127.0.0.1", gateway.port)) as sender,
    ):
        sender.sendall(b"\n".join(lines))
        sender.shutdown(socket.SHUT_WR)
        wait_for(lambda: gateway.progress.received, "it reads")
    assert values_of(bootstrap, "ended") == lines


def test_lines_are_answered_once_durable_in_their_order(bootstrap: str) -> None:
    with running(KIND, bootstrap, "answered", port=0, ack="line", max_line=8) as gateway, connect(gateway) as client:
        client.sendall(b"one\ntoo long a line\ntwo\n")
        said = client.makefile("rb")
        assert [said.readline() for _ in range(3)] == [
            b"OK 0 0\n", b"ERR the line has more than 8 bytes\n", b"OK 0 1\n",
        ]  # fmt: skip
        assert values_of(bootstrap, "answered") == [b"one", b"two"]
        client.sendall(b"three")
        assert everything(client) == b"OK 0 2\n"
        assert (gateway.progress.refused, gateway.progress.more["cut"]) == (1, 1)


def test_a_batch_is_answered_as_one(bootstrap: str) -> None:
    with running(KIND, bootstrap, "batches", port=0, ack="batch", max_line=8) as gateway, connect(gateway) as client:
        client.sendall(b"one\ntwo\n\n\nthree\ntoo long a line\n\nfour\n\nfive")
        assert everything(client).splitlines() == [
            b"OK 2", b"OK 0", b"ERR a line has more than 8 bytes", b"OK 1",
            b"ERR the connection ended before the batch: an empty line ends one",
        ]  # fmt: skip
        assert values_of(bootstrap, "batches") == [b"one", b"two", b"four"]


@pytest.mark.parametrize(
    ("name", "values", "sent", "said"),
    [
        ("octets", {"framing": "octets"}, b"3 one6 two\n\n\n2 xy", b""),
        ("lengths", {"framing": "length", "length_bytes": 2}, b"\0\3one\0\6two\n\n\n\0\2xy", b""),
        ("records", {"delimiter": r"\x1e"}, b"one\x1etwo\n\n\n\x1exy\x1e", b""),
        (
            "lost",
            {"framing": "octets", "ack": "line"},
            b"3 one6 two\n\n\n2 xyz",
            b"OK 0 0\nOK 0 1\nOK 0 2\nERR a count",
        ),
    ],
)
def test_frames_of_other_kinds(bootstrap: str, name: str, values: dict[str, object], sent: bytes, said: bytes) -> None:
    with running(KIND, bootstrap, name, port=0, **values) as gateway, connect(gateway) as client:
        client.sendall(sent)
        assert everything(client).startswith(said)
    assert values_of(bootstrap, name) == [b"one", b"two\n\n\n", b"xy"]


def test_too_long_lines_are_cut_and_counted(bootstrap: str) -> None:
    with running(KIND, bootstrap, "cut", port=0, max_line=8) as gateway, connect(gateway) as client:
        client.sendall(b"x" * 100_000 + b"\nshort\n" + b"y" * 9)
        everything(client)
        assert gateway.progress.more["cut"] == 2
    assert values_of(bootstrap, "cut") == [b"x" * 8, b"short", b"y" * 8]


def test_unix_sockets_and_one_that_a_killed_process_left(bootstrap: str, tmp_path: Path) -> None:
    path = str(tmp_path / "lines.sock")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(path)
    with running(KIND, bootstrap, "unix", unix=path, ack="line") as gateway:
        assert gateway.source == f"unix:{path}"
        with pytest.raises(GatewayError, match=r"cannot listen on .*: choose another path for unix"):
            KIND.make("second", {**checked_values(), "unix": path, "port": None}, [], threading.Event())
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
            client.sendall(b"over a path\n")
            assert everything(client) == b"OK 0 0\n"
    assert not os.path.exists(path)


def checked_values() -> dict[str, object]:
    from headrace.section_keys import with_defaults

    return with_defaults(KIND.keys, {})


def asked(context: ssl.SSLContext, gateway: LinesGateway) -> bytes:
    """What is answered to a line; nothing to who is not let in."""
    try:
        with context.wrap_socket(connect(gateway), server_hostname="127.0.0.1") as client:
            client.sendall(b"let me in\n")
            return client.recv(100)
    except (ssl.SSLError, ConnectionError):
        return b""


def test_tls_with_a_certificate_of_the_client(bootstrap: str, tmp_path: Path) -> None:
    authority = make_authority(tmp_path, "authority")
    server = make_certificate(tmp_path, "server", "authority", alternative="IP:127.0.0.1")
    client_pem = make_certificate(tmp_path, "client", "authority", alternative="DNS:client")
    stranger = make_authority(tmp_path, "stranger")
    (tmp_path / "stranger.both").write_bytes(stranger.read_bytes() + (tmp_path / "stranger.key").read_bytes())
    values = {"port": 0, "ack": "line", "certificate": str(server), "clients": str(authority)}
    with running(KIND, bootstrap, "tls", **values) as gateway:
        assert gateway.source == f"tls://127.0.0.1:{gateway.port}"
        context = ssl.create_default_context(cafile=str(authority))
        context.load_cert_chain(client_pem)
        with context.wrap_socket(connect(gateway), server_hostname="127.0.0.1") as client:
            client.sendall(b"in secret\n")
            assert client.recv(100) == b"OK 0 0\n"
        for shown in (None, tmp_path / "stranger.both"):
            other = ssl.create_default_context(cafile=str(authority))
            if shown:
                other.load_cert_chain(shown)
            assert asked(other, gateway) == b""
        with connect(gateway) as plain:
            plain.sendall(b"not tls\n")
            assert b"OK" not in everything(plain)
    assert values_of(bootstrap, "tls") == [b"in secret"]


def test_connections_that_are_reset_at_once_are_nothing_to_talk_of(
    bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    with running(KIND, bootstrap, "reset", port=0) as gateway:
        for _ in range(50):
            client = connect(gateway)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        with connect(gateway) as client:
            client.sendall(b"whole\n")
            assert everything(client) == b""
        wait_for(lambda: gateway.progress.connections == 0, "all are gone")
    gc.collect()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


def test_no_more_connections_than_allowed_and_the_silent_are_closed(bootstrap: str) -> None:
    with running(KIND, bootstrap, "limits", port=0, ack="line", connections=2, idle_s=0.3) as gateway:
        first, second = connect(gateway), connect(gateway)
        wait_for(lambda: gateway.progress.connections == 2, "both are open")
        with connect(gateway) as third:
            third.settimeout(10)
            assert third.recv(1) == b""
        assert gateway.progress.more["connections_refused"] == 1
        for silent in (first, second):
            assert silent.recv(1) == b""
            silent.close()
        wait_for(lambda: gateway.progress.connections == 0, "both are closed")
        with connect(gateway) as fourth:
            fourth.sendall(b"still here\n")
            assert everything(fourth) == b"OK 0 0\n"


def test_as_many_connections_as_are_allowed_whatever_the_shell_lets_be_open(bootstrap: str) -> None:
    port = free_port()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (150, hard))
    try:
        gateway = started("lines", "many", bootstrap, "--port", str(port), "--ack", "line", "--connections", "300")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with contextlib.ExitStack() as stack:
        stack.callback(gateway.communicate)
        stack.callback(gateway.terminate)
        clients = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20)) for _ in range(300)]
        for client in clients:
            client.sendall(b"here\n")
        assert [client.recv(100)[:3] for client in clients] == [b"OK "] * 300


@pytest.mark.parametrize("buffer_mb", [1, 4, 16])
def test_a_broker_that_is_away_slows_senders_down_in_bounded_memory(buffer_mb: int) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    with running(KIND, nobody, "away", port=0, buffer_mb=buffer_mb) as gateway, connect(gateway) as client:
        client.settimeout(1.0)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < 64 * 2**20:
                sent += client.send(b"x" * 999 + b"\n" + b"y" * 999 + b"\n")
        assert sent < (20 + buffer_mb) * 2**20  # the kernel's buffers on both sides, and ours
        assert buffer_mb * 2**19 < gateway._inlet.bytes_waiting <= buffer_mb * 2**20
        assert gateway.progress.waiting == "for the broker"


def test_lines_that_are_not_answered_yet_have_a_bound(bootstrap: str) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    with running(KIND, nobody, "unanswered", port=0, ack="line") as gateway, connect(gateway) as client:
        client.settimeout(1.0)
        with contextlib.suppress(TimeoutError):
            while True:
                client.sendall(b"a\n" * 32_768)
        assert gateway.progress.received <= 65_536, "no more than two pieces of the stream"
    with running(KIND, bootstrap, "answered-many", port=0, ack="line") as gateway, connect(gateway) as client:
        threading.Thread(target=client.sendall, args=(b"a\n" * 100_000 + b"bb" * 40_000 + b"\nc\n",)).start()
        said = b""
        while said.count(b"\n") < 100_002:
            said += client.recv(65_536)
        *first, long, last = said.splitlines()
        assert first == [b"OK 0 %d" % offset for offset in range(100_000)]
        assert long == b"ERR the line has more than 65536 bytes"
        assert last == b"OK 0 100000"


def test_overload_fails_or_drops_if_that_is_chosen(bootstrap: str) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    values = {"port": 0, "buffer_mb": 1, "ack": "line", "overload": "fail"}
    with running(KIND, nobody, "failing", **values) as gateway, connect(gateway) as client:
        line = b"x" * 999 + b"\n"
        client.sendall(line * 3_000)
        wait_for(lambda: gateway.progress.dropped, "some are refused")
    values = {"port": 0, "buffer_mb": 1, "overload": "drop-oldest"}
    with running(KIND, nobody, "dropping", **values) as gateway, connect(gateway) as client:
        client.sendall(line * 10_000)
        wait_for(lambda: gateway.progress.received == 10_000, "all were read")
        assert gateway.progress.dropped >= 8_000


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"host": "0.0.0.0"}, "host 0.0.0.0 can be reached from other machines"),
        ({"clients": "a.pem"}, "clients needs TLS"),
        ({"unix": "a", "certificate": "b"}, "give port"),
        ({"length_bytes": 3}, "choose 1, 2 or 4"),
        ({"delimiter": ""}, "delimiter is ''"),
        ({"topic": "no topic"}, "no topic"),
    ],
)
def test_what_makes_no_sense_is_said_in_a_sentence(values: dict[str, object], sentence: str) -> None:
    with pytest.raises(Exception, match=sentence):
        checked(KIND, values)


def test_a_port_that_is_taken_is_one_sentence(bootstrap: str) -> None:
    with (
        running(KIND, bootstrap, "first", port=0) as gateway,
        pytest.raises(GatewayError, match=rf"cannot listen on 127.0.0.1:{gateway.port}"),
    ):
        KIND.make("second", {**checked_values(), "port": gateway.port}, [], threading.Event())
