"""The outbox without Spark: states that survive, retries, lanes, and the webhook."""

import hashlib
import hmac
import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from headrace.pipelines.sink.effects import Refused, webhook
from headrace.pipelines.sink.effects.delivery import Pace, deliver
from headrace.pipelines.sink.effects.ledger import Ledger, open_ledger
from headrace.pipelines.sink.effects.sink import outbox
from headrace.stores.batch import Numbered, Step, Target
from headrace.stores.errors import SinkMisconfigured
from headrace.stores.webhook.sender import WebhookFailed

TARGET = Target("headrace_outbox", "mail", on_new_query="continue")
QUICK = Pace(attempts=3, first_pause_s=0.001, longest_pause_s=0.002, parallel=3)


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/outbox.sqlite"


@pytest.fixture
def ledger(store: str) -> Iterator[Ledger]:
    with open_ledger(store, TARGET) as found:
        yield found


class Sent:
    """A sender that remembers, and fails as told."""

    def __init__(self, failing: Mapping[str, int] | None = None) -> None:
        self.keys: list[str] = []
        self._failing = dict(failing or {})
        self._lock = threading.Lock()

    def __call__(self, record: Mapping[str, Any], key: str) -> None:
        with self._lock:
            self.keys.append(key)
            left = self._failing.get(key, 0)
            self._failing[key] = left - 1
        if left > 0:
            raise ConnectionError(f"no line for {record['n']}")


def records(*numbers: int, lane: bool = False) -> list[tuple[str, str | None, str]]:
    return [(f"k{n}", str(n % 2) if lane else None, json.dumps({"n": n})) for n in numbers]


def test_each_record_is_sent_once_whatever_is_replayed(ledger: Ledger) -> None:
    sent = Sent()
    for query, batch in (("q", 0), ("q", 0), ("another query", 0)):
        if ledger.step(Numbered(query, batch)) is not Step.SKIP:
            ledger.take_in(Numbered(query, batch), records(*range(50)))
        deliver(ledger, sent, QUICK)
    assert sorted(sent.keys) == sorted(f"k{n}" for n in range(50))
    assert ledger.counts() == {"done": 50, "failed": 0, "waiting": 0, "sending": 0}


def test_what_was_in_doubt_is_sent_again_with_its_key(store: str) -> None:
    with open_ledger(store, TARGET) as ledger:
        ledger.take_in(Numbered("q", 0), records(1, 2, 3))
        ledger.claim(ledger.pending(0, 1))  # and then the process dies
    sent = Sent()
    with open_ledger(store, TARGET) as ledger:
        assert ledger.step(Numbered("q", 0)) is Step.SKIP
        deliver(ledger, sent, QUICK)
        assert sorted(sent.keys) == ["k1", "k2", "k3"]


def test_what_ends_while_the_sending_ends_is_remembered(ledger: Ledger) -> None:
    class Ended(BaseException):
        pass

    are_sent, is_ending = threading.Barrier(3), threading.Event()

    def send(_: Mapping[str, Any], key: str) -> None:
        are_sent.wait(10)
        if key == "k1":
            is_ending.set()
            raise Ended
        is_ending.wait(10)
        if key == "k3":
            raise ConnectionError("no line")

    ledger.take_in(Numbered("q", 0), records(1, 2, 3))
    with pytest.raises(Ended):
        deliver(ledger, send, QUICK)
    assert ledger.counts() == {"done": 1, "failed": 0, "waiting": 1, "sending": 1}
    assert [(each.key, each.attempts) for each in ledger.pending(0, 10)] == [("k1", 0), ("k3", 1)]


def test_failures_are_tried_again_and_then_kept(ledger: Ledger) -> None:
    sent = Sent({"k1": 2, "k2": 99})
    ledger.take_in(Numbered("q", 0), records(1, 2, 3))
    deliver(ledger, sent, QUICK)
    assert {key: sent.keys.count(key) for key in ("k1", "k2", "k3")} == {"k1": 3, "k2": 3, "k3": 1}
    assert ledger.failed() == [("k2", 3, "ConnectionError: no line for 2", '{"n": 2}')]
    deliver(ledger, sent, QUICK)
    assert sent.keys.count("k2") == 3
    assert ledger.retry_failed() == 1
    deliver(ledger, Sent(), QUICK)
    assert ledger.counts()["done"] == 3


