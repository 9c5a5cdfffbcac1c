"""Logins on our broker: every mechanism in the open and under TLS, and everything that is not let in."""

import base64
import contextlib
import itertools
import json
import math
import os
import signal
import socket
import struct
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from headrace import Broker
from headrace.broker import logins as broker_logins
from headrace.broker.logins import UsersFile
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.errors import AuthenticationFailed, BadSecurity, ConnectionClosed
from headrace.client.security import settings_from
from headrace.errors import HeadraceError
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from headrace.protocol.messages.api_versions import ApiVersionsRequest
from headrace.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from headrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest
from headrace.security.scram import ScramCredential, ScramExchange, salt_password
from tests.certificates import make_authority, make_certificate
from tests.conformance.clients.wire import Wire
from tests.integration.cli_runs import assert_one_sentence, run_cli
from tests.integration.waiting import wait_until
from tests.integration.writing import write_and_read

ALICE, BOB = ("alice", 'in "the" open=;'), ("bob=1,", "Ⅸ-geheim")
BY_PASSWORD = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LOGIN_MS = 2500  # a fifth of it is left for a renewal
KEY, NEXT_KEY = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())


def jwks(**keys):
    to_jwk = jwt.algorithms.ECAlgorithm.to_jwk
    return json.dumps({"keys": [to_jwk(key.public_key(), as_dict=True) | {"kid": kid} for kid, key in keys.items()]})


def token(key=KEY, kid="first", **claims):
    now = int(time.time())
    held = {"sub": "alice", "iss": "https://issuer", "aud": "kafka", "iat": now, "exp": now + 600} | claims
    return jwt.encode(held, key, "ES256", headers={"kid": kid})


def write_private(path, text):
    path.touch(0o600)
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("logins")
    authority = make_authority(folder, "authority")
    store = make_certificate(folder, "broker", "authority", alternative="IP:127.0.0.1")
    users = write_private(folder / "users", f"# who\n{ALICE[0]}={ALICE[1]}\n")
    (folder / "jwks.json").write_text(jwks(first=KEY))
    return SimpleNamespace(folder=folder, authority=authority, store=store, users=users)


@pytest.fixture(scope="module")
def settings(files):
    return {
        "ssl.keystore.location": str(files.store),
        "users.file": str(files.users),
        "listener.security.protocol.map": "SHORT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.short.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.short.connections.max.reauth.ms": str(LOGIN_MS),
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{files.folder}/jwks.json",
        "sasl.oauthbearer.expected.issuer": "https://issuer",
        "sasl.oauthbearer.expected.audience": "kafka",
    }


LISTEN = [f"{name}://127.0.0.1:0" for name in ("SASL_PLAINTEXT", "SASL_SSL", "SHORT", "PLAINTEXT")]


@pytest.fixture(scope="module")
def broker(settings):
    with Broker(listen=LISTEN, settings=settings) as running:
        open_, tls, short, plain = running.bootstrap_servers.split(",")
        yield SimpleNamespace(SASL_PLAINTEXT=open_, SASL_SSL=tls, short=short, plain=plain)


def reach(address, files, protocol="SASL_PLAINTEXT", mechanism="SCRAM-SHA-256", user=ALICE, **options):
    login = {"sasl.username": user[0], "sasl.password": user[1]} if user else {}
    trusted = {"ssl.ca.location": str(files.authority)} if protocol == "SASL_SSL" else {}
    named = {"security.protocol": protocol, "sasl.mechanism": mechanism}
    return Cluster(parse_bootstrap(address), settings_from(named | login | trusted | options))


def by_token(path):
    return {"sasl.oauthbearer.token.endpoint.url": f"file://{path}"}


@pytest.fixture
def wire(broker):
    with Wire(broker.SASL_PLAINTEXT) as connected:
        yield connected


# --- who is let in


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", BY_PASSWORD)
def test_by_a_password(broker, files, protocol, mechanism):
    with reach(getattr(broker, protocol), files, protocol, mechanism) as cluster:
        write_and_read(cluster, f"login-{uuid.uuid4().hex[:8]}", count=50)


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_by_a_token(broker, files, protocol, tmp_path):
    (tmp_path / "token").write_text(token())
    with reach(
        getattr(broker, protocol), files, protocol, "OAUTHBEARER", None, **by_token(tmp_path / "token")
    ) as cluster:
        write_and_read(cluster, f"token-{uuid.uuid4().hex[:8]}", count=50)


