"""A small HTTP server that answers what the OpenSearch sink asks, after OpenSearch's documentation.

It stands in for OpenSearch where no Java is wanted, and shows the transport, the order of requests, and what the sink
makes of statuses that a real one gives only in need. That OpenSearch agrees is shown in tests/peers.
"""

import itertools
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


class IndexServer:
    """Indexes with external versions, aliases, and documents with sequence numbers."""

    def __init__(self) -> None:
        self.indexes: dict[str, dict[str, tuple[int, dict[str, Any]]]] = {}
        self.gone: dict[tuple[str, str], int] = {}
        self.aliases: dict[str, str] = {}
        self.numbered: dict[str, tuple[int, dict[str, Any]]] = {}
        self.scrolls: dict[str, list[dict[str, Any]]] = {}
        self.statuses: list[int] = []  # answered first, whatever was asked
        self.refused_values: set[Any] = set()
        self._numbers = itertools.count(1)
        lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 65536  # an answer in one piece

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                with lock:
                    status, found = outer.handle(self.command, self.path, body)
                data = json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_PUT = do_POST = do_DELETE = answer  # noqa: N815 - the library's names

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def end(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def handle(self, method: str, target: str, body: bytes) -> tuple[int, Any]:
        if self.statuses:
            return self.statuses.pop(0), {"error": {"reason": "as the test wished"}}
        parts = urlsplit(target)
        path, query = parts.path, parse_qs(parts.query)
        if match := re.fullmatch(r"/headrace-sync/_doc/(.+)", path):
            return self._state(method, unquote(match[1]), query, body)
        if match := re.fullmatch(r"/_alias/(.+)", path):
            index = self.aliases.get(match[1])
            return (200, {index: {}}) if index else (404, {"error": "alias missing"})
        if path == "/_aliases":
            for action in json.loads(body)["actions"]:
                ((what, told),) = action.items()
                if what == "add":
                    self.aliases[told["alias"]] = told["index"]
            return 200, {"acknowledged": True}
        if path == "/_search/scroll":
            told = json.loads(body)
            return 200, self._page(told["scroll_id"]) if method == "POST" else {"succeeded": True}
        name, _, rest = path.lstrip("/").partition("/")
        if not rest:
            return self._index(method, name, body)
        if name not in self.indexes:
            return 404, {"error": {"reason": f"no such index [{name}]"}}
        return self._documents(name, rest, body)

    def _state(self, method: str, name: str, query: dict[str, list[str]], body: bytes) -> tuple[int, Any]:
        found = self.numbered.get(name)
        if method == "DELETE":
            self.numbered.pop(name, None)
            return 200, {}
        if method == "GET":
            if found is None:
                return 404, {"found": False}
            return 200, {"_seq_no": found[0], "_primary_term": 1, "_source": found[1]}
        is_as_seen = str(found[0] if found else None) == query.get("if_seq_no", ["None"])[0]
        if not is_as_seen:
            return 409, {"error": {"reason": "version conflict"}}
        number = next(self._numbers)
        self.numbered[name] = (number, json.loads(body))
        return 200, {"_seq_no": number, "_primary_term": 1}

    def _index(self, method: str, name: str, body: bytes) -> tuple[int, Any]:
        if method == "DELETE":
            return (200, {}) if self.indexes.pop(name, None) is not None else (404, {"error": "no such index"})
        self.indexes.setdefault(name, {})
        for alias in json.loads(body).get("aliases", {}):
            self.aliases[alias] = name
        return 200, {"acknowledged": True}

    def _documents(self, name: str, rest: str, body: bytes) -> tuple[int, Any]:
        documents = self.indexes[name]
        if rest == "_bulk":
            items = list(self._bulk(name, body.decode().split("\n")))
            return 200, {"errors": any(i["status"] >= 300 for item in items for i in item.values()), "items": items}
        if rest == "_mget":
            docs = [
                {"_id": i, "found": i in documents, "_source": documents[i][1] if i in documents else None}
                for i in json.loads(body)["ids"]
            ]
            return 200, {"docs": docs}
        if rest == "_delete_by_query":
            documents.clear()
            return 200, {}
        if rest == "_refresh":
            return 200, {}
        assert rest == "_search"
        number = str(next(self._numbers))
        self.scrolls[number] = [{"_id": i, "_source": source} for i, (_, source) in documents.items()]
        return 200, self._page(number)

    def _page(self, number: str) -> dict[str, Any]:
        hits = self.scrolls[number]
        self.scrolls[number] = hits[1000:]
        return {"_scroll_id": number, "hits": {"hits": hits[:1000]}}

    def _bulk(self, name: str, lines: list[str]) -> Any:
        documents = self.indexes[name]
        at = 0
        while lines[at]:
            ((what, told),) = json.loads(lines[at]).items()
            source = json.loads(lines[at + 1]) if what == "index" else None
            at += 2 if what == "index" else 1
            identity, version = told["_id"], told["version"]
            held = documents[identity][0] if identity in documents else self.gone.get((name, identity), 0)
            if version <= held:
                yield {what: {"status": 409, "error": {"reason": "version conflict"}}}
            elif source is None:
                self.gone[name, identity] = version
                yield {what: {"status": 200 if documents.pop(identity, None) else 404}}
            elif any(isinstance(v, str) and v in self.refused_values for v in source.values()):
                yield {what: {"status": 400, "error": {"reason": "failed to parse field"}}}
            else:
                documents[identity] = (version, source)
                yield {what: {"status": 201}}
