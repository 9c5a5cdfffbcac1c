"""Webhooks into topics, over real sockets: signed, each once, answered when durable; whatever is killed."""

import contextlib
import hashlib
import hmac
import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster
from headrace.errors import HeadraceError
from headrace.gateways.section import check_section
from headrace.gateways.webhooks.kind import KIND
from headrace.gateways.webhooks.server import IDS_TOPIC
from headrace.gateways.webhooks.signatures import sign_standard, standard_key
from headrace.section_keys import with_defaults
from headrace.testing.contracts.gateway import InwardGatewayContract, free_port, read_topic
from tests.certificates import make_authority, make_certificate
from tests.integration.gateways.running import running, started, wait_for, written

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def ask(
    port: int, path: str, body: bytes, headers: Mapping[str, str], *, method: str = "POST", timeout: float = 30
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, path, body, dict(headers))
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def standard(message_id: str, body: bytes, secret: str = SECRET, at: float | None = None) -> dict[str, str]:
    now = int(time.time() if at is None else at)
    signature = sign_standard([standard_key(secret)], message_id, now, body)
    return {"webhook-id": message_id, "webhook-timestamp": str(now), "webhook-signature": signature}


def send(port: int, message_id: str, body: bytes, path: str = "/test", **others: Any) -> int:
    return ask(port, path, body, standard(message_id, body), **others)[0]


def port_of(gateway: Any) -> int:
    wait_for(lambda: not gateway.progress.waiting, "it is ready")
    return int(gateway.source.split("127.0.0.1:")[1].split(" ")[0])


class TestWebhookGateway(InwardGatewayContract):
    kind = "webhook"

    def values(self, topic: str, port: int) -> dict[str, Any]:
        return {"topic": topic, "port": port, "provider": "standard", "secret": SECRET, "path": "/in",
                "answer_within": "2 seconds"}  # fmt: skip

    def send(self, section: Mapping[str, Any], messages: Sequence[bytes]) -> None:
        def one(message: bytes) -> int:
            return send(section["port"], hashlib.sha256(message).hexdigest(), message, "/in")

        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(one, messages))
        if any(status != 200 for status in found):
            raise ConnectionError(f"answered {set(found)}")

    def send_bad(self, section: Mapping[str, Any]) -> int:
        port = section["port"]
        assert ask(port, "/in", b"{}", {})[0] == 401
        assert ask(port, "/in", b"{}", standard("a", b"{ }"))[0] == 401
        assert ask(port, "/in", b"{}", standard("a", b"{}", at=time.time() - 600))[0] == 401
        assert ask(port, "/in", b"{}", standard("x" * 300, b"{}"))[0] == 400
        assert ask(port, "/in", b"x" * 1_000_001, {})[0] == 413
        assert ask(port, "/else", b"{}", standard("a", b"{}"))[0] == 404
        assert ask(port, "/in", b"", {}, method="GET")[0] == 405
        return 7


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker(durability="os") as broker:
        yield broker.bootstrap_servers


