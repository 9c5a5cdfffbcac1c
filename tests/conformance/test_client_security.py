"""Our client where TLS, a name and a password are wanted, on a real Kafka and on our broker: the same on both."""

import base64
import math
import sqlite3
import time
import urllib.error
import urllib.request
import uuid
from contextlib import closing
from pathlib import Path

import pytest

from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.errors import (
    AuthenticationFailed,
    BadSecurity,
    ClientError,
    ConnectionClosed,
    NotKafka,
    TlsRefused,
)
from headrace.client.security import settings_from
from headrace.pipelines.clusters import cluster_at
from tests.conformance.secure_brokers import LOGIN_MS, PLAIN_USER, SCRAM_USER
from tests.integration.cli_runs import run_cli
from tests.integration.running_stack import RunningStack
from tests.integration.waiting import wait_until
from tests.integration.writing import write_and_read

pytestmark = pytest.mark.java


def sasl(protocol, mechanism, user):
    return {
        "security.protocol": protocol,
        "sasl.mechanism": mechanism,
        "sasl.username": user[0],
        "sasl.password": user[1],
    }


def open_cluster(secure_broker, listener, options):
    return Cluster(parse_bootstrap(secure_broker.servers_of(listener)), settings_from(options))


def sentence_of(secure_broker, listener, options, error=ClientError):
    with open_cluster(secure_broker, listener, options) as cluster, pytest.raises(error) as caught:
        cluster.brokers()
    text = str(caught.value)
    assert "\n" not in text
    for secret in (PLAIN_USER[1], SCRAM_USER[1], "not-the-password"):
        assert secret not in text
    return text


# --- what works


def test_plain(secure_broker):
    with open_cluster(secure_broker, "SASL_PLAINTEXT", sasl("SASL_PLAINTEXT", "PLAIN", PLAIN_USER)) as cluster:
        write_and_read(cluster, f"secure-{uuid.uuid4().hex[:8]}")


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram(secure_broker, mechanism):
    with open_cluster(secure_broker, "SASL_PLAINTEXT", sasl("SASL_PLAINTEXT", mechanism, SCRAM_USER)) as cluster:
        write_and_read(cluster, f"secure-{uuid.uuid4().hex[:8]}")


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_tls(secure_broker, files, version):
    options = {
        "security.protocol": "SSL",
        "ssl.ca.location": str(files.authority),
        "ssl.enabled.protocols": version,
    }
    with open_cluster(secure_broker, "SSL", options) as cluster:
        write_and_read(cluster, f"secure-{uuid.uuid4().hex[:8]}")


def test_java_names_in_a_pipeline(secure_broker, files):
    name, password = SCRAM_USER
    options = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": " ".join(files.authority.read_text().split("\n")),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": (
            f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{name}" password="{password}";'
        ),
        "session.timeout.ms": "10000",
    }
    cluster = cluster_at(secure_broker.servers_of("SASL_SSL"), options)
    write_and_read(cluster, f"secure-{uuid.uuid4().hex[:8]}")
    assert cluster_at(secure_broker.servers_of("SASL_SSL"), dict(reversed(options.items()))) is cluster
    cluster.close()


def test_our_certificate(secure_broker, files):
    trusted = {"security.protocol": "SSL", "ssl.ca.location": str(files.authority)}
    in_files = {
        "ssl.certificate.location": str(files.folder / "client.crt"),
        "ssl.key.location": str(files.folder / "client-locked.key"),
        "ssl.key.password": "opensesame",
    }
    in_one_store = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(files.client)}
    as_text = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": (files.folder / "client-locked.key").read_text().replace("\n", "\\n"),
        "ssl.keystore.certificate.chain": (files.folder / "client.crt").read_text(),
        "ssl.key.password": "opensesame",
    }
    for ours in (in_files, in_one_store, as_text):
        with open_cluster(secure_broker, "MUTUAL", trusted | ours) as cluster:
            assert cluster.brokers().addresses


def keep_asking(cluster, seconds):
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        cluster.brokers(refresh=True)


