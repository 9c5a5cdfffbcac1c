"""A connection under TLS: what a broker of one's own can show that a real one does not do on demand."""

import contextlib
import os
import select
import ssl
import subprocess
import tempfile
from pathlib import Path

import pytest

from headrace.client.connection import Connection, ConnectionSettings
from headrace.client.errors import BadSecurity, RequestTimedOut, SecureConnectionClosed, TlsRefused
from headrace.client.tls import context_of
from headrace.client.tls_settings import Pem, TlsSettings
from headrace.protocol.frame import encode_response
from headrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.unit.client.scripted_broker import listening, negotiate, read_request


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A certificate that signed itself, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "key.pem"]
    named = ["-subj", "/CN=broker", "-addext", "subjectAltName=IP:127.0.0.1", "-out", "certificate.pem"]
    subprocess.run(["openssl", "req", "-x509", *new_key, *named], check=True, capture_output=True, cwd=folder)
    return folder / "certificate.pem", folder / "key.pem"


def settings(pair, **tls):
    authorities = Pem("ssl.ca.location", path=str(pair[0]))
    return ConnectionSettings(
        connect_timeout_s=30,
        request_timeout_s=30,
        security_protocol="SSL",
        tls=TlsSettings(**{"authorities": authorities, **tls}),
    )


def over_tls(pair, script):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair)

    def secured(peer):
        with contextlib.closing(context.wrap_socket(peer, server_side=True)) as private:
            script(private)

    return secured


def test_answers_that_came_in_one_tls_record(pair):
    """Once the first is read nothing more is on the socket, and whoever polls it would wait for ever."""

    def script(peer):
        negotiate(peer)
        requests = [read_request(peer), read_request(peer)]
        answers = [
            encode_response(
                MetadataResponse(cluster_id=name), one.header.request_api_version, one.header.correlation_id
            )
            for name, one in zip(("first", "second"), requests, strict=True)
        ]
        peer.sendall(b"".join(answers))
        peer.recv(1)

    with listening(over_tls(pair, script)) as address:
        connection = Connection(address, settings(pair))
        tickets = [connection.send(MetadataRequest(topics=[]), MetadataResponse) for _ in range(2)]
        assert connection.receive(tickets[0], MetadataResponse).cluster_id == "first"
        assert not select.select([connection], [], [], 0)[0]
        assert connection.has_answer(tickets[1])
        assert connection.receive(tickets[1], MetadataResponse).cluster_id == "second"
        assert not connection.has_answer(tickets[1])
        connection.close()
        assert not connection.has_answer(tickets[1])


def test_an_unknown_signer_is_a_sentence_unless_nobody_checks(pair):
    script = over_tls(pair, negotiate)
    with listening(script, script) as address:
        with pytest.raises(TlsRefused, match=r"self-signed certificate\): name the authority .* in ssl\.ca\.location"):
            Connection(address, settings(pair, authorities=None))
        Connection(address, settings(pair, authorities=None, verify=False)).close()


def test_a_broker_that_never_shakes_hands(pair):
    impatient = ConnectionSettings(connect_timeout_s=0.2, security_protocol="SSL")
    with (
        listening(lambda peer: peer.recv(1) and peer.recv(10_000) and peer.recv(1)) as address,
        pytest.raises(RequestTimedOut, match=r"did not answer the TLS handshake within 0\.2 s"),
    ):
        Connection(address, impatient)


def test_somebody_who_speaks_no_tls(pair):
    def http(peer):
        peer.recv(1000)
        peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        peer.recv(1)

    with listening(http) as address, pytest.raises(TlsRefused, match="may speak no TLS: check the port"):
        Connection(address, settings(pair))


def test_hanging_up_in_the_handshake(pair):
    with (
        listening(lambda peer: peer.recv(10_000)) as address,
        pytest.raises(SecureConnectionClosed, match=r"during the TLS handshake.*takes SSL connections"),
    ):
        Connection(address, settings(pair))


# --- files


def test_authorities_that_are_not_there(pair, tmp_path):
    with pytest.raises(BadSecurity, match=r"ssl\.ca\.location names '.*none\.pem', which is not there"):
        context_of(TlsSettings(authorities=Pem("ssl.ca.location", path=str(tmp_path / "none.pem"))))
    (tmp_path / "words").write_text("no certificate")
    with pytest.raises(BadSecurity, match=r"ssl\.ca\.location holds no certificates in PEM"):
        context_of(TlsSettings(authorities=Pem("ssl.ca.location", path=str(tmp_path / "words"))))
    with pytest.raises(BadSecurity, match=r"ssl\.ca\.pem holds no certificates in PEM"):
        context_of(TlsSettings(authorities=Pem("ssl.ca.pem", text="no certificate")))


def test_a_key_of_another_certificate(pair, tmp_path):
    other = tmp_path / "other.pem"
    command = ["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", str(other)]
    subprocess.run(command, check=True, capture_output=True)
    certificate = Pem("ssl.certificate.location", path=str(pair[0]))
    with pytest.raises(BadSecurity, match="is not the key of the certificate in"):
        context_of(TlsSettings(certificate=certificate, key=Pem("ssl.key.location", path=str(other))))
    with pytest.raises(BadSecurity, match=r"ssl\.certificate\.location holds no certificate and private key"):
        context_of(TlsSettings(certificate=certificate))


def test_a_key_given_as_text_is_not_left_behind(pair, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    certificate, key = (Pem("option", text=" ".join(Path(file).read_text().split("\n"))) for file in pair)
    context_of(TlsSettings(authorities=certificate, certificate=certificate, key=key))
    with key.as_file() as path:
        assert os.stat(path).st_mode & 0o077 == 0
        assert Path(path).read_text() == pair[1].read_text()
    assert not list(tmp_path.iterdir())


def test_a_chain_in_one_line(pair):
    """As a properties file has it, with the line ends spelt out."""
    text = pair[0].read_text()
    with Pem("option", text=(text + text).replace("\n", "\\n")).as_file() as path:
        assert Path(path).read_text() == text + text