def test_keys_that_were_rotated(broker, files, tmp_path):
    (tmp_path / "token").write_text(token(NEXT_KEY, "next"))
    options = by_token(tmp_path / "token")
    with (
        reach(broker.SASL_PLAINTEXT, files, mechanism="OAUTHBEARER", user=None, **options) as cluster,
        pytest.raises(AuthenticationFailed, match="invalid_token"),
    ):
        cluster.brokers()
    (files.folder / "jwks.json").write_text(jwks(first=KEY, next=NEXT_KEY))
    with reach(broker.SASL_PLAINTEXT, files, mechanism="OAUTHBEARER", user=None, **options) as cluster:
        assert cluster.brokers().addresses


# --- who is not


NOT_HERS = "no-password-of-hers"  # no word that anything else would say


@pytest.mark.parametrize("user", [(ALICE[0], NOT_HERS), ("nobody", NOT_HERS)])
@pytest.mark.parametrize("mechanism", BY_PASSWORD)
def test_a_wrong_password_and_an_unknown_user(broker, files, mechanism, user, caplog):
    with (
        reach(broker.SASL_PLAINTEXT, files, mechanism=mechanism, user=user) as cluster,
        pytest.raises(AuthenticationFailed) as caught,
    ):
        cluster.brokers()
    said = "Invalid username or password" if mechanism == "PLAIN" else f"credentials with SASL mechanism {mechanism}"
    assert said in str(caught.value)
    assert [vars(record) for record in caplog.records if NOT_HERS in str(vars(record))] == []


@pytest.mark.parametrize("claims", [{"exp": 1}, {"aud": "web"}, {"iss": "https://another"}])
def test_a_token_that_is_not_for_us(broker, files, claims, tmp_path):
    (tmp_path / "token").write_text(token(**claims))
    options = by_token(tmp_path / "token")
    with (
        reach(broker.SASL_PLAINTEXT, files, mechanism="OAUTHBEARER", user=None, **options) as cluster,
        pytest.raises(AuthenticationFailed, match="invalid_token"),
    ):
        cluster.brokers()


def test_a_mechanism_that_the_listener_does_not_offer(broker, files):
    with (
        reach(broker.short, files, mechanism="PLAIN") as cluster,
        pytest.raises(AuthenticationFailed, match="it offers SCRAM-SHA-256"),
    ):
        cluster.brokers()


def test_a_login_where_nobody_asks(broker, files):
    with reach(broker.plain, files) as cluster, pytest.raises(AuthenticationFailed, match="asks nobody"):
        cluster.brokers()


def test_nothing_is_answered_before_the_login(broker):
    with Cluster(parse_bootstrap(broker.SASL_PLAINTEXT)) as cluster, pytest.raises(ConnectionClosed):
        cluster.brokers()


@pytest.mark.parametrize("began", [False, True])
def test_another_request_in_the_middle_of_a_login_closes(wire, began):
    if began:
        assert wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    with pytest.raises((ConnectionError, EOFError)):
        wire.ask(MetadataRequest(topics=None), 9)


def test_versions_are_told_once(wire):
    request = ApiVersionsRequest(client_software_name="wire", client_software_version="1")
    assert wire.ask(request, 3).error_code == 0
    with pytest.raises((ConnectionError, EOFError)):
        wire.ask(request, 3)


def test_a_large_request_before_the_login_is_not_read(broker):
    host, _, port = broker.SASL_PLAINTEXT.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as sock, contextlib.suppress(ConnectionResetError):
        sock.sendall(struct.pack(">i", 1024 * 1024) + b"x" * 100)
        assert sock.recv(1) == b""


def test_a_token_that_no_password_needs_is_not_kept_waiting(wire):
    assert wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    with pytest.raises((ConnectionError, EOFError)):
        wire.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0" + b"x" * 33_000), 2)


def test_who_does_not_log_in_is_closed(settings):
    hurried = settings | {"socket.connection.setup.timeout.ms": "300"}
    with Broker(listen="SASL_PLAINTEXT://127.0.0.1:0", settings=hurried) as running:
        host, _, port = running.bootstrap_servers.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=30) as sock:
            assert sock.recv(1) == b""