def test_a_refused_record_is_not_tried_again(ledger: Ledger) -> None:
    tried: list[str] = []

    def send(record: Mapping[str, Any], key: str) -> None:
        tried.append(key)
        raise Refused("never")

    ledger.take_in(Numbered("q", 0), records(1))
    deliver(ledger, send, QUICK)
    assert (tried, ledger.counts()["failed"]) == (["k1"], 1)


def test_a_lane_keeps_its_order_and_waits_behind_a_failure(ledger: Ledger) -> None:
    sent = Sent({"k4": 1, "k5": 99})
    ledger.take_in(Numbered("q", 0), records(*range(10), lane=True))
    deliver(ledger, sent, QUICK)
    even = [key for key in sent.keys if int(key[1:]) % 2 == 0]
    odd = [key for key in sent.keys if int(key[1:]) % 2 == 1]
    assert even == ["k0", "k2", "k4", "k4", "k6", "k8"]
    assert odd == ["k1", "k3", "k5", "k5", "k5"]
    assert ledger.counts() == {"done": 7, "failed": 1, "waiting": 2, "sending": 0}
    ledger.take_in(Numbered("q", 1), records(11, lane=True))
    deliver(ledger, sent, QUICK)
    assert ledger.counts()["waiting"] == 3
    ledger.retry_failed()
    later = Sent()
    deliver(ledger, later, QUICK)
    assert later.keys == ["k5", "k7", "k9", "k11"]


def test_more_records_than_a_page(ledger: Ledger) -> None:
    sent = Sent()
    ledger.take_in(Numbered("q", 0), records(*range(1100), lane=True))
    deliver(ledger, sent, QUICK)
    assert [key for key in sent.keys if int(key[1:]) % 2] == [f"k{n}" for n in range(1, 1100, 2)]


def test_pauses_double_up_to_the_longest() -> None:
    pace = Pace(first_pause_s=0.5, longest_pause_s=3.0)
    assert [pace.backoff.pause_s(n) for n in (1, 2, 3, 4, 5000)] == [0.5, 1.0, 2.0, 3.0, 3.0]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"order_key": "k"}, "order_by"),
        ({"attempts": 0}, "at least 1"),
        ({"on_new_query": "replace"}, "does not forget"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(SinkMisconfigured, match=text):
        outbox("sqlite:///x", print, "id", **settings)


@pytest.fixture
def receiver() -> Iterator[Any]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            server.seen.append((self.path, dict(self.headers), body))  # type: ignore[attr-defined]
            self.send_response(server.status)  # type: ignore[attr-defined]
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.seen, server.status = [], 200
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_webhook_carries_its_key_and_a_signature(receiver: Any) -> None:
    url = f"http://127.0.0.1:{receiver.server_port}/in?token=geheim"
    webhook(url, secret="s3cret")({"a": "ä"}, "order-7")
    path, headers, body = receiver.seen[0]
    assert (path, headers["Idempotency-Key"], json.loads(body)) == ("/in?token=geheim", "order-7", {"a": "ä"})
    assert headers["X-Headrace-Signature"] == "sha256=" + hmac.new(b"s3cret", body, hashlib.sha256).hexdigest()
    webhook(url)({}, "schlüssel\n")
    assert receiver.seen[1][1]["Idempotency-Key"] == hashlib.sha256("schlüssel\n".encode()).hexdigest()


@pytest.mark.parametrize(
    ("status", "error"), [(400, Refused), (404, Refused), (429, WebhookFailed), (503, WebhookFailed)]
)
def test_what_a_status_means(receiver: Any, status: int, error: type[Exception]) -> None:
    receiver.status = status
    with pytest.raises(error, match=f"status {status}") as raised:
        webhook(f"http://127.0.0.1:{receiver.server_port}/geheim", secret="geheim")({}, "k")
    assert "geheim" not in str(raised.value)


def test_a_receiver_that_is_away_is_tried_again() -> None:
    with pytest.raises(WebhookFailed, match="no answer from"):
        webhook("http://127.0.0.1:9/geheim")({}, "k")
    with pytest.raises(SinkMisconfigured, match="http://"):
        webhook("ftp://x")
