"""What clients leave behind when they leave: nothing that only the garbage collector would find.

A full collection looks at every object there is, those of large requests that are under way included, and nobody is
served meanwhile. Here there is none at all: a connection that is in a cycle with anything stays, and is counted.
"""

import contextlib
import gc
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from headrace.broker.config import Address
from headrace.broker.connection import Connection
from headrace.broker.embedded import Broker
from headrace.broker.tls import TlsConnection
from headrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from headrace.records import Record, build_batch
from tests.certificates import make_authority, make_certificate
from tests.integration.waiting import wait_until
from tests.integration.wire import Wire

CLIENTS = 5
BATCH = build_batch([Record(0, 1_700_000_000_000, b"k", b"v")])


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    folder = tmp_path_factory.mktemp("garbage")
    make_authority(folder, "authority")
    store = make_certificate(folder, "broker", "authority", alternative="IP:127.0.0.1")
    settings = {"ssl.keystore.location": str(store), "sasl.enabled.mechanisms": "SCRAM-SHA-256"}
    listen = ["127.0.0.1:0", "SSL://127.0.0.1:0", "SASL_PLAINTEXT://127.0.0.1:0"]
    with Broker(listen=listen, durability="os", settings=settings) as running:
        plain, tls, sasl = running.bootstrap_servers.split(",")
        with Wire(plain) as wire:
            wire.create("silent")
            wire.create("written")
        yield SimpleNamespace(plain=plain, tls=tls, sasl=sasl)


@pytest.fixture
def _no_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def count_connections(broker: SimpleNamespace) -> int:
    """How many there are of this broker's, open or not."""
    ports = {Address.parse(address).port for address in vars(broker).values()}
    there = (each for each in gc.get_objects() if type(each) in (Connection, TlsConnection))
    return sum(each._advertised.port in ports for each in there)


def be_silent(broker: SimpleNamespace) -> socket.socket:
    return socket.create_connection(Address.parse(broker.plain), timeout=60)


def send_half(broker: SimpleNamespace) -> socket.socket:
    sock = be_silent(broker)
    sock.sendall(struct.pack(">i", 100_000) + bytes(50_000))
    return sock


def send_nonsense(broker: SimpleNamespace) -> socket.socket:
    sock = be_silent(broker)
    sock.sendall(struct.pack(">i", -1))
    return sock


def ask(broker: SimpleNamespace) -> socket.socket:
    wire = Wire(broker.plain, timeout=60)
    wire.ask(MetadataRequest(topics=[]), MetadataResponse, 9)
    return wire.socket


def write_and_read(broker: SimpleNamespace) -> socket.socket:
    wire = Wire(broker.plain, timeout=60)
    error, offset = wire.produce("written", BATCH)
    assert error == 0
    assert len(wire.fetch("written", offset)[1]) == 1
    return wire.socket


def wait_for_records(broker: SimpleNamespace) -> socket.socket:
    wire = Wire(broker.plain, timeout=60)
    wire.send(wire.fetch_request("silent", 0, wait_ms=600_000), 12)
    wire.send(wire.fetch_request("silent", 0, wait_ms=600_000), 12)
    return wire.socket


def begin_tls(broker: SimpleNamespace) -> socket.socket:
    sock = socket.create_connection(Address.parse(broker.tls), timeout=60)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    sock.sendall(outgoing.read())
    return sock


def ask_over_tls(broker: SimpleNamespace) -> socket.socket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    wire = Wire(broker.tls, timeout=60)
    wire.socket = context.wrap_socket(wire.socket)
    wire.ask(MetadataRequest(topics=[]), MetadataResponse, 9)
    return wire.socket


def begin_login(broker: SimpleNamespace) -> socket.socket:
    wire = Wire(broker.sasl, timeout=60)
    wire.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), SaslHandshakeResponse, 1)
    wire.send(SaslAuthenticateRequest(auth_bytes=b"n,,n=nobody,r=nonce"), 2)
    return wire.socket


KINDS = [
    be_silent,
    send_half,
    send_nonsense,
    ask,
    write_and_read,
    wait_for_records,
    begin_tls,
    ask_over_tls,
    begin_login,
]


@pytest.mark.usefixtures("_no_collections")
@pytest.mark.parametrize("be_client", KINDS, ids=lambda kind: kind.__name__)
def test_a_connection_goes_with_its_client(
    broker: SimpleNamespace, be_client: Callable[[SimpleNamespace], socket.socket]
) -> None:
    wait_until(lambda: not count_connections(broker), "connections of others stay", patience_s=60)
    clients = [be_client(broker) for _ in range(CLIENTS)]
    if be_client is not send_nonsense:  # those are closed as soon as it came
        wait_until(lambda: count_connections(broker) == CLIENTS, "they are not connected", patience_s=60)
    for client in clients:
        client.close()
    wait_until(lambda: not count_connections(broker), "connections stay", patience_s=60)