def test_an_answer_to_a_wrong_password_takes_a_while(settings, files):
    slow = settings | {"connection.failed.authentication.delay.ms": "700"}
    with Broker(listen="SASL_PLAINTEXT://127.0.0.1:0", settings=slow) as running:
        for mechanism in ("PLAIN", "SCRAM-SHA-256"):
            began = time.monotonic()
            with (
                reach(running.bootstrap_servers, files, mechanism=mechanism, user=("alice", "wrong")) as cluster,
                pytest.raises(AuthenticationFailed),
            ):
                cluster.brokers()
            assert time.monotonic() - began >= 0.7


def test_bare_tokens(broker):
    """A handshake of version 0 is followed by the mechanism's own bytes, each with its size."""
    with Wire(broker.SASL_PLAINTEXT) as wire:
        assert wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0).error_code == 0
        secret = "\0".join(("", *ALICE)).encode()
        wire.send_bytes(struct.pack(">i", len(secret)) + secret)
        assert wire.receive() == b""
        assert wire.ask(MetadataRequest(topics=None), 9).brokers


# --- again, on the same connection


def keep_asking(cluster, seconds):
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        cluster.brokers(refresh=True)


def test_a_login_is_renewed_on_the_same_connection_and_ends_if_not(broker, files):
    with reach(broker.short, files) as cluster:
        connection = cluster.any_broker()
        keep_asking(cluster, 2.2 * LOGIN_MS / 1000)
        assert cluster.any_broker() is connection
        connection._login_until = math.inf
        with pytest.raises(ConnectionClosed):
            keep_asking(cluster, 2 * LOGIN_MS / 1000)


# --- users


def alter(cluster, **request):
    answer = cluster.any_broker().request(
        AlterUserScramCredentialsRequest(**request), AlterUserScramCredentialsResponse
    )
    return {each.user: (ErrorCode.of(each.error_code).name, each.error_message) for each in answer.results}


def describe(cluster, *names):
    request = DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names] or None)
    answer = cluster.any_broker().request(request, DescribeUserScramCredentialsResponse)
    return {
        each.user: (
            ErrorCode.of(each.error_code).name,
            [(how.mechanism, how.iterations) for how in each.credential_infos],
        )
        for each in answer.results
    }


def upsertion(name, password, number=1, iterations=4096):
    salt = os.urandom(20)
    mechanism = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}.get(number, "SCRAM-SHA-256")
    salted = salt_password(mechanism, password, salt, iterations)
    return ScramCredentialUpsertion(
        name=name, mechanism=number, iterations=iterations, salt=salt, salted_password=salted
    )


def test_users_are_added_kept_over_a_restart_and_removed(settings, files, tmp_path):
    here = {"listen": "SASL_PLAINTEXT://127.0.0.1:0", "settings": settings}
    with Broker(tmp_path / "data", **here) as running, reach(running.bootstrap_servers, files) as cluster:
        assert describe(cluster) == {}
        added = [upsertion(BOB[0], BOB[1]), upsertion("carol", "x", 2, 8192)]
        assert alter(cluster, upsertions=added) == {BOB[0]: ("NONE", None), "carol": ("NONE", None)}
        for mechanism in ("PLAIN", "SCRAM-SHA-256"):
            with reach(running.bootstrap_servers, files, mechanism=mechanism, user=BOB) as his:
                assert his.brokers().addresses
        with (
            reach(running.bootstrap_servers, files, mechanism="SCRAM-SHA-512", user=BOB) as his,
            pytest.raises(AuthenticationFailed),
        ):
            his.brokers()  # he has no password for it
    with Broker(tmp_path / "data", **here) as running, reach(running.bootstrap_servers, files, user=BOB) as cluster:
        assert describe(cluster) == {BOB[0]: ("NONE", [(1, 4096)]), "carol": ("NONE", [(2, 8192)])}
        assert describe(cluster, "carol", "nobody") == {
            "carol": ("NONE", [(2, 8192)]),
            "nobody": ("RESOURCE_NOT_FOUND", []),
        }
        assert alter(cluster, deletions=[ScramCredentialDeletion(name=BOB[0], mechanism=1)]) == {BOB[0]: ("NONE", None)}
    with (
        Broker(tmp_path / "data", **here) as running,
        reach(running.bootstrap_servers, files, user=BOB) as cluster,
        pytest.raises(AuthenticationFailed),
    ):
        cluster.brokers()


