"""Logins byte by byte, and by other people's clients, on a real Kafka and on our broker: the same on both."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.helpers import create_ssl_context
from confluent_kafka import Consumer, KafkaError, Producer

from headrace.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from headrace.protocol.messages.api_versions import ApiVersionsRequest
from headrace.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from headrace.protocol.messages.metadata import MetadataRequest
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest
from headrace.security.scram import ScramExchange
from peers.kafka.tools import run_tool
from tests.conformance.clients.wire import CLOSED, Wire, error_name
from tests.conformance.secure_brokers import PLAIN_USER, SCRAM_USER

pytestmark = pytest.mark.java

FAILED = "SASL_AUTHENTICATION_FAILED"
INVALID = "Authentication failed during authentication due to invalid credentials with SASL mechanism"
NOT_THE_USER = "Authentication failed: Client requested an authorization id that is different from username"


@pytest.fixture
def wire(secure_broker):
    with Wire(secure_broker.servers_of("SASL_PLAINTEXT")) as connected:
        yield connected


def choose(wire, mechanism, version=1):
    answer = wire.ask(SaslHandshakeRequest(mechanism=mechanism), version)
    return error_name(answer.error_code), sorted(answer.mechanisms)


def give(wire, token, version=2):
    """What is answered to a token, and whether anything is after a refusal."""
    answer = wire.ask(SaslAuthenticateRequest(auth_bytes=token), version)
    if answer.error_code:
        assert what_comes(wire) == CLOSED
        return error_name(answer.error_code), answer.error_message
    return "NONE", bytes(answer.auth_bytes)


def what_comes(wire):
    try:
        return wire.ask(MetadataRequest(topics=[]), 9)
    except (ConnectionError, EOFError):
        return CLOSED


ALL = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


def test_a_mechanism_that_is_not_there(wire):
    assert choose(wire, "GSSAPI") == ("UNSUPPORTED_SASL_MECHANISM", ALL)
    assert what_comes(wire) == CLOSED


@pytest.mark.parametrize(
    ("token", "said"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0wrong", "Authentication failed: Invalid username or password"),
        ("\0".join(("bob", *PLAIN_USER)).encode(), NOT_THE_USER),
        (b"\0\0wrong", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0alice\0wrong\0\0\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
    ],
)
def test_wrong_plain(wire, token, said):
    assert choose(wire, "PLAIN") == ("NONE", ALL)
    assert give(wire, token) == (FAILED, said)


@pytest.mark.parametrize("token", [b"", b"n", b"y,,n=bob,r=x", b"n,,n=b=o,r=x", b"n,,r=x", b"\xff\xff"])
def test_a_first_message_that_is_not_scram(wire, token):
    choose(wire, "SCRAM-SHA-256")
    assert give(wire, token) == (FAILED, f"{INVALID} SCRAM-SHA-256")


def test_a_wrong_proof(wire):
    choose(wire, "SCRAM-SHA-512")
    client = ScramExchange("SCRAM-SHA-512", SCRAM_USER[0], "wrong", "nonce")
    error, first = give(wire, client.first())
    assert error == "NONE"
    assert give(wire, client.answer(first)) == (FAILED, f"{INVALID} SCRAM-SHA-512")


@pytest.mark.parametrize("broken", [lambda final: b"", lambda final: b"x" + final])
def test_a_last_message_that_is_not_scram(wire, broken):
    choose(wire, "SCRAM-SHA-256")
    client = ScramExchange("SCRAM-SHA-256", *SCRAM_USER, "nonce")
    _, first = give(wire, client.first())
    assert give(wire, broken(client.answer(first))) == (FAILED, f"{INVALID} SCRAM-SHA-256")


def test_a_good_login_tells_that_the_broker_knows_the_password(wire):
    choose(wire, "SCRAM-SHA-256")
    client = ScramExchange("SCRAM-SHA-256", *SCRAM_USER, "nonce")
    _, first = give(wire, client.first())
    _, final = give(wire, client.answer(first))
    client.finish(final)
    assert what_comes(wire).brokers


def test_what_may_not_come_yet(wire):
    assert what_comes(wire) == CLOSED


def test_versions_are_told_once(wire):
    request = ApiVersionsRequest(client_software_name="wire", client_software_version="1")
    assert wire.ask(request, 3).error_code == 0
    with pytest.raises((ConnectionError, EOFError)):
        wire.ask(request, 3)


def test_a_login_where_there_is_none(secure_broker):
    with Wire(secure_broker.servers_of("PLAINTEXT")) as wire:
        assert choose(wire, "PLAIN") == ("ILLEGAL_SASL_STATE", [])
        answer = wire.ask(SaslAuthenticateRequest(auth_bytes=b"x"), 2)
        assert (error_name(answer.error_code), answer.error_message) == (
            "ILLEGAL_SASL_STATE",
            "SaslAuthenticate request received after successful authentication",
        )


def test_users(secure_broker):
    def upsertion(name, mechanism=1, iterations=4096):
        salted = {"salt": b"salt", "salted_password": b"s" * 32}
        return ScramCredentialUpsertion(name=name, mechanism=mechanism, iterations=iterations, **salted)

    def alter(**request):
        answer = wire.ask(AlterUserScramCredentialsRequest(**request))
        return sorted((each.user, error_name(each.error_code), each.error_message) for each in answer.results)

    with Wire(secure_broker.servers_of("PLAINTEXT")) as wire:
        assert alter(
            upsertions=[upsertion("u1"), upsertion("few", 1, 4095), upsertion("many", 2, 16385), upsertion("", 1),
                        upsertion("odd", 7), upsertion("twice"), upsertion("twice", 2)],
            deletions=[ScramCredentialDeletion(name="gone", mechanism=1)],
        ) == [
            ("", "UNACCEPTABLE_CREDENTIAL", "Username must not be empty"),
            ("few", "UNACCEPTABLE_CREDENTIAL", "Too few iterations"),
            ("gone", "RESOURCE_NOT_FOUND", "Attempt to delete a user credential that does not exist"),
            ("many", "UNACCEPTABLE_CREDENTIAL", "Too many iterations"),
            ("odd", "UNSUPPORTED_SASL_MECHANISM", "Unknown SCRAM mechanism"),
            ("twice", "DUPLICATE_RESOURCE", "A user credential cannot be altered twice in the same request"),
            ("u1", "NONE", None),
        ]  # fmt: skip
        asked = [UserName(name=name) for name in ("gone", SCRAM_USER[0], "twice", "twice")]
        answer = wire.ask(DescribeUserScramCredentialsRequest(users=asked))
        assert sorted(
            (each.user, error_name(each.error_code), each.error_message, len(each.credential_infos))
            for each in answer.results
        ) == [
            (SCRAM_USER[0], "NONE", "", 2),
            ("gone", "RESOURCE_NOT_FOUND", "Attempt to describe a user credential that does not exist: gone", 0),
            (
                "twice",
                "DUPLICATE_RESOURCE",
                "Cannot describe SCRAM credentials for the same user twice in a single request: twice",
                0,
            ),
        ]
        assert alter(deletions=[ScramCredentialDeletion(name="u1", mechanism=1)]) == [("u1", "NONE", None)]


# --- other people's clients

WAYS = [
    *(("SASL_PLAINTEXT", mechanism) for mechanism in ALL),
    ("SASL_SSL", "SCRAM-SHA-512"),
]


def user_of(mechanism):
    return PLAIN_USER if mechanism == "PLAIN" else SCRAM_USER


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_librdkafka(secure_broker, files, protocol, mechanism):
    name, password = user_of(mechanism)
    options = {
        "bootstrap.servers": secure_broker.servers_of(protocol),
        "security.protocol": protocol,
        "sasl.mechanism": mechanism,
        "sasl.username": name,
        "sasl.password": password,
        "ssl.ca.location": str(files.authority),
    }
    topic = f"rdkafka-{uuid.uuid4().hex[:8]}"
    producer = Producer(options)
    producer.produce(topic, b"hello")
    assert producer.flush(30) == 0
    consumer = Consumer(options | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    assert consumer.poll(30).value() == b"hello"
    consumer.close()
    errors = []
    wrong = Producer(options | {"sasl.password": "wrong", "error_cb": lambda error: errors.append(error.code())})
    wrong.poll(10)
    assert KafkaError._AUTHENTICATION in errors


def test_librdkafka_with_a_certificate(secure_broker, files):
    options = {
        "bootstrap.servers": secure_broker.servers_of("MUTUAL"),
        "security.protocol": "SSL",
        "ssl.ca.location": str(files.authority),
        "ssl.certificate.location": str(files.folder / "client.crt"),
        "ssl.key.location": str(files.folder / "client.key"),
    }
    producer = Producer(options)
    producer.produce(f"mutual-{uuid.uuid4().hex[:8]}", b"hello")
    assert producer.flush(30) == 0


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_aiokafka(secure_broker, files, protocol, mechanism):
    name, password = user_of(mechanism)
    options = {
        "bootstrap_servers": secure_broker.servers_of(protocol),
        "security_protocol": protocol,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": name,
        "sasl_plain_password": password,
        "ssl_context": create_ssl_context(cafile=str(files.authority)) if protocol == "SASL_SSL" else None,
    }
    topic = f"aio-{uuid.uuid4().hex[:8]}"

    async def write_and_read():
        async with AIOKafkaProducer(**options) as producer:
            await producer.send_and_wait(topic, b"hello")
        async with AIOKafkaConsumer(topic, **options, auto_offset_reset="earliest") as consumer:
            return (await asyncio.wait_for(consumer.getone(), 30)).value

    assert asyncio.run(write_and_read()) == b"hello"


@pytest.mark.parametrize(("protocol", "mechanism"), [("SASL_PLAINTEXT", "PLAIN"), ("SASL_SSL", "SCRAM-SHA-512")])
def test_java(secure_broker, files, tmp_path, protocol, mechanism):
    """Producer and consumer of Kafka's own."""
    kind = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    name, password = (part.replace('"', '\\\\"') for part in user_of(mechanism))
    settings = {
        "security.protocol": protocol,
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": (
            f'org.apache.kafka.common.security.{kind}LoginModule required username="{name}" password="{password}";'
        ),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(files.authority),
        "group.id": f"java-{uuid.uuid4().hex[:8]}",
    }
    config = tmp_path / "client.properties"
    lines = "".join(f"{key}={value}\n" for key, value in settings.items())
    config.write_bytes(lines.encode("ascii", "backslashreplace"))  # as Java reads properties
    topic = f"java-{uuid.uuid4().hex[:8]}"
    to = ("--bootstrap-server", secure_broker.servers_of(protocol), "--topic", topic, "--command-config", str(config))
    run_tool("org.apache.kafka.tools.ConsoleProducer", *to, standard_input="hello\n")
    read = run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", *to, "--from-beginning", "--max-messages", "1",
        "--timeout-ms", "20000",
    )  # fmt: skip
    assert read.stdout.splitlines() == ["hello"]
