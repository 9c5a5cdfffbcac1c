"""The HTTP client against real sockets on this machine; its TLS and its passwords are tested with the registry's."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headrace.http_client import Answer, HttpServer, InvalidServer, NoAnswer
from headrace.reach import Reach
from headrace.stores.webhook.sender import Sender, WebhookFailed

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Peer:
    """What a server hears, a list of requests for each connection; each of them is answered as a script says."""

    def __init__(self, *scripts: list[bytes]) -> None:
        """A script is the answers on one connection, which is then closed; an empty answer closes it unanswered."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.heard: list[list[bytes]] = []
        self.closed = [threading.Event() for _ in scripts]
        self._scripts = scripts
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        for script, closed in zip(self._scripts, self.closed, strict=True):
            connection, _ = self._listener.accept()
            self.heard.append([])
            with connection:
                for answer in script:
                    self.heard[-1].append(_request(connection))
                    connection.sendall(answer)
            closed.set()

    def end(self) -> None:
        self._thread.join()
        self._listener.close()


def _request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    size = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-le")), 0)
    while len(body) < size:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


@contextmanager
def peer(*scripts: list[bytes]) -> Iterator[Peer]:
    there = Peer(*scripts)
    try:
        yield there
    finally:
        there.end()


def test_a_connection_is_used_again() -> None:
    with peer([OK, OK]) as there:
        server = HttpServer(f"http://127.0.0.1:{there.port}/in?token=x", 5, {"X-One": "1"})
        for _ in range(2):
            assert server.ask("POST", server.path, b"{}", {"X-Two": "2"}) == Answer(200, b"ok")
        server.close()
    (requests,) = there.heard
    assert [request.split(b"\r\n")[0] for request in requests] == [b"POST /in?token=x HTTP/1.1"] * 2
    assert b"X-One: 1" in requests[0]
    assert b"X-Two: 2" in requests[0]
    assert requests[0].endswith(b"\r\n\r\n{}")


@pytest.mark.parametrize("unanswered", [[OK], [OK, b""]])
def test_a_request_on_a_connection_that_was_closed_meanwhile_is_sent_once_more(unanswered: list[bytes]) -> None:
    with peer(unanswered, [OK]) as there:
        server = HttpServer(f"http://127.0.0.1:{there.port}", 5)
        server.ask("GET", "/1")
        if len(unanswered) == 1:
            there.closed[0].wait()
        assert server.ask("GET", "/2").status == 200
        server.close()
    assert there.heard[1][0].startswith(b"GET /2 ")


def test_a_first_request_without_an_answer_is_not_sent_again() -> None:
    with peer([b""]) as there:
        server = HttpServer(f"http://127.0.0.1:{there.port}/geheim", 5)
        with pytest.raises(NoAnswer, match=r"^no answer from 127\.0\.0\.1: ") as raised:
            server.ask("GET", "/geheim")
    assert "geheim" not in str(raised.value)
    assert len(there.heard) == 1


def test_who_does_not_answer_in_time_is_not_asked_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:  # which accepts, and says nothing
        server = HttpServer(f"http://127.0.0.1:{listener.getsockname()[1]}/geheim", 0.05)
        with pytest.raises(NoAnswer, match="timed out"):
            server.ask("GET", "/geheim")


def test_redirects_are_answers() -> None:
    moved = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    with peer([moved]) as there:
        assert HttpServer(f"http://127.0.0.1:{there.port}", 5).ask("GET", "/").status == 302


def test_of_a_long_answer_no_more_is_read_than_is_wanted() -> None:
    long = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde"
    with peer([long], [OK]) as there:
        server = HttpServer(f"http://127.0.0.1:{there.port}", 5)
        assert server.ask("GET", "/", most_bytes=3).body == b"abc"
        assert server.ask("GET", "/", most_bytes=3).body == b"ok"  # and the rest is not taken for the next answer
        server.close()