def test_who_is_removed_is_served_nothing_more(settings, files, tmp_path):
    users = write_private(tmp_path / "users", f"{ALICE[0]}={ALICE[1]}\ndave=x\n")
    here = {"listen": "SASL_PLAINTEXT://127.0.0.1:0", "settings": settings | {"users.file": str(users)}}
    with Broker(own_process=True, **here) as running, reach(running.bootstrap_servers, files) as admin:
        alter(admin, upsertions=[upsertion(BOB[0], BOB[1]), upsertion("carol", "x")])
        logins = {name: reach(running.bootstrap_servers, files, user=(name, "x")) for name in ("carol", "dave")}
        logins[BOB[0]] = reach(running.bootstrap_servers, files, user=BOB)
        held = {name: cluster.any_broker() for name, cluster in logins.items()}

        def is_served(name):
            try:
                return bool(held[name].request(MetadataRequest(topics=[]), MetadataResponse))
            except ConnectionClosed:
                return False

        assert all(map(is_served, held))
        alter(admin, deletions=[ScramCredentialDeletion(name=BOB[0], mechanism=1)])
        wait_until(lambda: not is_served(BOB[0]), "who was removed is served")
        alter(admin, upsertions=[upsertion("carol", "another")])  # a new password ends nothing
        users.write_text(f"{ALICE[0]}={ALICE[1]}\n")
        os.kill(running.pid, signal.SIGHUP)
        wait_until(lambda: not is_served("dave"), "who was removed from the file is served")
        assert is_served("carol")
        assert admin.brokers().addresses
        for cluster in logins.values():
            cluster.close()


def begin_scram(wire, user):
    """Begin an exchange; its last message, to be sent whenever."""
    exchange = ScramExchange("SCRAM-SHA-256", *user, "nonce")
    assert wire.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256")).error_code == 0
    first = wire.ask(SaslAuthenticateRequest(auth_bytes=exchange.first()))
    return SaslAuthenticateRequest(auth_bytes=exchange.answer(bytes(first.auth_bytes)))


@pytest.mark.parametrize("is_added_again", [False, True])
def test_who_is_removed_does_not_finish_a_login_that_he_began_before(settings, files, is_added_again):
    here = {"listen": "SASL_PLAINTEXT://127.0.0.1:0", "settings": settings}
    patient = {"socket.connection.setup.timeout.ms": "60000"}
    with (
        Broker(**(here | {"settings": settings | patient})) as running,
        reach(running.bootstrap_servers, files) as admin,
        Wire(running.bootstrap_servers) as new,
        Wire(running.bootstrap_servers) as old,
    ):
        alter(admin, upsertions=[upsertion(*BOB)])
        assert old.ask(begin_scram(old, BOB)).error_code == 0
        begun = {new: begin_scram(new, BOB), old: begin_scram(old, BOB)}
        alter(admin, deletions=[ScramCredentialDeletion(name=BOB[0], mechanism=1)])
        if is_added_again:
            alter(admin, upsertions=[upsertion(BOB[0], "another")])
        for wire, last in begun.items():
            assert wire.ask(last).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            with pytest.raises((ConnectionError, EOFError)):
                wire.ask(MetadataRequest(topics=None), 9)


def test_who_is_removed_while_his_password_is_looked_at_is_not_let_in(settings, files, monkeypatch):
    looking, removed = threading.Event(), threading.Event()
    fits = ScramCredential.fits

    def look_slowly(self, *given):
        looking.set()
        assert removed.wait(60)
        return fits(self, *given)

    monkeypatch.setattr(ScramCredential, "fits", look_slowly)
    patient = settings | {"socket.connection.setup.timeout.ms": "60000"}
    with (
        Broker(listen="SASL_PLAINTEXT://127.0.0.1:0", settings=patient) as running,
        reach(running.bootstrap_servers, files) as admin,
        Wire(running.bootstrap_servers) as wire,
    ):
        alter(admin, upsertions=[upsertion(*BOB)])
        assert wire.ask(SaslHandshakeRequest(mechanism="PLAIN")).error_code == 0
        wire.send(SaslAuthenticateRequest(auth_bytes="\0".join(("", *BOB)).encode()), 2)
        assert looking.wait(60)
        alter(admin, deletions=[ScramCredentialDeletion(name=BOB[0], mechanism=1)])
        removed.set()
        with pytest.raises((ConnectionError, EOFError)):
            wire.receive()