def test_a_login_is_renewed_on_the_same_connection(secure_broker, files):
    options = sasl("SASL_SSL", "SCRAM-SHA-512", SCRAM_USER) | {"ssl.ca.location": str(files.authority)}
    with open_cluster(secure_broker, "SASL_SSL", options) as cluster:
        connection = cluster.any_broker()
        keep_asking(cluster, 2.5 * LOGIN_MS / 1000)
        assert cluster.any_broker() is connection


def test_a_login_that_is_not_renewed_ends(secure_broker, files):
    """Else the test above would show nothing."""
    options = sasl("SASL_SSL", "SCRAM-SHA-512", SCRAM_USER) | {"ssl.ca.location": str(files.authority)}
    with open_cluster(secure_broker, "SASL_SSL", options) as cluster:
        cluster.any_broker()._login_until = math.inf
        with pytest.raises(ConnectionClosed, match="takes SASL_SSL connections"):
            keep_asking(cluster, 3 * LOGIN_MS / 1000)


# --- what does not, in a sentence


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password(secure_broker, mechanism):
    user = PLAIN_USER if mechanism == "PLAIN" else SCRAM_USER
    options = sasl("SASL_PLAINTEXT", mechanism, (user[0], "not-the-password"))
    said = sentence_of(secure_broker, "SASL_PLAINTEXT", options, AuthenticationFailed)
    assert f"does not let us in by {mechanism} (" in said
    assert f"check the password of user {user[0]!r}" in said


def test_an_unknown_user(secure_broker):
    options = sasl("SASL_PLAINTEXT", "SCRAM-SHA-512", ("nobody", "not-the-password"))
    assert "that the broker knows this user" in sentence_of(
        secure_broker, "SASL_PLAINTEXT", options, AuthenticationFailed
    )


def test_a_mechanism_that_the_listener_does_not_offer(secure_broker, files):
    options = sasl("SASL_SSL", "PLAIN", PLAIN_USER) | {"ssl.ca.location": str(files.authority)}
    said = sentence_of(secure_broker, "SASL_SSL", options, AuthenticationFailed)
    assert "(it offers SCRAM-SHA-512): set sasl.mechanism to one of them" in said


def test_a_login_where_nobody_asks(secure_broker):
    options = sasl("SASL_PLAINTEXT", "PLAIN", PLAIN_USER)
    said = sentence_of(secure_broker, "PLAINTEXT", options, AuthenticationFailed)
    assert "this listener asks nobody who they are" in said


def test_no_login_where_one_is_wanted(secure_broker):
    assert "closed the connection during Metadata" in sentence_of(secure_broker, "SASL_PLAINTEXT", {}, ConnectionClosed)


def test_an_authority_that_did_not_sign(secure_broker, files):
    options = {"security.protocol": "SSL", "ssl.ca.location": str(files.stranger)}
    said = sentence_of(secure_broker, "SSL", options, TlsRefused)
    assert "name the authority that signed the broker's certificate in ssl.ca.location" in said


def test_nobody_trusted_by_default(secure_broker):
    assert "ssl.ca.location" in sentence_of(secure_broker, "SSL", {"security.protocol": "SSL"}, TlsRefused)


def test_another_host_name(secure_broker, files):
    options = {"security.protocol": "SSL", "ssl.ca.location": str(files.authority)}
    by_name = parse_bootstrap(secure_broker.servers_of("SSL").replace("127.0.0.1", "localhost"))
    with (
        Cluster(by_name, settings_from(options)) as cluster,
        pytest.raises(TlsRefused, match=r"localhost.*empty ssl\.endpoint"),
    ):
        cluster.brokers()
    unchecked = options | {"ssl.endpoint.identification.algorithm": ""}
    with Cluster(by_name, settings_from(unchecked)) as cluster:
        assert cluster.brokers().addresses


def test_no_certificate_where_one_is_wanted(secure_broker, files):
    for version in ("TLSv1.2", "TLSv1.3"):
        options = {
            "security.protocol": "SSL",
            "ssl.ca.location": str(files.authority),
            "ssl.enabled.protocols": version,
        }
        assert "ssl.certificate.location" in sentence_of(secure_broker, "MUTUAL", options, TlsRefused)


