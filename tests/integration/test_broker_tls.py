"""Our broker under TLS: what goes through, who is refused, certificates that change, and bad neighbours."""

import contextlib
import hmac
import itertools
import os
import socket
import ssl
import struct
import subprocess
import threading
import uuid
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from headrace import Broker
from headrace.broker.settings.setting import InvalidSetting
from headrace.broker.tls import MOST_UNSENT_BYTES, TlsFailed, TlsSocket
from headrace.client import admin
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.errors import NotKafka, Refused, TlsRefused
from headrace.client.security import settings_from
from headrace.secret_files import ExposedSecret
from tests.certificates import make_authority, make_certificate
from tests.integration.waiting import wait_until
from tests.integration.writing import write_and_read


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    authority = make_authority(folder, "authority")
    broker = make_certificate(folder, "broker", "authority", alternative="IP:127.0.0.1")
    client = make_certificate(
        folder, "client", "authority", alternative="DNS:client", subject="/C=DE/O=Acme, Inc./CN=alice"
    )
    make_authority(folder, "stranger")
    stranger = make_certificate(folder, "unknown", "stranger", alternative="IP:127.0.0.1")
    return SimpleNamespace(folder=folder, authority=authority, broker=broker, client=client, stranger=stranger)


@pytest.fixture(scope="module")
def settings(files):
    return {
        "ssl.keystore.location": str(files.broker),
        "ssl.truststore.location": str(files.authority),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.security.protocol.map": "MUTUAL:SSL",
    }


@pytest.fixture(scope="module")
def broker(settings):
    with Broker(listen=["127.0.0.1:0", "SSL://127.0.0.1:0", "MUTUAL://127.0.0.1:0"], settings=settings) as running:
        plain, tls, mutual = running.bootstrap_servers.split(",")
        yield SimpleNamespace(plain=plain, tls=tls, mutual=mutual)


def open_cluster(address, files, **options):
    trusted = {"security.protocol": "SSL", "ssl.ca.location": str(files.authority)}
    return Cluster(parse_bootstrap(address), settings_from(trusted | options))


def connect(address):
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=30)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_records_go_through(broker, files, version):
    with open_cluster(broker.tls, files, **{"ssl.enabled.protocols": version}) as cluster:
        write_and_read(cluster, f"tls-{uuid.uuid4().hex[:8]}", count=3000)
        # The address that a client is told is that of the listener it came by.
        assert [str(address) for address in cluster.brokers().addresses.values()] == [broker.tls]


def test_large_answers_to_slow_readers_are_whole(broker, files):
    """More than the socket takes at once, and more than one turn encrypts."""
    topic = f"large-{uuid.uuid4().hex[:8]}"
    with open_cluster(broker.tls, files) as cluster:
        write_and_read(cluster, topic, count=40, value_bytes=500_000)


def test_a_certificate_is_wanted(broker, files):
    with open_cluster(broker.mutual, files) as cluster, pytest.raises(TlsRefused):
        cluster.brokers()
    own = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(files.client)}
    with open_cluster(broker.mutual, files, **own) as cluster:
        assert cluster.brokers().addresses
    foreign = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(files.stranger)}
    with open_cluster(broker.mutual, files, **foreign) as cluster, pytest.raises(TlsRefused):
        cluster.brokers()


def test_old_tls_is_refused(broker):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with connect(broker.tls) as plain, pytest.raises(ssl.SSLError):
        context.wrap_socket(plain)


# --- bad neighbours


