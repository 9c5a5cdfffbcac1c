"""The registry client against a real HTTP server on this machine, with and without TLS."""

import base64
import json
import shutil
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from headrace.schema_registry import RegistryError, SchemaRegistry, UnknownSchema

SCHEMA = '{"type": "string"}'
SECRET = "s3cret/word"


class Registry(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        status, body = self.server.answers.get(self.path, (404, b'{"error_code": 40403}'))
        if status is None:  # accept, and never answer until the test is over
            self.server.over.wait()
            return
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/schemas/ids/1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        server.asked, server.over = [], threading.Event()
        server.answers = {
            "/schemas/ids/1": (200, json.dumps({"schema": SCHEMA}).encode()),
            "/under/schemas/ids/1": (200, json.dumps({"schema": SCHEMA, "schemaType": "AVRO"}).encode()),
            "/schemas/ids/2": (401, b""),
            "/schemas/ids/3": (500, b"no"),
            "/schemas/ids/4": (200, b"<html>"),
            "/schemas/ids/5": (200, b'{"schema": 5}'),
            "/schemas/ids/6": (302, b""),
            "/schemas/ids/7": (None, b""),
        }
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.over.set()
        server.shutdown()
        thread.join()


def url_of(server, secrets="", path=""):
    return f"http://{secrets}127.0.0.1:{server.server_port}{path}"


def test_a_schema_is_asked_for_once(server):
    registry = SchemaRegistry(url_of(server, path="/"))
    assert [registry.look_up(1), registry.look_up(1)] == [SCHEMA, SCHEMA]
    assert server.asked == [("/schemas/ids/1", None)]
    assert SchemaRegistry(url_of(server, path="/under/")).look_up(1) == SCHEMA


def test_user_and_password_from_the_url_or_apart(server):
    right = "Basic " + base64.b64encode(f"me:{SECRET}".encode()).decode()
    assert SchemaRegistry(url_of(server, secrets="me:s3cret%2Fword@")).look_up(1) == SCHEMA
    assert SchemaRegistry(url_of(server), user="me", password=SECRET).look_up(1) == SCHEMA
    assert [authorization for _, authorization in server.asked] == [right, right]


@pytest.mark.parametrize(
    ("schema_id", "words"),
    [
        (99, "has no schema with the id 99"),
        (2, "check the user and the password"),
        (3, "answers HTTP 500"),
        (4, "is not a schema registry"),
        (5, "is not a schema registry"),
        (6, "answers HTTP 302"),
        (7, "does not answer"),
    ],
)
def test_failures_are_one_sentence_without_secrets_and_are_not_remembered(server, schema_id, words):
    registry = SchemaRegistry(url_of(server, secrets="me:s3cret%2Fword@"), timeout_s=2)
    with pytest.raises(RegistryError, match=words) as caught:
        registry.look_up(schema_id)
    assert "cret" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.schema_id == schema_id
    assert isinstance(caught.value, UnknownSchema) == (schema_id == 99)
    server.answers[f"/schemas/ids/{schema_id}"] = server.answers["/schemas/ids/1"]
    assert registry.look_up(schema_id) == SCHEMA


def test_nobody_at_home(server):
    server.socket.close()
    with pytest.raises(RegistryError, match="does not answer"):
        SchemaRegistry(url_of(server, secrets="me:pass@"), timeout_s=0.5).look_up(1)


@pytest.mark.parametrize("url", ["", "host:8081", "ftp://me:pass@host", "http://", "http://me:pass@host:port"])
def test_urls_that_cannot_be(url):
    with pytest.raises(RegistryError, match="URL") as caught:
        SchemaRegistry(url)
    assert "pass" not in str(caught.value)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_tls_with_a_ca_of_ones_own(server, tmp_path):
    key, ca_file = tmp_path / "key.pem", tmp_path / "ca.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", ca_file, "-days", "2",
         "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(ca_file, key)
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as secure:
        secure.asked, secure.answers = [], server.answers
        secure.socket = context.wrap_socket(secure.socket, server_side=True)
        secure.handle_error = lambda *_: None
        thread = threading.Thread(target=secure.serve_forever, args=(0.01,))
        thread.start()
        url = f"https://127.0.0.1:{secure.server_port}"
        try:
            assert SchemaRegistry(url, ca_file=str(ca_file)).look_up(1) == SCHEMA
            with pytest.raises(RegistryError, match="certificate"):
                SchemaRegistry(url).look_up(1)
        finally:
            secure.shutdown()
            thread.join()
    with pytest.raises(RegistryError, match="CA file"):
        SchemaRegistry(url, ca_file=str(tmp_path / "none.pem"))