def salts_of(address, *names):
    """The salts that a broker tells for users, by each mechanism, to whoever asks."""
    salts = {}
    for name, mechanism in itertools.product(names, ("SCRAM-SHA-256", "SCRAM-SHA-512")):
        with Wire(address) as connected:
            connected.ask(SaslHandshakeRequest(mechanism=mechanism))
            first = SaslAuthenticateRequest(auth_bytes=f"n,,n={name},r=abcdef".encode())
            answer = connected.ask(first)
            salts[name, mechanism] = bytes(answer.auth_bytes).partition(b",s=")[2]
    return salts


def test_salts_do_not_tell_who_there_is(settings, tmp_path):
    here = {"listen": "SASL_PLAINTEXT://127.0.0.1:0", "settings": settings}
    told = []
    for _ in range(2):
        with Broker(tmp_path / "data", **here) as running:
            told.append(salts_of(running.bootstrap_servers, ALICE[0], "nobody"))
    assert told[0] == told[1]  # of who exists and who does not
    assert len(set(told[0].values())) == 4


@pytest.mark.parametrize(
    "wrong", [{"users.file": "missing"}, {"ssl.keystore.location": "missing"}, {"ssl.keystore.location": ""}]
)
def test_what_is_missing_leaves_no_data_folder(settings, tmp_path, wrong):
    running = Broker(tmp_path / "data", listen=LISTEN, settings=settings | wrong)
    with pytest.raises(HeadraceError):
        running.start()
    assert not (tmp_path / "data").exists()


def test_the_data_folder_is_its_owners_alone(settings, tmp_path, caplog):
    (tmp_path / "old").mkdir(mode=0o755)
    for name, listen in (("new", "127.0.0.1:0"), ("old", "SASL_PLAINTEXT://127.0.0.1:0")):
        with Broker(tmp_path / name, listen=listen, settings=settings):
            assert (tmp_path / name).stat().st_mode & 0o777 == 0o700
    assert [record.getMessage() for record in caplog.records if "folder" in record.getMessage()] == [
        "the data folder could be used by others: it is its owner's alone now"
    ]


def test_an_issuer_that_does_not_answer_keeps_nobody_else_waiting(settings, files, tmp_path):
    (tmp_path / "token").write_text(token())
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/keys"
        here = settings | {"sasl.oauthbearer.jwks.endpoint.url": url}
        with Broker(listen="SASL_PLAINTEXT://127.0.0.1:0", settings=here) as running:

            def ask_in_vain():
                options = by_token(tmp_path / "token")
                with (
                    contextlib.suppress(HeadraceError),
                    reach(running.bootstrap_servers, files, mechanism="OAUTHBEARER", user=None, **options) as cluster,
                ):
                    cluster.brokers()

            asking = [threading.Thread(target=ask_in_vain) for _ in range(4)]
            for each in asking:
                each.start()
            asked, _ = silent.accept()  # from now on the keys are waited for, until the fetch gives up
            with reach(running.bootstrap_servers, files, mechanism="PLAIN") as cluster:
                assert cluster.brokers().addresses
            assert any(each.is_alive() for each in asking), "they were to wait meanwhile"
            asked.close()
            silent.close()
            for each in asking:
                each.join()


def test_an_issuer_that_does_not_come_to_an_end_keeps_nobody_out_whose_key_is_known(
    settings, files, tmp_path, monkeypatch
):
    (tmp_path / "token").write_text(token())
    keys, is_slow, is_over = jwks(first=KEY).encode(), threading.Event(), threading.Event()

    class Issuer(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", str(len(keys)))
            self.end_headers()
            if not is_slow.is_set():
                self.wfile.write(keys)
                return
            with contextlib.suppress(OSError):
                while not is_over.wait(0.1):  # a byte now and then: no read of a socket takes too long
                    self.wfile.write(b" ")
                    self.wfile.flush()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Issuer) as issuer:
        threading.Thread(target=issuer.serve_forever, daemon=True).start()
        here = settings | {
            "sasl.oauthbearer.jwks.endpoint.url": f"http://127.0.0.1:{issuer.server_port}/keys",
            "sasl.oauthbearer.jwks.endpoint.refresh.ms": "1",
        }
        with Broker(listen="SASL_PLAINTEXT://127.0.0.1:0", settings=here) as running:
            for _ in range(3):
                options = by_token(tmp_path / "token")
                with reach(running.bootstrap_servers, files, mechanism="OAUTHBEARER", user=None, **options) as cluster:
                    assert cluster.brokers().addresses
                is_slow.set()
                monkeypatch.setattr(broker_logins, "_FETCH_S", 0.5)
        is_over.set()
        issuer.shutdown()


