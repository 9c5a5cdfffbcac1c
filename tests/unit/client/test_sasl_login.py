"""Logging in on a connection, with brokers that do what a real one does not do on demand."""

import pytest

from headrace.client.connection import Connection, ConnectionSettings
from headrace.client.errors import AuthenticationFailed, ConnectionClosed, VersionNotSpoken
from headrace.client.sasl import Credentials
from headrace.protocol.api import ApiKey
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.api_versions import ApiVersion
from headrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from headrace.protocol.messages.sasl_handshake import SaslHandshakeResponse
from tests.unit.client.scripted_broker import EVERYTHING, answer, listening, negotiate, read_request


def settings(mechanism="PLAIN"):
    return ConnectionSettings(
        connect_timeout_s=30,
        request_timeout_s=30,
        security_protocol="SASL_PLAINTEXT",
        credentials=Credentials(mechanism, "alice", "hush"),
    )


def take_handshake(peer):
    request = read_request(peer)
    answer(peer, request, SaslHandshakeResponse(mechanisms=["PLAIN"]))
    return request.body.mechanism


def take_token(peer, token=b"", lifetime_ms=0):
    request = read_request(peer)
    answer(peer, request, SaslAuthenticateResponse(auth_bytes=token, session_lifetime_ms=lifetime_ms))
    return bytes(request.body.auth_bytes)


def test_plain_says_the_name_and_the_password():
    heard = []

    def script(peer):
        negotiate(peer)
        heard.extend((take_handshake(peer), take_token(peer)))

    with listening(script) as address:
        Connection(address, settings()).close()
    assert heard == ["PLAIN", b"\0alice\0hush"]


def test_a_login_is_renewed_behind_a_request_that_is_on_its_way():
    heard = []

    def script(peer):
        negotiate(peer)
        take_handshake(peer)
        take_token(peer, lifetime_ms=60_000)
        waiting, handshake = read_request(peer), read_request(peer)
        answer(peer, waiting, MetadataResponse(cluster_id="before"))
        answer(peer, handshake, SaslHandshakeResponse(mechanisms=["PLAIN"]))
        heard.append(take_token(peer, lifetime_ms=60_000))
        answer(peer, read_request(peer), MetadataResponse(cluster_id="after"))
        answer(peer, read_request(peer), MetadataResponse(cluster_id="later"))
        peer.recv(1)

    with listening(script) as address:
        connection = Connection(address, settings())
        before = connection.send(MetadataRequest(topics=[]), MetadataResponse)
        connection._login_until = 0
        assert connection.request(MetadataRequest(topics=[]), MetadataResponse).cluster_id == "after"
        assert connection.has_answer(before)
        assert connection.receive(before, MetadataResponse).cluster_id == "before"
        assert connection.request(MetadataRequest(topics=[]), MetadataResponse).cluster_id == "later"
        connection.close()
    assert heard == [b"\0alice\0hush"]


def test_a_login_that_is_refused_the_second_time_ends_the_connection():
    def script(peer):
        negotiate(peer)
        take_handshake(peer)
        take_token(peer, lifetime_ms=60_000)
        take_handshake(peer)
        answer(peer, read_request(peer), SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED))
        peer.recv(1)

    with listening(script) as address:
        connection = Connection(address, settings())
        connection._login_until = 0
        with pytest.raises(
            AuthenticationFailed, match=r"by PLAIN \(the credentials were refused\): check the password"
        ):
            connection.request(MetadataRequest(topics=[]), MetadataResponse)
        assert not connection.is_open
        with pytest.raises(ConnectionClosed):
            connection.request(MetadataRequest(topics=[]), MetadataResponse)


def test_a_broker_that_only_pretends_to_know_the_password():
    def script(peer):
        negotiate(peer)
        take_handshake(peer)
        request = read_request(peer)
        nonce = bytes(request.body.auth_bytes).rpartition(b"r=")[2]
        answer(peer, request, SaslAuthenticateResponse(auth_bytes=b"r=" + nonce + b"x,s=c2FsdA==,i=4096"))
        take_token(peer, b"v=" + b"A" * 43 + b"=")
        peer.recv(1)

    with (
        listening(script) as address,
        pytest.raises(AuthenticationFailed, match="could not show that it knows the password") as caught,
    ):
        Connection(address, settings("SCRAM-SHA-256"))
    assert "hush" not in str(caught.value)


def test_a_broker_of_before_there_were_requests_for_tokens():
    old = [one for one in EVERYTHING if one.api_key != ApiKey.SASL_HANDSHAKE]
    old.append(ApiVersion(api_key=ApiKey.SASL_HANDSHAKE, min_version=0, max_version=0))
    with (
        listening(lambda peer: negotiate(peer, old)) as address,
        pytest.raises(VersionNotSpoken, match="cannot be asked for SaslHandshake"),
    ):
        Connection(address, settings())