def test_a_key_that_does_not_open(secure_broker, files):
    options = {
        "security.protocol": "SSL",
        "ssl.ca.location": str(files.authority),
        "ssl.certificate.location": str(files.folder / "client.crt"),
        "ssl.key.location": str(files.folder / "client-locked.key"),
    }
    assert "is encrypted: set ssl.key.password" in sentence_of(secure_broker, "MUTUAL", options, BadSecurity)
    wrong = options | {"ssl.key.password": "not-the-password"}
    assert "does not open with ssl.key.password" in sentence_of(secure_broker, "MUTUAL", wrong, BadSecurity)


def test_tls_where_none_is_spoken(secure_broker, files):
    options = {"security.protocol": "SSL", "ssl.ca.location": str(files.authority)}
    said = sentence_of(secure_broker, "PLAINTEXT", options, ConnectionClosed)
    assert "check that this listener takes SSL connections" in said


def test_no_tls_where_it_is_spoken(secure_broker):
    said = sentence_of(secure_broker, "SSL", {}, NotKafka)
    assert "it speaks TLS, so set security.protocol to SSL or SASL_SSL" in said


STACK = """
[broker]
bootstrap = "{bootstrap}"

[broker.connection]
"security.protocol" = "SASL_SSL"
"sasl.mechanism" = "SCRAM-SHA-512"
"sasl.username" = "{name}"
"sasl.password" = "${{file:password}}"
"ssl.ca.location" = "{authority}"

[topics."shop.main.orders"]
partitions = 2

[cdc.shop]
url = "sqlite:///shop.db"
tables = ["main.orders"]

[sync.copy]
topic = "shop.main.orders"
sink = "sqlite"
path = "copy.db"
table = "orders"

[dashboard]
port = 0
"""


def test_a_whole_stack_is_let_in_and_its_password_is_nowhere_to_be_seen(secure_broker, files, tmp_path, monkeypatch):
    name, password = SCRAM_USER
    bootstrap = secure_broker.servers_of("SASL_SSL")
    (tmp_path / "password").write_text(password + "\n")
    with closing(sqlite3.connect(tmp_path / "shop.db")) as db, db:
        db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, cents INTEGER)")
        db.execute("INSERT INTO orders VALUES (1, 250)")
    text = STACK.format(bootstrap=bootstrap, name=name, authority=files.authority)
    stack = RunningStack(tmp_path, text)
    try:
        stack.start()
        stack.wait_until_fine()
        wait_until(lambda: copied(tmp_path / "copy.db") == [(1, 250)], f"nothing is copied: {stack.members()}")
        url = stack.members()["dashboard"]["facts"]["url"]
        with pytest.raises(urllib.error.HTTPError, match="401"):
            asked(f"{url}api/topics")
        wait_until(
            lambda: "shop.main.orders" in asked(f"{url}api/topics", SCRAM_USER), "the dashboard does not see the topic"
        )
        for pid in stack.pids():
            assert password.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    finally:
        assert stack.end() == 0
    for file in [stack.log, *(tmp_path / ".headrace").rglob("*.json"), *(tmp_path / ".headrace").rglob("*.log")]:
        assert password not in file.read_text()

    # Other commands are told in the same way, by a file of Kafka's own settings.
    assert run_cli("topic", "list", bootstrap=bootstrap).code == 1
    properties = sasl("SASL_SSL", "SCRAM-SHA-512", SCRAM_USER) | {"ssl.ca.location": str(files.authority)}
    client = tmp_path / "client.properties"
    client.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    monkeypatch.setenv("HEADRACE_KAFKA", str(client))
    assert "shop.main.orders" in run_cli("topic", "list", bootstrap=bootstrap).out


def copied(file):
    if not file.exists():
        return []
    with closing(sqlite3.connect(file)) as db:
        try:
            return db.execute("SELECT id, cents FROM orders").fetchall()
        except sqlite3.OperationalError:  # no table yet
            return []


def asked(url, user=None):
    headers = {"Authorization": f"Basic {base64.b64encode(':'.join(user).encode()).decode()}"} if user else {}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
        return answer.read().decode()