def test_a_proxy_of_the_environment_is_used_by_who_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with peer([OK]) as there:
        monkeypatch.setenv("http_proxy", f"http://me:pass%2F@127.0.0.1:{there.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        assert HttpServer("http://registry.invalid/x", 5, uses_proxies=True).ask("GET", "/x").body == b"ok"
    assert there.heard[0][0].startswith(b"GET http://registry.invalid/x HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic bWU6cGFzcy8=" in there.heard[0][0]


@pytest.mark.parametrize("url", ["", "host:80", "ftp://host", "http://", "http://host:port", "http://[::1"])
def test_urls_that_cannot_be(url: str) -> None:
    with pytest.raises(InvalidServer, match="http://"):
        HttpServer(url, 1)


def test_an_address_of_the_sixth_kind_keeps_its_brackets() -> None:
    server = HttpServer("http://me:pass@[::1]:8081/a", 1)
    assert (server.origin, server.host, server.path) == ("http://[::1]:8081", "::1", "/a")


def test_a_receiver_of_records_may_answer_at_any_length() -> None:
    endless = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n" + b"x" * 100_000
    with peer([endless]) as there:
        Sender(f"http://127.0.0.1:{there.port}/").post({"n": 1}, "key")
    assert len(there.heard) == 1


# --- where requests may go


def test_a_name_that_leads_to_this_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        leads_to(monkeypatch, [["127.0.0.1"]], port)
        with pytest.raises(WebhookFailed, match=r"^hooks\.example is at an address that is not public: to allow it"):
            Sender(f"http://hooks.example:{port}/geheim").post({"n": 1}, "key")
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_the_address_that_was_checked_is_the_one_that_is_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name server answers with another address each time it is asked: one look-up for each connection."""
    with peer([OK]) as there:
        asked = leads_to(monkeypatch, [["127.0.0.1"], ["10.9.9.9"]], there.port)
        Sender(f"http://hooks.example:{there.port}/", reach=Reach.parse(["127.0.0.1"])).post({"n": 1}, "key")
        assert asked == ["hooks.example"]
    assert b"Host: hooks.example:" in there.heard[0][0]


def test_of_several_addresses_only_those_that_are_allowed_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    with peer([OK]) as there:
        leads_to(monkeypatch, [["169.254.169.254", "10.0.0.1", "127.0.0.1"]], there.port)
        Sender(f"http://hooks.example:{there.port}/", reach=Reach.parse(["127.0.0.1"])).post({"n": 1}, "key")


def test_a_redirect_to_a_private_address_is_not_followed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as inner:
        place = f"http://127.0.0.1:{inner.getsockname()[1]}/latest/meta-data".encode()
        moved = b"HTTP/1.1 307 Temporary Redirect\r\nLocation: " + place + b"\r\nContent-Length: 0\r\n\r\n"
        with peer([moved]) as there, pytest.raises(WebhookFailed, match="status 307"):
            Sender(f"http://127.0.0.1:{there.port}/").post({"n": 1}, "key")
        inner.setblocking(False)
        with pytest.raises(BlockingIOError):
            inner.accept()


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "0177.0.0.1", "127.1"])
def test_figures_that_can_be_misread_are_refused(host: str) -> None:
    with pytest.raises(InvalidServer, match="four decimal numbers"):
        Sender(f"http://{host}/")


def test_an_answer_that_drips_is_over_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stopped = threading.Event()

        def drip() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\n")
                while not stopped.wait(0.02):
                    try:
                        connection.sendall(b"X-A: 1\r\n")
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        began = time.monotonic()
        with pytest.raises(WebhookFailed, match="timed out"):
            Sender(f"http://127.0.0.1:{listener.getsockname()[1]}/", timeout_s=0.3).post({"n": 1}, "key")
        assert time.monotonic() - began < 2
        stopped.set()
        thread.join()


def leads_to(monkeypatch: pytest.MonkeyPatch, answers: list[list[str]], port: int) -> list[str]:
    """Have a name lead to these addresses, each look-up to the next list; which names were asked for."""
    asked: list[str] = []

    def getaddrinfo(host: str, *_: object, **__: object) -> list[object]:
        asked.append(host)
        found = answers[min(len(asked), len(answers)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked
