"""An OpenSearch index kept in step, over its HTTP interface (Elasticsearch's is the same here).

OpenSearch has no transactions, so each document has a version made of the number of the session that wrote it and the
number of the change in that session, and the index takes only what is newer than what it has: a late request of a
session that is over changes nothing that was written since. The place stands in the index `headrace-sync` and moves on
after the documents are written; it is replaced only if nobody else replaced it meanwhile.

Readers use the alias `INDEX`. Behind it is `INDEX-g1`, then `INDEX-g2`: a rebuild fills the next one, and the switch
moves the alias in one step. How columns are indexed is OpenSearch's to decide, or an index template's for `INDEX-g*`;
the document is the row in any case.
"""

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final
from urllib.parse import quote

from headrace.http_client import Answer, HttpServer, InvalidServer, NoAnswer
from headrace.stores.derived import ChangeBatch, Place, RowChange, StoredRow, Values, complete_rows, key_text
from headrace.stores.errors import (
    InvalidConnectSetting,
    RowRefused,
    SinkError,
    SinkRefused,
    SinkUnavailable,
    TakenOver,
    TargetReplaced,
)
from headrace.stores.values import encode_row

_STATES: Final = "headrace-sync"
_JSON: Final = {"Content-Type": "application/json"}
_LINES: Final = {"Content-Type": "application/x-ndjson"}
_PAGE: Final = 2_000
# The first value of a column decides how it is indexed. A value of another row that does not fit is then not found by
# it, but the row is kept; and a text that looks like a date is a text. Inside of documents, where one list may hold
# numbers and texts, all values are indexed as texts are.
_TEXT: Final = {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}}
_NEW_INDEX: Final = {
    "settings": {"index.mapping.ignore_malformed": True},
    "mappings": {
        "date_detection": False,
        "dynamic_templates": [
            {f"{kind}_inside": {"match_mapping_type": kind, "path_match": "*.*", "mapping": _TEXT}}
            for kind in ("long", "double", "boolean")
        ],
    },
}
_CHANGES_BITS: Final = 40  # of a version: what is left are millions of sessions
_LATER: Final = (408, 409, 429)
_HAS_NEWER: Final = 409  # the version it holds is not older: this change, or a later one, was written before
_NOT_THERE: Final = 404  # what was to be deleted
_ITEM_LATER: Final = (408, 429)
_LONGEST_ID_BYTES: Final = 512
_MOST_CHANGES: Final = 2_000
_LARGEST_BYTES: Final = 8 * 1024 * 1024  # OpenSearch takes 100 MiB unless told otherwise, and holds it in memory


@dataclass(eq=False)
class OpenSearchSink:
    """Keeps one index in step with one topic; with `built`, a generation that is being filled."""

    name: str
    topic: str
    server: HttpServer
    alias: str
    built: str = ""
    every_change: ClassVar[bool] = False
    _index: str = field(default="", init=False)
    _owner: str = field(default="", init=False)
    _seen: tuple[int, int] = field(default=(0, 0), init=False)  # the state document's sequence number and primary term
    _session: int = field(default=0, init=False)
    _version: int = field(default=0, init=False)  # of the last change

    # --- keeping in step

    def open(self) -> Place | None:
        """Become the owner."""
        self._index = self.built or self._current() or self._create(1, alias=True)
        state = self._read_state(self._index)
        self._owner = secrets.token_hex(16)
        # Versions of an earlier Headrace were made of offsets, which are below those of the first session.
        self._session = int(state.get("session", 0)) + 1
        self._version = self._session << _CHANGES_BITS
        place = Place.from_json(state["place"]) if state.get("place") else None
        self._write_state(place)
        return place

    def apply(self, batch: ChangeBatch) -> None:
        """Documents first, then the place."""
        self._check_owner()
        if batch.clears:
            self._ask("POST", f"/{self._index}/_refresh")  # a query does not find what was written a moment ago
            query = json.dumps({"query": {"match_all": {}}}).encode()
            self._ask("POST", f"/{self._index}/_delete_by_query?conflicts=proceed", query)
            self._version += 1  # the index counts the deletion
        partial = [change.key for change in batch.changes if change.partial]
        stored = {row.key: row.values for row in self._read_rows(self._index, partial)} if partial else {}
        changes = complete_rows(batch.changes, stored)
        first = self._version + 1
        self._version += len(changes)
        for held, body in bulk_bodies(changes, first):
            check_bulk(self._read(self._send("POST", f"/{self._index}/_bulk", body, _LINES)), held)
        self._write_state(batch.place)

    def close(self) -> None:
        self.server.close()

    def _check_owner(self) -> None:
        if not self.built and self._current() != self._index:
            raise TargetReplaced(f"index {self.alias} was replaced by a rebuilt one")
        if self._read_state(self._index).get("owner") != self._owner:
            raise TakenOver(self.name)

    # --- the state document

    def _read_state(self, index: str) -> dict[str, Any]:
        answer = self._send("GET", f"/{_STATES}/_doc/{quote(index, safe='')}")
        if answer.status == 404:
            self._seen = (0, 0)
            return {}
        read = self._read(answer)
        self._seen = (read["_seq_no"], read["_primary_term"])
        source: dict[str, Any] = read["_source"]
        return source

    def _write_state(self, place: Place | None) -> None:
        state = {"owner": self._owner, "session": self._session, "place": place.to_json() if place else None}
        number, term = self._seen
        condition = f"if_seq_no={number}&if_primary_term={term}" if term else "op_type=create"
        path = f"/{_STATES}/_doc/{quote(self._index, safe='')}?{condition}"
        answer = self._send("PUT", path, json.dumps(state).encode(), _JSON)
        if answer.status == 409:
            raise TakenOver(self.name)
        written = self._read(answer)
        self._seen = (written["_seq_no"], written["_primary_term"])

    # --- the index

    def _current(self) -> str:
        answer = self._send("GET", f"/_alias/{self.alias}")
        if answer.status == 404:
            return ""
        indexes = list(self._read(answer))
        if len(indexes) != 1:
            raise SinkRefused(f"alias {self.alias} stands for {len(indexes)} indexes: let it stand for one")
        return str(indexes[0])

    def _create(self, number: int, *, alias: bool) -> str:
        index = f"{self.alias}-g{number}"
        body: dict[str, Any] = {**_NEW_INDEX, "aliases": {self.alias: {}} if alias else {}}
        answer = self._send("PUT", f"/{index}", json.dumps(body).encode(), _JSON)
        if not (answer.status == 400 and b"already_exists" in answer.body):
            self._read(answer)
        return index

    def _send(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        try:
            return self.server.ask(method, path, body, headers)
        except NoAnswer as error:
            raise SinkUnavailable(str(error)) from error

    def _ask(self, method: str, path: str, body: bytes | None = None) -> Any:
        return self._read(self._send(method, path, body, _JSON))

    def _read(self, answer: Answer) -> Any:
        if answer.is_success:
            return json.loads(answer.body)
        text = f"{self.server.host} answered with status {answer.status}: {_reason(answer.body)}"
        if answer.status >= 500 or answer.status in _LATER:
            raise SinkUnavailable(text)
        raise SinkRefused(text)

    # --- reading back

    @contextmanager
    def _reading(self) -> Iterator[str]:
        """The index that is read, empty if there is none; disconnected afterwards, for nobody calls `close` then."""
        try:
            yield self.built or self._current()
        finally:
            self.server.close()

    def place(self) -> Place | None:
        with self._reading() as index:
            state = self._read_state(index) if index else {}
        return Place.from_json(state["place"]) if state.get("place") else None

    def scan(self) -> Iterator[list[StoredRow]]:
        """Every document, as of one moment."""
        with self._reading() as index:
            if not index:
                return
            self._ask("POST", f"/{index}/_refresh")
            body = json.dumps({"size": _PAGE, "sort": ["_doc"]}).encode()
            page = self._ask("POST", f"/{index}/_search?scroll=2m", body)
            while page["hits"]["hits"]:
                yield [StoredRow(hit["_id"], hit["_source"]) for hit in page["hits"]["hits"]]
                on = json.dumps({"scroll": "2m", "scroll_id": page["_scroll_id"]}).encode()
                page = self._ask("POST", "/_search/scroll", on)
            self._ask("DELETE", "/_search/scroll", json.dumps({"scroll_id": page["_scroll_id"]}).encode())

    def look_up(self, keys: Sequence[Values]) -> list[StoredRow]:
        with self._reading() as index:
            return self._read_rows(index, keys) if index and keys else []

    def _read_rows(self, index: str, keys: Sequence[Values]) -> list[StoredRow]:
        found = self._ask("POST", f"/{index}/_mget", json.dumps({"ids": [key_text(key) for key in keys]}).encode())
        return [StoredRow(document["_id"], document["_source"]) for document in found["docs"] if document.get("found")]

    def comparable(self, key: Values, row: Values) -> StoredRow:
        return StoredRow(key_text(key), dict(row))

    # --- rebuilding

    def beside(self) -> "OpenSearchSink":
        with self._reading():
            return self._beside(self._number() + 1)

    def _beside(self, number: int) -> "OpenSearchSink":
        index = f"{self.alias}-g{number}"
        for path in (f"/{index}", f"/{_STATES}/_doc/{quote(index, safe='')}"):
            answer = self._send("DELETE", path)
            if answer.status != 404:
                self._read(answer)
        self._create(number, alias=False)
        return replace(self, built=index)

    def switch(self) -> None:
        """The alias moves, and the index before the old one goes."""
        with self._reading():
            number = self._number()
            actions: list[dict[str, Any]] = [{"add": {"index": f"{self.alias}-g{number + 1}", "alias": self.alias}}]
            if number:
                actions.append({"remove": {"index": f"{self.alias}-g{number}", "alias": self.alias}})
            self._ask("POST", "/_aliases", json.dumps({"actions": actions}).encode())
            if number > 1:
                self._send("DELETE", f"/{self.alias}-g{number - 1}")

    def _number(self) -> int:
        current = self._current()
        text = current.removeprefix(f"{self.alias}-g")
        if current and not text.isdecimal():
            raise SinkRefused(f"alias {self.alias} stands for {current}, which this sink did not make: name another")
        return int(text) if current else 0


# --- the bulk interface: what is sent, and what the answer means


def bulk_bodies(
    changes: Sequence[RowChange], first: int, largest_bytes: int = _LARGEST_BYTES
) -> Iterator[tuple[list[RowChange], bytes]]:
    """Requests, each with the changes that it holds: not more than so many bytes, unless one row alone is larger.

    Versions count on from `first`.
    """
    held: list[RowChange] = []
    body = bytearray()
    for version, change in enumerate(changes, first):
        if not _is_possible(change):
            continue
        lines = _lines(change, version)
        if held and (len(body) + len(lines) > largest_bytes or len(held) == _MOST_CHANGES):
            yield held, bytes(body)
            held, body = [], bytearray()
        held.append(change)
        body += lines
    if held:
        yield held, bytes(body)


def _is_possible(change: RowChange) -> bool:
    """Whether the index can hold such a key; a deletion of one that it cannot hold is done already."""
    size = len(change.key_text.encode())
    if 0 < size <= _LONGEST_ID_BYTES:
        return True
    if change.row is None:
        return False
    what = f"is longer than {_LONGEST_ID_BYTES} bytes" if size else "is empty"
    raise RowRefused(f"the index refuses the row: its key {what}", partition=change.partition, offset=change.offset)


def _lines(change: RowChange, version: int) -> bytes:
    """One line for a deletion, two for a row."""
    action = {"_id": change.key_text, "version": version, "version_type": "external"}
    if change.row is None:
        return _line({"delete": action})
    return _line({"index": action}) + _line(change.row)


def check_bulk(answer: Mapping[str, Any], changes: Sequence[RowChange]) -> None:
    """Raise what went wrong; what may pass counts before what will not, because the batch is then sent again whole."""
    if not answer.get("errors"):
        return
    worst: SinkError | None = None
    for change, item in zip(changes, answer["items"], strict=True):
        (result,) = item.values()
        status = result["status"]
        if 200 <= status < 300 or status == _HAS_NEWER or (status == _NOT_THERE and change.row is None):
            continue
        error = result.get("error") or {}
        reason = error.get("reason") if isinstance(error, dict) else error
        if status >= 500 or status in _ITEM_LATER:
            raise SinkUnavailable(f"the index is overloaded or away (status {status}): {reason}")
        if worst is None:
            text = f"the index refuses the row (status {status}): {reason}"
            worst = RowRefused(text, partition=change.partition, offset=change.offset)
    if worst is not None:
        raise worst


def _line(value: object) -> bytes:
    return encode_row(value).encode() + b"\n"


def _reason(body: bytes) -> str:
    try:
        error = json.loads(body)["error"]
        return str(error["reason"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError):
        return body[:200].decode(errors="replace")


def opensearch(name: str, topic: str, url: str, index: str, *, timeout_s: float = 30.0) -> OpenSearchSink:
    """A sink to an index of OpenSearch; `index` is the alias that readers use."""
    if not index or index != index.lower() or index.startswith(("_", "-", "+")) or set(index) & set('\\/*?"<>| ,#:'):
        raise InvalidConnectSetting("index", index, "use small letters, digits, '.', '_' and '-', a letter first")
    try:
        server = HttpServer(url, timeout_s)
    except InvalidServer as error:
        raise InvalidConnectSetting("url", "…", f"it {error}") from None
    return OpenSearchSink(name, topic, server, index)
