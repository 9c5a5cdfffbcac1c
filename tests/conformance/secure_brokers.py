"""A broker with a listener of each kind and the same users on it: a real Kafka, and ours."""

import contextlib
from types import SimpleNamespace

import pytest

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.users import set_password
from peers.kafka.broker import running_kafka
from tests.certificates import make_authority, make_certificate, openssl

LISTENERS = {"SASL_PLAINTEXT": "SASL_PLAINTEXT", "SSL": "SSL", "SASL_SSL": "SASL_SSL", "MUTUAL": "SSL"}
PLAIN_USER = ("alice", 'in "the" open=;')
SCRAM_USER = ("bob=1", "Ⅸ-geheim")  # a name that SCRAM has to escape, and a password that SASLprep would change
LOGIN_MS = 2500  # a fifth of it is left for a renewal; Kafka takes no renewal in a login's first second


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    authority = make_authority(folder, "authority")
    broker = make_certificate(folder, "broker", "authority", alternative="IP:127.0.0.1")
    client = make_certificate(folder, "client", "authority", alternative="DNS:client")
    locked = ("-topk8", "-in", "client.key", "-out", "client-locked.key", "-passout", "pass:opensesame")
    openssl("pkcs8", *locked, folder=folder)
    stranger = make_authority(folder, "stranger")
    return SimpleNamespace(folder=folder, authority=authority, broker=broker, client=client, stranger=stranger)


@pytest.fixture(scope="session", params=["kafka", "ours"])
def secure_broker(request, kafka_jars, files, tmp_path_factory):
    """Each test is run on both."""
    start = _kafka if request.param == "kafka" else _ours
    with start(files, tmp_path_factory.mktemp(request.param)) as broker:
        yield broker


@contextlib.contextmanager
def _ours(files, folder):
    users = folder / "users"
    users.touch(0o600)
    users.write_text("=".join(PLAIN_USER) + "\n")
    settings = {
        "ssl.keystore.location": str(files.broker),
        "ssl.truststore.location": str(files.authority),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.security.protocol.map": "MUTUAL:SSL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_ssl.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.sasl_ssl.connections.max.reauth.ms": str(LOGIN_MS),
        "users.file": str(users),
        "group.initial.rebalance.delay.ms": "0",
    }
    listeners = ["PLAINTEXT", *LISTENERS]
    with Broker(folder / "data", listen=[f"{name}://127.0.0.1:0" for name in listeners], settings=settings) as broker:
        servers = dict(zip(listeners, broker.bootstrap_servers.split(","), strict=True))
        with Cluster(parse_bootstrap(servers["PLAINTEXT"])) as cluster:
            set_password(cluster, *SCRAM_USER, ["SCRAM-SHA-256", "SCRAM-SHA-512"])
        yield SimpleNamespace(servers_of=servers.__getitem__)


@contextlib.contextmanager
def _kafka(files, folder):
    package = "org.apache.kafka.common.security"
    name, password = PLAIN_USER
    escaped = password.replace('"', '\\\\"')  # once for the properties file, once for JAAS
    properties = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(files.broker),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(files.authority),
        "listener.name.mutual.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_ssl.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.sasl_ssl.scram-sha-512.connections.max.reauth.ms": str(LOGIN_MS),
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f'{package}.plain.PlainLoginModule required user_{name}="{escaped}";'
        ),
    }
    for listener, mechanism in (("sasl_plaintext", 256), ("sasl_plaintext", 512), ("sasl_ssl", 512)):
        login = f"{package}.scram.ScramLoginModule required;"
        properties[f"listener.name.{listener}.scram-sha-{mechanism}.sasl.jaas.config"] = login
    name, password = SCRAM_USER
    users = [
        option
        for mechanism in (256, 512)
        for option in ("--add-scram", f'SCRAM-SHA-{mechanism}=[name="{name}",password="{password}"]')
    ]
    with running_kafka(folder, properties=properties, listeners=LISTENERS, format_options=users) as broker:
        yield broker