def test_what_is_no_user(broker, files):
    with reach(broker.SASL_PLAINTEXT, files) as cluster:
        asked = [upsertion("", "x"), upsertion("few", "x", iterations=4095), upsertion("many", "x", iterations=16385)]
        asked += [upsertion("other", "x", 3), upsertion("twice", "x"), upsertion("twice", "x", 2)]
        gone = [ScramCredentialDeletion(name="nobody", mechanism=1)]
        assert alter(cluster, upsertions=asked, deletions=gone) == {
            "": ("UNACCEPTABLE_CREDENTIAL", "Username must not be empty"),
            "few": ("UNACCEPTABLE_CREDENTIAL", "Too few iterations"),
            "many": ("UNACCEPTABLE_CREDENTIAL", "Too many iterations"),
            "other": ("UNSUPPORTED_SASL_MECHANISM", "Unknown SCRAM mechanism"),
            "twice": ("DUPLICATE_RESOURCE", "A user credential cannot be altered twice in the same request"),
            "nobody": ("RESOURCE_NOT_FOUND", "Attempt to delete a user credential that does not exist"),
        }
        assert describe(cluster) == {}


def test_the_file_of_users_is_read_again(settings, files, tmp_path):
    users = write_private(tmp_path / "users", "alice=old\n")
    here = {"listen": "SASL_PLAINTEXT://127.0.0.1:0", "settings": settings | {"users.file": str(users)}}
    with Broker(own_process=True, **here) as running:

        def is_let_in(password):
            with reach(running.bootstrap_servers, files, user=("alice", password)) as cluster:
                with contextlib.suppress(AuthenticationFailed):
                    return bool(cluster.brokers().addresses)
                return False

        assert is_let_in("old")
        users.write_text("alice=new\n")
        assert is_let_in("old")
        os.kill(running.pid, signal.SIGHUP)
        wait_until(lambda: is_let_in("new"), "the new password is not known")
        assert not is_let_in("old")


def test_a_file_of_users_that_is_broken_later_leaves_those_there_are(tmp_path, caplog):
    users = write_private(tmp_path / "users", "alice=old\n")
    file = UsersFile(str(users))
    before = file.find("SCRAM-SHA-256", "alice")
    users.write_text("alice=new\nhalf a line\n")
    file.reload()
    assert file.find("SCRAM-SHA-256", "alice") is before
    assert [record.getMessage() for record in caplog.records] == ["users not reloaded"]
    users.write_text("alice=new\n")
    file.reload()
    assert file.find("SCRAM-SHA-256", "alice").fits("SCRAM-SHA-256", "new")


@pytest.mark.parametrize(("text", "said"), [("alice", "users:1 is not NAME=PASSWORD"), ("=x", "is not NAME=PASSWORD")])
def test_a_file_of_users_that_will_not_do(settings, tmp_path, text, said):
    users = write_private(tmp_path / "users", text)
    changed = settings | {"users.file": str(users)}
    with pytest.raises(Exception, match=said), Broker(listen="SASL_PLAINTEXT://127.0.0.1:0", settings=changed):
        pass
    users.chmod(0o640)
    with pytest.raises(Exception, match="chmod 600"), Broker(listen="SASL_PLAINTEXT://127.0.0.1:0", settings=changed):
        pass


# --- the command


