"""One connection: versions agreed on, answers told apart, and every failure a sentence."""

import socket
import time
from dataclasses import replace

import pytest

from headrace.client.address import Address
from headrace.client.connection import Connection, ConnectionSettings
from headrace.client.errors import (
    BrokerUnreachable,
    ConnectionClosed,
    NotKafka,
    RequestTimedOut,
    UnsupportedSecurity,
    VersionNotSpoken,
)
from headrace.protocol.api import APIS, ApiKey
from headrace.protocol.errors import ErrorCode
from headrace.protocol.frame import encode_response
from headrace.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from headrace.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from headrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.unit.client.scripted_broker import answer, listening, negotiate, read_exactly, read_request

SETTINGS = ConnectionSettings(connect_timeout_s=30, request_timeout_s=30)


def test_the_highest_version_that_both_know():
    spoken = [ApiVersion(api_key=ApiKey.METADATA, min_version=2, max_version=7)]
    with listening(lambda peer: negotiate(peer, spoken)) as address:
        connection = Connection(address, SETTINGS)
        assert connection.version_of(ApiKey.METADATA) == 7
        assert connection.version_of(ApiKey.METADATA, highest=4) == 4
        with pytest.raises(VersionNotSpoken, match="versions 2 to 7 of it and this client 0 to 1"):
            connection.version_of(ApiKey.METADATA, highest=1)
        with pytest.raises(VersionNotSpoken, match="cannot be asked for Produce: the broker does not offer it"):
            connection.version_of(ApiKey.PRODUCE)
        connection.close()


def test_a_newer_broker_is_spoken_to_in_our_version():
    spoken = [ApiVersion(api_key=ApiKey.METADATA, min_version=0, max_version=99)]
    with listening(lambda peer: negotiate(peer, spoken)) as address:
        connection = Connection(address, SETTINGS)
        assert connection.version_of(ApiKey.METADATA) == APIS[ApiKey.METADATA].versions[-1]
        connection.close()


@pytest.mark.parametrize("known", [0, 2, 3])
def test_an_older_broker_is_asked_again_in_its_own_version(known):
    asked = []

    def script(peer):
        while True:
            request = read_request(peer)
            asked.append(request.header.request_api_version)
            spoken = [ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=known)]
            if asked[-1] > known:
                refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=spoken)
                peer.sendall(encode_response(refusal, 0, request.header.correlation_id))
            else:
                answer(peer, request, ApiVersionsResponse(api_keys=spoken))
                return

    with listening(script) as address:
        Connection(address, SETTINGS).close()
    assert asked == [APIS[ApiKey.API_VERSIONS].versions[-1], known]


def test_answers_are_told_apart_by_their_ids():
    def script(peer):
        negotiate(peer)
        first, second = read_request(peer), read_request(peer)
        answer(peer, second, MetadataResponse(cluster_id="second"))
        answer(peer, first, DescribeClusterResponse(cluster_id="first"))
        peer.recv(1)

    with listening(script) as address:
        connection = Connection(address, SETTINGS)
        first = connection.send(DescribeClusterRequest(), DescribeClusterResponse)
        second = connection.send(MetadataRequest(topics=[]), MetadataResponse)
        assert connection.receive(first, DescribeClusterResponse).cluster_id == "first"
        assert connection.has_answer(second)
        assert connection.receive(second, MetadataResponse).cluster_id == "second"
        connection.close()


def test_nobody_listens():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = Address(*unused.getsockname())
        with pytest.raises(BrokerUnreachable, match=rf"cannot reach a broker at {address} \(Connection refused\)"):
            Connection(address, SETTINGS)


def test_no_such_host():
    with pytest.raises(BrokerUnreachable, match=r"cannot reach a broker at nowhere\.invalid:9092"):
        Connection(Address("nowhere.invalid", 9092), SETTINGS)


def test_a_name_that_no_host_can_have():
    with pytest.raises(BrokerUnreachable):
        Connection(Address("a" * 70 + ".example", 9092), SETTINGS)


def test_somebody_else_listens():
    def http(peer):
        peer.recv(1000)
        peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        peer.recv(1)

    with listening(http) as address, pytest.raises(NotKafka, match="does not speak Kafka's protocol"):
        Connection(address, SETTINGS)


@pytest.mark.parametrize("body", [b"\x00\x00\x00\x00\xff", b"\x00\x00\x00\x07", b"\x00\x00\x00\x00" + bytes(1000)])
def test_an_answer_that_is_none(body):
    def script(peer):
        read_request(peer)
        peer.sendall(len(body).to_bytes(4, "big") + body)
        peer.recv(1)

    with listening(script) as address, pytest.raises(NotKafka):
        Connection(address, SETTINGS)


def test_the_broker_hangs_up():
    def script(peer):
        negotiate(peer)
        read_request(peer)

    with listening(script) as address:
        connection = Connection(address, SETTINGS)
        with pytest.raises(ConnectionClosed, match=f"{address} closed the connection during Metadata"):
            connection.request(MetadataRequest(topics=[]), MetadataResponse)
        assert not connection.is_open
        with pytest.raises(ConnectionClosed):
            connection.request(MetadataRequest(topics=[]), MetadataResponse)


def test_a_listener_that_hangs_up_at_once_may_want_tls():
    with listening(lambda peer: None) as address, pytest.raises(ConnectionClosed, match="takes plaintext"):
        Connection(address, SETTINGS)


def test_an_answer_that_does_not_come_ends_the_connection():
    def script(peer):
        negotiate(peer)
        peer.sendall(b"\x00\x00")  # the beginning of an answer is no answer
        read_exactly(peer, 10_000)

    with listening(script) as address:
        connection = Connection(address, replace(SETTINGS, request_timeout_s=1.5))
        began = time.monotonic()
        with pytest.raises(RequestTimedOut, match=f"{address} did not answer Metadata within 1.5 s"):
            connection.request(MetadataRequest(topics=[]), MetadataResponse)
        assert time.monotonic() - began < 15
        assert not connection.is_open


def test_a_version_too_old_for_what_is_asked():
    spoken = [ApiVersion(api_key=ApiKey.METADATA, min_version=0, max_version=1)]

    def script(peer):
        negotiate(peer, spoken)
        peer.recv(1)

    with listening(script) as address:
        connection = Connection(address, SETTINGS)
        with pytest.raises(VersionNotSpoken, match="version 1 is too old"):
            connection.send(MetadataRequest(topics=[], allow_auto_topic_creation=False), MetadataResponse)
        connection.close()


def test_settings_that_cannot_connect():
    with pytest.raises(UnsupportedSecurity, match="'TLS' is not supported: use PLAINTEXT, SSL, SASL_PLAINTEXT or SASL"):
        ConnectionSettings(security_protocol="TLS")
    with pytest.raises(UnsupportedSecurity, match="SASL_SSL needs to know who connects"):
        ConnectionSettings(security_protocol="SASL_SSL")
