"""A listener that says what a test tells it to: for what no real broker does on demand."""

import contextlib
import socket
import threading

from headrace.client.address import Address
from headrace.protocol.api import APIS
from headrace.protocol.frame import decode_request, encode_response
from headrace.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from headrace.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker

EVERYTHING = [
    ApiVersion(api_key=api.key, min_version=api.versions[0], max_version=api.versions[-1]) for api in APIS.values()
]


def read_exactly(connection, size):
    data = b""
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise EOFError
        data += chunk
    return data


def read_request(connection):
    return decode_request(read_exactly(connection, int.from_bytes(read_exactly(connection, 4), "big")))


def answer(connection, request, body):
    connection.sendall(encode_response(body, request.header.request_api_version, request.header.correlation_id))


def negotiate(connection, api_keys=EVERYTHING):
    request = read_request(connection)
    answer(connection, request, ApiVersionsResponse(api_keys=api_keys))


@contextlib.contextmanager
def listening(*scripts):
    """Serve one connection after another, each with the next script; a script is a function of the socket."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            for script in scripts:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection, contextlib.suppress(EOFError, OSError):
                    script(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield Address(*server.getsockname()[:2])
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)


class Scripted:
    """A broker that says to each kind of request what is next on its list."""

    def __init__(self, answers, api_keys=EVERYTHING):
        self.answers = {kind: iter(bodies) for kind, bodies in answers.items()}
        self.api_keys = api_keys
        self.asked = []
        self.address = None

    def __call__(self, connection):
        negotiate(connection, self.api_keys)
        while True:
            request = read_request(connection)
            kind = type(request.body)
            if kind is MetadataRequest:
                broker = MetadataResponseBroker(node_id=1, host=self.address.host, port=self.address.port)
                answer(connection, request, MetadataResponse(brokers=[broker], controller_id=1))
                continue
            self.asked.append(kind)
            answer(connection, request, next(self.answers[kind]))