def test_the_command(settings, files, tmp_path, monkeypatch):
    properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}
    properties |= {"sasl.username": ALICE[0], "sasl.password": ALICE[1]}
    client = write_private(tmp_path / "client", "".join(f"{key}={value}\n" for key, value in properties.items()))
    monkeypatch.setenv("HEADRACE_KAFKA", str(client))
    with Broker(listen="SASL_PLAINTEXT://127.0.0.1:0", settings=settings) as running:
        at = {"bootstrap": running.bootstrap_servers}
        assert run_cli("user", "add", BOB[0], **at, stdin=f"{BOB[1]}\n").out == (
            f"{BOB[0]} may log in by SCRAM-SHA-256 and SCRAM-SHA-512\n"
        )
        for mechanism in BY_PASSWORD:
            with reach(running.bootstrap_servers, files, mechanism=mechanism, user=BOB) as cluster:
                assert cluster.brokers().addresses
        assert run_cli("user", "list", "--json", **at).json == [
            {"user": BOB[0], "mechanisms": {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}}
        ]
        assert "4,096 iterations" in run_cli("user", "list", **at).out
        secret = tmp_path / "password"
        secret.write_text("another")
        secret.chmod(0o644)
        assert_one_sentence(run_cli("user", "add", "carol", "--password-file", secret, **at), "chmod 600")
        secret.chmod(0o600)
        added = run_cli(
            "user", "add", "carol", "--password-file", secret, "--mechanism", "SCRAM-SHA-512", "--json", **at
        )
        assert added.json == {"user": "carol", "mechanisms": ["SCRAM-SHA-512"], "iterations": 4096}
        assert_one_sentence(run_cli("user", "add", "dave", **at), "there is no password")
        assert run_cli("user", "remove", BOB[0], **at).out == f"removed {BOB[0]}\n"
        assert_one_sentence(run_cli("user", "remove", BOB[0], **at), "there is no user", "headrace user list")
        assert [each["user"] for each in run_cli("user", "list", "--json", **at).json] == ["carol"]


def test_a_secret_is_refused_on_a_command_line(tmp_path):
    run = run_cli("broker", "start", "--data-dir", tmp_path / "data", "--set", "ssl.key.password=geheim")
    assert_one_sentence(run, "ssl.key.password is a secret", "--config")
    assert "geheim" not in run.err
    config = tmp_path / "broker.properties"
    config.write_text("ssl.key.password=geheim\n")
    config.chmod(0o644)
    run = run_cli("broker", "start", "--data-dir", tmp_path / "data", "--config", config)
    assert_one_sentence(run, "chmod 600")


def test_a_public_address_is_refused_on_a_command_line(tmp_path):
    run = run_cli("broker", "start", "--data-dir", tmp_path / "data", "--listen", "0.0.0.0:0")
    assert_one_sentence(run, "lets in anybody who can reach this machine", "--insecure")
    assert not (tmp_path / "data").exists()


# --- an issuer of tokens


class Issuer(BaseHTTPRequestHandler):
    """Gives its keys to everybody, and a token to who knows the secret."""

    def do_GET(self):
        self._answer(200, jwks(first=KEY))

    def do_POST(self):
        form = self.rfile.read(int(self.headers["Content-Length"])).decode()
        is_known = self.headers["Authorization"] == "Basic " + base64.b64encode(b"shop:hush%20hush").decode()
        is_asked = form == "grant_type=client_credentials&scope=kafka"
        found = {"access_token": token()} if is_asked else {}
        self._answer(200 if is_known else 401, json.dumps(found if is_known else {"error": "invalid_client"}))

    def _answer(self, status, text):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def issuer():
    with ThreadingHTTPServer(("127.0.0.1", 0), Issuer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_tokens_and_keys_are_fetched(settings, files, issuer):
    changed = settings | {"sasl.oauthbearer.jwks.endpoint.url": f"{issuer}/keys"}
    options = {
        "sasl.oauthbearer.token.endpoint.url": f"{issuer}/token",
        "sasl.oauthbearer.client.id": "shop",
        "sasl.oauthbearer.client.secret": "hush hush",
        "sasl.oauthbearer.scope": "kafka",
    }
    with Broker(listen="SASL_PLAINTEXT://127.0.0.1:0", settings=changed) as running:

        def reach_with(**more):
            return reach(running.bootstrap_servers, files, mechanism="OAUTHBEARER", user=None, **(options | more))

        with reach_with() as cluster:
            assert cluster.brokers().addresses
        wrong = {"sasl.oauthbearer.client.secret": "wrong"}
        with reach_with(**wrong) as cluster, pytest.raises(BadSecurity, match="gave no token") as caught:
            cluster.brokers()
        assert "wrong" not in str(caught.value)


def test_keys_over_the_open_network_are_refused(settings):
    changed = settings | {"sasl.oauthbearer.jwks.endpoint.url": "http://issuer.example/keys"}
    with pytest.raises(Exception, match="https://"), Broker(listen="SASL_PLAINTEXT://127.0.0.1:0", settings=changed):
        pass
