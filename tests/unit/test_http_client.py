"""The HTTP client against real sockets on this machine; its TLS and its passwords are tested with the registry's."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headrace.http_client import Answer, HttpServer, InvalidServer, NoAnswer
from headrace.stores.webhook.sender import Sender

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