def test_who_does_not_speak_tls_is_closed_alone(files, settings, caplog):
    with (
        Broker(listen="SSL://127.0.0.1:0", settings=settings) as running,
        open_cluster(running.bootstrap_servers, files) as neighbour,
    ):
        neighbour.brokers()
        for _ in range(30):
            with connect(running.bootstrap_servers) as stranger, contextlib.suppress(ConnectionResetError):
                stranger.sendall(b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n")
                while stranger.recv(1000):
                    pass
        assert neighbour.brokers(refresh=True).addresses
    lines = [record for record in caplog.records if "the client does not speak TLS" in str(vars(record))]
    assert len(lines) == 1  # the others are counted


def test_who_speaks_tls_where_nobody_does_is_closed_alone(broker, files, caplog):
    with open_cluster(broker.plain, files) as cluster, pytest.raises(Exception, match="closed"):
        cluster.brokers()
    assert any("speaks TLS, and this listener does not" in record.getMessage() for record in caplog.records)


def test_a_plain_client_is_told_so(broker):
    with Cluster(parse_bootstrap(broker.tls)) as cluster, pytest.raises(NotKafka, match="it speaks TLS"):
        cluster.brokers()


def test_a_handshake_that_does_not_come_ends(settings):
    hurried = settings | {"socket.connection.setup.timeout.ms": "500"}
    with Broker(listen="SSL://127.0.0.1:0", settings=hurried) as running, connect(running.bootstrap_servers) as silent:
        assert silent.recv(1) == b""  # within the time of the socket, which is longer than the broker's


def test_garbage_after_the_handshake_closes(broker, files):
    context = ssl.create_default_context(cafile=str(files.authority))
    with connect(broker.tls) as plain:
        secure = context.wrap_socket(plain, server_hostname="127.0.0.1", do_handshake_on_connect=True)
        raw = socket.socket(fileno=os.dup(secure.fileno()))
        raw.sendall(b"\x17\x03\x03\x00\x20" + b"x" * 32)  # a record that does not decrypt
        with contextlib.suppress(ssl.SSLError, ConnectionResetError):
            assert secure.recv(1000) == b""
        raw.close()
        secure.close()


def expand(secret, label, size):
    """HKDF-Expand-Label of TLS 1.3, for no more than a hash is long."""
    info = struct.pack(">HB", size, 6 + len(label)) + b"tls13 " + label + b"\0\1"
    return hmac.digest(secret, info, f"sha{8 * len(secret)}")[:size]


def changes_of_keys(secret):
    """Records that change the client's keys, and ask for the same of the broker (RFC 8446, 4.6.3), without end."""
    plain = bytes.fromhex("18 000001 01") + b"\x16"
    head = bytes.fromhex("17 0303") + struct.pack(">H", len(plain) + 16)
    while True:
        yield head + AESGCM(expand(secret, b"key", 32)).encrypt(expand(secret, b"iv", 12), plain, head)
        secret = expand(secret, b"traffic upd", len(secret))


def test_who_asks_for_new_keys_and_takes_none_is_refused(files, tmp_path):
    trusting, showing = ssl.create_default_context(cafile=files.authority), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trusting.keylog_filename = str(tmp_path / "secrets")
    showing.load_cert_chain(files.broker)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        served, room = TlsSocket(ours, showing), memoryview(bytearray(1000))

        def serve(data):
            theirs.sendall(data)
            with contextlib.suppress(BlockingIOError):
                while True:
                    served.recv_into(room)

        for _ in range(2):
            with contextlib.suppress(ssl.SSLWantReadError):
                client.do_handshake()
            serve(outgoing.read())
            incoming.write(theirs.recv(65536))
        assert served.is_secure
        assert client.cipher()[0] == "TLS_AES_256_GCM_SHA384"
        lines = (line.split() for line in (tmp_path / "secrets").read_text().splitlines())
        (secret,) = (bytes.fromhex(line[2]) for line in lines if line[0] == "CLIENT_TRAFFIC_SECRET_0")
        held = [0]

        def ask_without_end():
            for change in itertools.islice(changes_of_keys(secret), 100_000):
                serve(change)
                held.append(len(served._unsent))

        with pytest.raises(TlsFailed, match="does not take"):
            ask_without_end()
        assert MOST_UNSENT_BYTES - 100 < max(held) <= MOST_UNSENT_BYTES


def test_bytes_one_by_one(broker, files):
    """A record that comes in pieces, and a request that comes in many records."""
    from headrace.protocol.frame import decode_response, encode_request
    from headrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

    request = encode_request(ApiVersionsRequest(client_software_name="drip", client_software_version="1"), 3, 7, "drip")
    context = ssl.create_default_context(cafile=str(files.authority))
    with connect(broker.tls) as plain, context.wrap_socket(plain, server_hostname="127.0.0.1") as secure:
        for byte in request:
            secure.sendall(bytes([byte]))
        data = b""
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            data += secure.recv(10_000)
        _, answer = decode_response(ApiVersionsResponse, 3, data[4:])
        assert answer.error_code == 0


# --- certificates


def test_a_certificate_that_is_renewed_is_shown_without_a_restart(files, settings, tmp_path, caplog):
    store = tmp_path / "store.pem"
    store.touch(0o600)
    store.write_text(files.broker.read_text())
    with Broker(listen="SSL://127.0.0.1:0", settings=settings | {"ssl.keystore.location": str(store)}) as running:
        address = parse_bootstrap(running.bootstrap_servers)[0]
        old = ssl.get_server_certificate(address)
        store.write_text("half a certif")
        wait_until(
            lambda: (
                ssl.get_server_certificate(address) == old
                and any(record.getMessage() == "certificates not reloaded" for record in caplog.records)
            ),
            "nobody looked at the broken certificate",
        )
        renewed = make_certificate(files.folder, "renewed", "authority", alternative="IP:127.0.0.1")
        store.write_text(renewed.read_text())
        wait_until(lambda: ssl.get_server_certificate(address) != old, "the new certificate is not shown")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"ssl.keystore.location": ""}, r"needs a certificate: set ssl\.keystore\.location"),
        ({"ssl.truststore.location": "", "ssl.client.auth": "required"}, r"set ssl\.truststore\.location"),
        ({"ssl.truststore.location": "/nowhere"}, "holds no certificates in PEM"),
        ({"ssl.principal.mapping.rules": "RULE:x"}, "is not a rule"),
    ],
)
def test_what_cannot_be_used_is_a_sentence_at_the_start(settings, changed, said):
    with pytest.raises(Exception, match=said), Broker(listen="SSL://127.0.0.1:0", settings=settings | changed):
        pass


def test_a_key_for_everybody_and_a_key_that_is_none(files, settings, tmp_path):
    exposed = tmp_path / "exposed.pem"
    exposed.write_text(files.broker.read_text())
    exposed.chmod(0o644)
    changed = settings | {"ssl.keystore.location": str(exposed)}
    with pytest.raises(ExposedSecret, match="chmod 600"), Broker(listen="SSL://127.0.0.1:0", settings=changed):
        pass
    exposed.chmod(0o600)
    exposed.write_text("nothing")
    with pytest.raises(InvalidSetting, match="no private key"), Broker(listen="SSL://127.0.0.1:0", settings=changed):
        pass


def test_an_encrypted_key(files, settings, tmp_path):
    store = tmp_path / "locked.pem"
    store.touch(0o600)
    command = ["openssl", "pkcs8", "-topk8", "-in", files.folder / "broker.key", "-passout", "pass:opensesame"]
    locked = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    store.write_text(locked + (files.folder / "broker.crt").read_text())
    changed = settings | {"ssl.keystore.location": str(store)}
    with (
        pytest.raises(InvalidSetting, match=r"ssl\.key\.password"),
        Broker(listen="SSL://127.0.0.1:0", settings=changed),
    ):
        pass
    changed["ssl.key.password"] = "opensesame"
    with (
        Broker(listen="SSL://127.0.0.1:0", settings=changed) as running,
        open_cluster(running.bootstrap_servers, files) as cluster,
    ):
        assert cluster.brokers().addresses


def test_many_at_once(broker, files):
    """Several connections, each with requests under way, none in the way of another."""
    failures = []

    def work(number):
        try:
            with open_cluster(broker.tls, files) as cluster:
                write_and_read(cluster, f"many-{number}-{uuid.uuid4().hex[:8]}", count=500)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.parametrize(
    ("rules", "user"),
    [("DEFAULT", "User:CN=alice,O=Acme\\, Inc.,C=DE"), ("RULE:^CN=(.*?),.*$/$1/U,DEFAULT", "User:ALICE")],
)
def test_a_client_is_whom_its_certificate_names(files, settings, rules, user):
    own = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(files.client)}
    secured = settings | {"authorization": "on", "ssl.principal.mapping.rules": rules}
    for super_user, error in ((user, None), ("User:bob", Refused)):
        changed = secured | {"super.users": super_user}
        with (
            Broker(listen="MUTUAL://127.0.0.1:0", settings=changed) as running,
            open_cluster(running.bootstrap_servers, files, **own) as cluster,
            pytest.raises(error) if error else contextlib.nullcontext(),
        ):
            admin.create_topic(cluster, "mine", partitions=1)