def test_each_provider_has_its_endpoint(bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "github.secret"
    secret.write_text("hush\n")
    secret.chmod(0o600)
    monkeypatch.setenv("STRIPE_SECRET", "whsec_test")
    endpoints = {
        "github": {"provider": "github", "secret_file": str(secret), "key": "/repository/full_name",
                   "headers": ["X-GitHub-Hook-ID"]},
        "stripe": {"provider": "stripe", "secret_env": "STRIPE_SECRET", "path": "/pay/stripe"},
        "own": {"provider": "hmac", "secret": "k", "signature_header": "X-Sig", "prefix": "sha512=", "hash": "sha512",
                "encoding": "hex", "signed": "{timestamp}:{body}", "timestamp_header": "X-At"},
        "open": {"provider": "none", "topic": "anything"},
    }  # fmt: skip
    with running(KIND, bootstrap, "providers", port=0, endpoints=endpoints) as gateway:
        port = port_of(gateway)
        body = b'{"repository": {"full_name": "a/mill"}}'
        github = {
            "X-Hub-Signature-256": "sha256=" + hmac.new(b"hush", body, "sha256").hexdigest(),
            "X-GitHub-Delivery": "72d3162e", "X-GitHub-Event": "push", "Content-Type": "application/json",
            "X-GitHub-Hook-ID": "5",
        }  # fmt: skip
        assert ask(port, "/github", body, github)[0] == 200
        status, _, said = ask(port, "/github", body, github)
        assert (status, json.loads(said)) == (200, {"status": "known", "id": "72d3162e"})
        event, now = b'{"id": "evt_1", "type": "charge.succeeded"}', int(time.time())
        digest = hmac.new(b"whsec_test", f"{now}.".encode() + event, "sha256").hexdigest()
        for _ in range(2):
            assert ask(port, "/pay/stripe", event, {"Stripe-Signature": f"t={now},v1={digest}"})[0] == 200
        own = hmac.new(b"k", f"{now}:x".encode(), "sha512").hexdigest()
        assert ask(port, "/own", b"x", {"X-Sig": f"sha512={own}", "X-At": str(now)})[0] == 200
        assert ask(port, "/open", b"\x00\xff", {"Idempotency-Key": "1"})[0] == 200
        assert ask(port, "/open", b"\x00\xff", {"Origin": "http://evil.example"})[0] == 403
        # A new secret counts beside the old one as soon as it is in the file.
        secret.write_text("hush\nfresh\n")
        fresh = {**github, "X-Hub-Signature-256": "sha256=" + hmac.new(b"fresh", body, "sha256").hexdigest(),
                 "X-GitHub-Delivery": "2"}  # fmt: skip
        wait_for(lambda: ask(port, "/github", body, fresh)[0] == 200, "the file is read again")
        assert gateway.progress.more["duplicates"] == 2
    first, _ = written(bootstrap, "github")
    assert (first.key, first.value) == (b"a/mill", body)
    assert [(each.key, each.value) for each in first.headers] == [
        ("content-type", b"application/json"), ("webhook-id", b"72d3162e"), ("webhook-event", b"push"),
        ("x-github-hook-id", b"5"),
    ]  # fmt: skip
    (stripe,) = written(bootstrap, "stripe")
    assert [(each.key, each.value) for each in stripe.headers] == [
        ("webhook-id", b"evt_1"), ("webhook-event", b"charge.succeeded"),
    ]  # fmt: skip
    assert [each.value for each in written(bootstrap, "anything")] == [b"\x00\xff"]


def test_ids_are_remembered_over_a_restart_and_for_a_while(bootstrap: str) -> None:
    given = {"port": 0, "provider": "standard", "secret": SECRET, "path": "/test"}
    with running(KIND, bootstrap, "again", **given) as gateway:
        assert [send(port_of(gateway), f"m{n}", b"%d" % n) for n in (1, 2, 1)] == [200, 200, 200]
    with running(KIND, bootstrap, "again", **given, remember="1 ms") as gateway:
        assert send(port_of(gateway), "m1", b"1") == 200
        assert gateway.progress.more["duplicates"] == 1, "what was said then counts"
        assert send(port_of(gateway), "m3", b"3") == 200
        time.sleep(0.01)
        assert send(port_of(gateway), "m3", b"3") == 200, "it is forgotten: a second record"
    assert [value for _, value in read_topic(bootstrap, "again")] == [b"1", b"2", b"3", b"3"]
    with running(KIND, bootstrap, "again", **given, remember_most=1) as gateway:
        for each in ("m4", "m5", "m6"):
            assert send(port_of(gateway), each, each.encode()) == 200
        assert gateway.progress.more["ids"] == 1
    kept = [each for each in written(bootstrap, IDS_TOPIC) if (each.key or b"").startswith(b"again/")]
    last = {each.key: each.value for each in kept}
    assert len(last) == 6
    assert sum(value is not None for value in last.values()) == 2, "what is forgotten goes with the next one"


def test_one_delivery_that_comes_many_times_at_once_is_one_record(bootstrap: str) -> None:
    with running(KIND, bootstrap, "herd", port=0, provider="standard", secret=SECRET, path="/test") as gateway:
        port = port_of(gateway)
        with ThreadPoolExecutor(16) as pool:
            found = list(pool.map(lambda n: send(port, f"m{n % 5}", b"%d" % (n % 5)), range(100)))
    assert set(found) == {200}
    assert sorted(value for _, value in read_topic(bootstrap, "herd")) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_body_that_was_sent_before_may_be_a_replay_whatever_its_id(bootstrap: str) -> None:
    given = {"port": 0, "provider": "github", "secret": "k", "replays": "body"}
    headers = {"X-Hub-Signature-256": "sha256=" + hmac.new(b"k", b"{}", "sha256").hexdigest()}
    with running(KIND, bootstrap, "bodies", **given) as gateway:
        port = port_of(gateway)
        for number in range(3):
            assert ask(port, "/bodies", b"{}", {**headers, "X-GitHub-Delivery": str(number)})[0] == 200
    assert len(read_topic(bootstrap, "bodies")) == 1


def test_what_the_topic_does_not_take_is_said(bootstrap: str) -> None:
    with Cluster(parse_bootstrap(bootstrap)) as cluster:
        ensure_topic(cluster, "narrow", configs={"max.message.bytes": "2000"})
        ensure_topic(cluster, "compacted", configs={"cleanup.policy": "compact"})
    endpoints = {name: {"provider": "none"} for name in ("narrow", "compacted", "wide")}
    with running(KIND, bootstrap, "refused", port=0, endpoints=endpoints) as gateway:
        port = port_of(gateway)
        with ThreadPoolExecutor(8) as pool:
            wide = pool.map(lambda n: ask(port, "/wide", b"%d" % n, {"Idempotency-Key": f"{n}"})[0], range(50))
            assert ask(port, "/narrow", b"x" * 5000, {"Idempotency-Key": "1"})[0] == 413
            assert ask(port, "/compacted", b"x", {})[0] == 400
            assert ask(port, "/narrow", b"x" * 50, {"Idempotency-Key": "1"})[0] == 200, "it was not taken before"
            assert set(wide) == {200}, "one that is refused harms no other"
    assert len(read_topic(bootstrap, "wide")) == 50


# --- overload, slow clients, memory


def test_too_much_at_once_is_answered_503_and_memory_is_bounded(bootstrap: str) -> None:
    given = {"port": 0, "provider": "none", "path": "/test", "buffer_mb": 1, "max_body": 400_000}
    with running(KIND, bootstrap, "full", **given) as gateway:
        port = port_of(gateway)
        held = []
        for _ in range(3):  # which say how much they will send, and do not
            connection = socket.create_connection(("127.0.0.1", port))
            connection.sendall(b"POST /test HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n")
            held.append(connection)
        wait_for(lambda: gateway.progress.connections == 3, "they came")
        status, headers, _ = ask(port, "/test", b"x" * 300_000, {})
        assert (status, headers["retry-after"]) == (503, "1")
        assert ask(port, "/test", b"x" * 1000, {})[0] == 200
        for connection in held:
            connection.close()
        wait_for(lambda: ask(port, "/test", b"x" * 300_000, {})[0] == 200, "there is room again")


def test_ids_that_are_not_utf_8_are_told_apart(bootstrap: str) -> None:
    with running(KIND, bootstrap, "odd", port=0, provider="none", path="/test", id="x-id") as gateway:
        for number, byte in enumerate((b"\xff", b"\xfe", b"\xff")):
            with socket.create_connection(("127.0.0.1", port_of(gateway))) as connection:
                connection.sendall(
                    b"POST /test HTTP/1.1\r\nHost: x\r\nX-Id: %s\r\nContent-Length: 1\r\n\r\n%d" % (byte, number)
                )
                assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
    assert [record.value for record in written(bootstrap, "odd")] == [b"0", b"1"]


def test_a_body_without_a_length_is_bounded_too(bootstrap: str) -> None:
    with (
        running(KIND, bootstrap, "chunked", port=0, provider="none", path="/test", max_body=1000) as gateway,
        socket.create_connection(("127.0.0.1", port_of(gateway))) as connection,
    ):
        connection.sendall(b"POST /test HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.sendall((b"200\r\n" + b"x" * 512 + b"\r\n") * 3)
        assert connection.recv(4096).startswith(b"HTTP/1.1 413 ")


def test_a_client_that_drips_is_closed(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.serving.server.PATIENCE_S", 0.3)
    with running(KIND, bootstrap, "slow", port=0, provider="none", path="/test") as gateway:
        with socket.create_connection(("127.0.0.1", port_of(gateway)), timeout=20) as connection:
            connection.sendall(b"POST /test HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab")
            assert connection.recv(4096) == b""
        wait_for(lambda: gateway.progress.connections == 0, "nothing is held for it")


def test_the_broker_is_away(tmp_path: Path) -> None:
    port = free_port()
    given = {"port": 0, "provider": "standard", "secret": SECRET, "path": "/test", "answer_within": "500 ms"}
    with running(KIND, f"127.0.0.1:{port}", "away", **given) as gateway:
        wait_for(lambda: "127.0.0.1:" in gateway.source and ":0 " not in gateway.source, "it listens")
        hook = int(gateway.source.split("127.0.0.1:")[1].split(" ")[0])
        wait_for(lambda: is_open(hook), "it listens")
        status, headers, said = ask(hook, "/test", b"1", standard("m", b"1"))
        assert (status, headers["retry-after"]) == (503, "5")
        assert b"away" in said
        assert ask(hook, "/test", b"1", {})[0] == 401, "a bad signature is one whatever is away"
        assert ask(hook, "/readyz", b"", {}, method="GET")[0] == 503
        with Broker(tmp_path / "data", listen=f"127.0.0.1:{port}"):
            wait_for(lambda: send(hook, "m", b"1") == 200, "it is there")
            assert ask(hook, "/readyz", b"", {}, method="GET")[0] == 200
        assert send(hook, "m", b"1") == 200, "what is known is known without a broker"
        assert send(hook, "n", b"2") == 503
        with Broker(tmp_path / "data", listen=f"127.0.0.1:{port}") as broker:
            wait_for(lambda: send(hook, "n", b"2") == 200, "it is there again")
            assert [value for _, value in read_topic(broker.bootstrap_servers, "away")] == [b"1", b"2"]


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def test_tls(bootstrap: str, tmp_path: Path) -> None:
    make_authority(tmp_path, "authority")
    certificate = make_certificate(tmp_path, "server", "authority", alternative="DNS:localhost")
    certificate.chmod(0o600)
    given = {"port": 0, "provider": "standard", "secret": SECRET, "path": "/test", "certificate": str(certificate)}
    with running(KIND, bootstrap, "tls", **given) as gateway:
        port = port_of(gateway)
        context = ssl.create_default_context(cafile=str(tmp_path / "authority.pem"))
        connection = http.client.HTTPSConnection("localhost", port, context=context, timeout=20)
        connection.request("POST", "/test", b"{}", standard("m", b"{}"))
        assert connection.getresponse().status == 200
        connection.close()


def test_no_secret_is_in_the_log_or_in_an_argument(bootstrap: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    port = free_port()
    process = started(
        "webhook", "quiet", bootstrap, "--port", str(port), "--provider", "standard", "--secret-file", str(secret)
    )
    try:
        wait_for(lambda: is_open(port), "it listens")
        wait_for(lambda: send(port, "m", b"1", "/quiet") == 200, "it is ready")
        assert ask(port, "/quiet", b"1", standard("m", b"2"))[0] == 401
        assert SECRET.encode() not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
    finally:
        process.terminate()
        out, err = process.communicate()
    assert "does not match" in err
    assert SECRET.removeprefix("whsec_") not in out + err


# --- kill -9


def is_cut_off(port: int, body: bytes) -> bool:
    try:
        assert send(port, "m1", body) != 200
    except (OSError, http.client.HTTPException):
        return True
    return False


STEPS = ["before", "added", "sent", "committed"]


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_each_step_nothing_is_lost_and_nothing_doubled(bootstrap: str, step: str) -> None:
    """The process dies in the transaction of a delivery: its sender sends it again, to the next one."""
    name, port = f"step-{step}", free_port()
    command = [sys.executable, "-m", "tests.integration.gateways.webhook_worker", bootstrap, name, str(port)]
    acknowledged: list[bytes] = []
    for number in range(4):
        worker = subprocess.Popen([*command, step if number == 1 else "never"])
        try:
            wait_for(lambda: is_open(port), "it listens")
            body = b"%d" % number
            if number == 1:
                wait_for(lambda body=body: is_cut_off(port, body), "it dies before it answers")
                assert worker.wait(20) == -signal.SIGKILL
                continue
            for each in (b"1", body) if number else (body,):
                wait_for(lambda each=each: send(port, f"m{each.decode()}", each) == 200, "it is taken")
                acknowledged.append(each)
        finally:
            worker.kill()
            worker.wait()
    found = [value for _, value in read_topic(bootstrap, name)]
    assert sorted(found) == sorted(set(acknowledged)), f"{found} for {acknowledged}"


def test_killed_in_turn_with_its_broker_what_was_acknowledged_is_there_once(tmp_path: Path) -> None:
    broker_port, port = free_port(), free_port()
    bootstrap = f"127.0.0.1:{broker_port}"

    def broker() -> Broker:
        return Broker(tmp_path / "data", listen=bootstrap, own_process=True).start()

    def gateway() -> "subprocess.Popen[str]":
        return started("webhook", "killed", bootstrap, "--port", str(port), "--provider", "none", "--path", "/test",
                       "--answer-within", "2 seconds")  # fmt: skip

    serving, hooks = broker(), gateway()
    is_over, acknowledged, lock = threading.Event(), set[int](), threading.Lock()

    def client(first: int) -> None:
        number = first
        while not is_over.is_set():
            try:
                status = ask(port, "/test", b"%d" % number, {"Idempotency-Key": str(number)}, timeout=10)[0]
            except (OSError, http.client.HTTPException):
                is_over.wait(0.02)
                continue
            if status == 200:
                with lock:
                    acknowledged.add(number)
                number += 4
            else:
                assert status == 503
                is_over.wait(0.02)

    clients = [threading.Thread(target=client, args=(first,)) for first in range(4)]
    for each in clients:
        each.start()
    try:
        for kill in range(int(os.environ.get("HEADRACE_KILLS", "4"))):
            then = len(acknowledged)
            wait_for(lambda then=then: len(acknowledged) > then + 30, "deliveries are acknowledged")
            if kill % 2:
                os.kill(serving.pid, signal.SIGKILL)
                serving.stop()
                serving = broker()
            else:
                hooks.kill()
                hooks.communicate()
                hooks = gateway()
        then = len(acknowledged)
        wait_for(lambda: len(acknowledged) > then + 30, "deliveries are acknowledged at the end")
    finally:
        is_over.set()
        for each in clients:
            each.join()
        hooks.terminate()
        hooks.communicate()
    found = [int(value) for _, value in read_topic(bootstrap, "killed")]
    serving.stop()
    assert acknowledged <= set(found)
    assert len(found) == len(set(found)), "none is there twice, though each was sent until it was acknowledged"


def test_the_later_of_two_of_one_name_goes_on(bootstrap: str) -> None:
    given = {"port": 0, "provider": "standard", "secret": SECRET, "path": "/test"}

    def run_two() -> None:
        with running(KIND, bootstrap, "twins", **given) as first:
            port = port_of(first)
            assert send(port, "a", b"1") == 200
            with running(KIND, bootstrap, "twins", **given) as second:
                assert send(port_of(second), "a", b"1") == 200
                assert second.progress.more["duplicates"] == 1
                with contextlib.suppress(OSError):
                    assert send(port, "b", b"2") == 503
                assert send(port_of(second), "b", b"2") == 200

    with pytest.raises(AssertionError, match="TakenOver"):
        run_two()
    assert [value for _, value in read_topic(bootstrap, "twins")] == [b"1", b"2"]


# --- settings


GOOD: dict[str, Any] = {"provider": "github", "secret": "k"}
BAD: list[tuple[dict[str, Any], str]] = [
    ({"provider": None, "secret": None}, "has no provider"),
    ({"secret": None}, "has no secret"),
    ({"provider": "none"}, "has a secret and provider none"),
    ({"provider": "none", "secret": None, "host": "0.0.0.0"}, "takes what anybody sends"),
    ({"path": "github"}, "path is 'github'"),
    ({"path": "/healthz"}, "which is no probe"),
    ({"tolerance": "soon"}, "tolerance is 'soon'"),
    ({"key": "a b"}, "write the name of a header, or a JSON pointer"),
    ({"headers": ["Authorization"]}, "that are no secrets"),
    ({"signature_header": "X-Sig"}, "provider github does not take"),
    ({"provider": "hmac"}, "has no signature_header"),
    ({"provider": "hmac", "signature_header": "X", "signed": "{timestamp}"}, "leaves the body out"),
    ({"provider": "hmac", "signature_header": "X", "signed": "{timestamp}{body}"}, "write timestamp_header"),
    ({"provider": "hmac", "signature_header": "X", "timestamp_header": "X-At"}, "a time that is not signed"),
    ({"endpoints": {"a": GOOD}}, "has endpoints, and provider besides"),
    ({"provider": None, "secret": None, "endpoints": {"a": 5}}, "is no table"),
    ({"provider": None, "secret": None, "endpoints": {"a": {**GOOD, "pth": "/"}}}, "has no key 'pth'"),
    (
        {"provider": None, "secret": None, "endpoints": {"a": {**GOOD, "path": "/x"}, "b": {**GOOD, "path": "/x"}}},
        "the same path",
    ),
]  # fmt: skip


def test_a_secret_that_is_not_there_is_said_at_the_start(bootstrap: str, tmp_path: Path) -> None:
    places = {
        "variable": {"secret_env": "NO_SUCH_SECRET"},
        "file": {"secret_file": str(tmp_path / "none")},
        "form": {"secret": "whsec_!", "provider": "standard"},
    }
    for what, place in places.items():
        endpoints = {"e": {"provider": "github", **place}}
        gateway = KIND.make(
            "hooks", with_defaults(KIND.keys, {"endpoints": endpoints, "port": 0}), parse_bootstrap(bootstrap),
            threading.Event(),
        )  # fmt: skip
        with pytest.raises(HeadraceError, match=r"endpoints\.e|endpoint e"):
            gateway.run()
        assert what


@pytest.mark.parametrize(("change", "sentence"), BAD)
def test_a_section_that_cannot_be(change: dict[str, Any], sentence: str) -> None:
    given = {name: value for name, value in {**GOOD, **change}.items() if value is not None}
    with pytest.raises(HeadraceError) as raised:
        check_section("hooks", {"kind": "webhook", **with_defaults(KIND.keys, given)})
    assert sentence in str(raised.value)
    assert "gateways.hooks" in str(raised.value)
