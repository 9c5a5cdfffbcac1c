"""Stored queries over HTTP: equal to the plain class, changed for all at once, hits live; bad input is one sentence."""

import http.client
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.writer import NewRecord, Writer
from headrace.percolation import Percolator, read_mapping
from headrace.searches.hits import Piece, SearchHit, write_hit
from headrace.searches.http import SearchServer
from headrace.searches.live_hits import HitFeed
from headrace.serving.access import Access, TokensFile, add_token
from headrace.serving.sessions import Role
from headrace.stores.compacted_topic import CompactedTopic

MAPPING = {"fields": {"title": {"type": "text", "analyzer": "english"}, "price": "double"}, "default_fields": ["title"]}
QUERIES = {
    "bikes": {"query": 'title:"racing bike"~2 AND price:<500', "owner": "ann", "tags": ["sport"]},
    "cheap": {"query": "price:<10", "owner": "bob"},
    "no gnomes": {"query": "-gnome", "boost": 2},
}
DOCUMENTS = [
    {"title": "A racing bike, hardly used", "price": 450},
    {"title": "Garden gnome", "price": 5},
    {"title": "A bike for racing", "price": 900},
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Broker(durability="os") as broker, Cluster(parse_bootstrap(broker.bootstrap_servers)) as made:
        yield made


@pytest.fixture
def queries(cluster: Cluster, request: pytest.FixtureRequest) -> CompactedTopic:
    topic = CompactedTopic(cluster, f"queries-{request.node.name}")
    topic.write("mapping:listings", json.dumps(MAPPING).encode())
    for name, parts in QUERIES.items():
        topic.write(name, json.dumps({**parts, "mapping": "listings"}).encode())
    return topic


@pytest.fixture
def server(cluster: Cluster, queries: CompactedTopic) -> Iterator[SearchServer]:
    with SearchServer(parse_bootstrap(str(cluster)), queries.partition.topic, port=0, allow_writes=True) as made:
        yield made


def ask(server: SearchServer, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    sent = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    connection.request(method, path, sent, headers)
    answer = connection.getresponse()
    told = answer.read()
    connection.close()
    return answer.status, json.loads(told) if told else None


def test_a_document_in_hand_has_the_hits_that_the_plain_class_finds(server: SearchServer) -> None:
    plain = Percolator({"listings": read_mapping(MAPPING)})
    for name, parts in QUERIES.items():
        kept = {"tags": tuple(parts.get("tags", ())), "owner": parts.get("owner", ""), "boost": parts.get("boost", 1.0)}
        plain.add(name, str(parts["query"]), mapping="listings", **kept)
    status, told = ask(server, "POST", "/percolate?mapping=listings", DOCUMENTS)
    assert status == 200
    assert told["queries_offset"] == 4
    for document, found in zip(DOCUMENTS, told["documents"], strict=True):
        hits = plain.percolate(document, "listings")
        assert found["total"] == len(hits)
        assert [(hit["query"], hit["score"], hit["owner"], tuple(hit["tags"])) for hit in found["hits"]] == [
            (hit.id, hit.score, hit.owner, hit.tags) for hit in hits
        ]
    (hit,) = [each for each in told["documents"][0]["hits"] if each["query"] == "bikes"]
    assert hit["highlights"] == [{"field": "title", "text": "A racing bike, hardly used", "marks": [[2, 8], [9, 13]]}]
    status, told = ask(server, "POST", "/percolate?mapping=listings&highlights=no&limit=1", DOCUMENTS[0])
    assert [each["query"] for each in told["hits"]] == ["bikes"]
    assert (told["total"], told["hits"][0]["highlights"]) == (2, [])


def test_why_and_why_not(server: SearchServer) -> None:
    status, told = ask(server, "POST", "/percolate?explain=bikes", DOCUMENTS)
    assert status == 200
    assert [each["matches"] for each in told["documents"]] == [True, False, False]
    plain = Percolator({"listings": read_mapping(MAPPING)})
    plain.add("bikes", str(QUERIES["bikes"]["query"]), mapping="listings")
    assert told["documents"][2] == {"query": "bikes", **plain.explain("bikes", DOCUMENTS[2]).as_json()}
    assert ask(server, "POST", "/percolate?explain=bikse", DOCUMENTS[0]) == (
        404, {"error": "no query is stored as 'bikse': did you mean 'bikes'?"}
    )  # fmt: skip


def test_queries_are_listed_and_changed_and_count_at_once(server: SearchServer, queries: CompactedTopic) -> None:
    status, told = ask(server, "GET", "/searches?limit=2")
    assert [each["id"] for each in told["queries"]] == ["bikes", "cheap"]
    assert (told["next"], told["count"], told["refused"], told["unselective"]) == ("cheap", 3, {}, 1)
    assert [each["id"] for each in ask(server, "GET", "/searches?after=cheap")[1]["queries"]] == ["no gnomes"]
    assert [each["id"] for each in ask(server, "GET", "/searches?owner=ann&tag=sport")[1]["queries"]] == ["bikes"]

    new = {"query": "garden", "mapping": "listings", "owner": "cid"}
    assert ask(server, "PUT", "/searches/a%2Fb", new) == (201, {"id": "a/b", "version": 1, **new})
    hits = ask(server, "POST", "/percolate?mapping=listings", DOCUMENTS[1])[1]["hits"]
    assert [each["query"] for each in hits] == ["a/b", "cheap"]
    assert ask(server, "PUT", "/searches/a%2Fb", {**new, "query": "park"})[1]["version"] == 2
    status, told = ask(server, "PUT", "/searches/a%2Fb", {**new, "version": 1})
    assert status == 409, "somebody has changed it meanwhile"
    assert "has version 2 by now" in told["error"]
    assert ask(server, "PUT", "/searches/gone", {**new, "version": 1})[0] == 409, "somebody has removed it meanwhile"
    assert ask(server, "PUT", "/searches/%ff", new)[0] == 400  # else it would be one with %fe
    assert ask(server, "POST", "/searches/cheap/pause")[1]["paused"] is True
    assert ask(server, "POST", "/percolate?mapping=listings", DOCUMENTS[1])[1]["hits"] == []
    assert "paused" not in ask(server, "POST", "/searches/cheap/resume")[1]
    assert ask(server, "GET", "/searches/cheap")[1]["version"] == 3
    assert ask(server, "DELETE", "/searches/cheap") == (204, None)
    assert ask(server, "GET", "/searches/cheap")[0] == 404

    queries.write("broken", b'{"query": "title:(", "mapping": "listings"}')  # by somebody else
    assert "title:(" in ask(server, "GET", "/searches/broken")[1]["refused"]
    assert ask(server, "PUT", "/searches/broken", new)[0] == 201
    assert ask(server, "GET", "/searches")[1]["refused"] == {}


BAD = {
    "not JSON": (
        "POST",
        "/percolate",
        b'{"title": }',
        400,
        "the body is not JSON: Expecting value at line 1, column 11",
    ),
    "no number": ("POST", "/percolate", b'{"a": NaN}', 400, "the body is not JSON: NaN is not a number there"),
    "nested": ("POST", "/percolate", b"[" * 100_000, 400, "nested too deeply"),
    "no object": ("POST", "/percolate", [{}, 3], 400, "document 2 is not a JSON object"),
    "does not fit": ("POST", "/percolate?mapping=listings", [{}, {"price": "ask"}], 400, "document 2: field 'price'"),
    "too many": ("POST", "/percolate", [{}] * 1001, 400, "at most 1,000 documents, not 1,001"),
    "too large": ("POST", "/percolate", b" " * (9 << 20), 413, "at most 8 MiB"),
    "unknown mapping": ("POST", "/percolate?mapping=listing", {}, 404, "did you mean 'listings'?"),
    "unknown option": ("POST", "/percolate?maping=x", {}, 400, "'maping' is unknown here"),
    "limit": ("GET", "/searches?limit=0", None, 400, "limit is a number from 1 to 10,000"),
    "place marked": ("PUT", "/searches/x", {"query": "title:(bike"}, 400, "^"),
    "no query": ("PUT", "/searches/x", {"quer": "bike"}, 400, "'quer' is unknown"),
    "no object stored": ("PUT", "/searches/x", ["bike"], 400, "stored as a JSON object"),
    "a mapping": ("PUT", "/searches/mapping:x", {"query": "a"}, 400, "names a mapping"),
    "method": ("POST", "/searches/bikes", {}, 405, "POST its /pause or /resume"),
    "nothing": ("GET", "/nothing", None, 404, "ask for /searches"),
    "no hits": ("GET", "/hits", None, 404, "--hits TOPIC"),
}


def test_bad_input_changes_nothing(server: SearchServer) -> None:
    before = ask(server, "GET", "/searches")
    for name, (method, path, body, status, sentence) in BAD.items():
        found = ask(server, method, path, body)
        assert found[0] == status, (name, found)
        assert sentence in found[1]["error"], (name, found)
    assert ask(server, "GET", "/searches") == before


def test_only_who_may_changes_queries(cluster: Cluster, queries: CompactedTopic, tmp_path: Any) -> None:
    with SearchServer(parse_bootstrap(str(cluster)), queries.partition.topic, port=0) as server:
        assert "start it with --allow-writes" in ask(server, "DELETE", "/searches/bikes")[1]["error"]
    tokens = tmp_path / "tokens"
    looks, changes = (add_token(tokens, role.value, role) for role in (Role.READ_ONLY, Role.ADMIN))
    access = Access(tokens=TokensFile(tokens))
    with SearchServer(
        parse_bootstrap(str(cluster)), queries.partition.topic, port=0, access=access, allow_writes=True
    ) as server:
        assert ask(server, "POST", "/percolate", {})[0] == 401
        reader, admin = ({"Authorization": f"Bearer {each}"} for each in (looks, changes))
        assert ask(server, "POST", "/percolate", {}, **reader)[0] == 200
        assert ask(server, "DELETE", "/searches/bikes", **reader)[0] == 403
        assert ask(server, "DELETE", "/searches/bikes", **admin)[0] == 204


# --- hits


def hit(query: str, offset: int, owner: str = "ann", tags: tuple[str, ...] = ()) -> SearchHit:
    pieces = (Piece("title", "a bike\nfor racing", ((2, 6),)),)
    return SearchHit(query, 1, owner, tags, 1.0, pieces, "listings", 0, offset, 1, str(offset), 5)


class Hits:
    """A topic of hits in two partitions."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.name = name
        ensure_topic(cluster, name, partitions=2)
        self._writer = Writer(cluster, name)

    def write(self, *hits: SearchHit) -> None:
        for each in hits:
            key, value, _ = write_hit(each)
            self._writer.add(NewRecord(key, value, int(time.time() * 1000), partition=each.offset % 2))
        self._writer.flush()


class Events:
    """Reads server-sent events, one at a time."""

    def __init__(self, server: SearchServer, path: str, **headers: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        self._connection.request("GET", path, headers=headers)
        self._answer = self._connection.getresponse()
        assert self._answer.headers["content-type"].startswith("text/event-stream")
        self.last = ""

    def next(self) -> tuple[str, Any]:
        fields: dict[str, str] = {}
        while True:
            line = self._answer.readline().decode().rstrip("\n")
            if not line and "event" in fields:
                self.last = fields.get("id", self.last)
                return fields["event"], json.loads(fields["data"])
            name, colon, value = line.partition(": ")
            if colon and name:
                fields[name] = value

    def hits(self, count: int) -> list[tuple[str, int]]:
        found = [self.next() for _ in range(count)]
        assert {kind for kind, _ in found} == {"hit"}, found
        return [(told["query"], told["offset"]) for _, told in found]

    def close(self) -> None:
        self._connection.close()


def test_hits_come_live_and_who_comes_back_misses_none(cluster: Cluster) -> None:
    topic = Hits(cluster, "live.hits")
    topic.write(hit("before", 0), hit("before", 1))
    with SearchServer(parse_bootstrap(str(cluster)), "none-yet", topic.name, port=0) as server:
        everything, anns = Events(server, "/hits"), Events(server, "/hits?owner=ann&tag=sport")
        assert [each.next()[0] for each in (everything, anns)] == ["live", "live"]
        topic.write(hit("bikes", 2), hit("bikes", 4, "ann", ("sport",)), hit("cheap", 5, "bob", ("sport",)))
        assert sorted(everything.hits(3)) == [("bikes", 2), ("bikes", 4), ("cheap", 5)]
        assert anns.hits(1) == [("bikes", 4)]
        everything.close()
        anns.close()
        topic.write(*(hit("away", number) for number in range(10, 20)), hit("bikes", 20))
        back = Events(server, "/hits", **{"Last-Event-ID": everything.last})
        # It is live once it is where the server is, which may not have read the last ones itself.
        told = [back.next() for _ in range(12)]
        assert [kind for kind, _ in told].count("live") == 1
        again = sorted((each["query"], each["offset"]) for kind, each in told if kind == "hit")
        assert again == [*(("away", number) for number in range(10, 20)), ("bikes", 20)]
        topic.write(hit("bikes", 21))
        assert back.hits(1) == [("bikes", 21)]
        one = Events(server, "/hits?query=cheap", **{"Last-Event-ID": "0-0,1-0"})
        assert one.hits(1) == [("cheap", 5)]
        assert one.next()[0] == "live"
        status, refused = ask(server, "GET", "/hits", **{"Last-Event-ID": "seventeen"})
        assert (status, "is not a place" in refused["error"]) == (400, True)
        back.close()
        one.close()


def test_a_slow_listener_is_told_what_it_missed_and_holds_up_nobody(cluster: Cluster) -> None:
    topic = Hits(cluster, "slow.hits")
    feed = HitFeed(parse_bootstrap(str(cluster)), topic.name, most=5)
    with SearchServer(parse_bootstrap(str(cluster)), "none-yet", topic.name, port=0, feed=feed) as server:
        slow = Events(server, "/hits")
        assert slow.next()[0] == "live"
        count = 60
        long = "x" * 400_000  # so that what is on its way to one who does not read fills every buffer
        quick = Events(server, "/hits")
        assert quick.next()[0] == "live"
        for number in range(count):
            topic.write(hit(f"q{number}" + long, number))
            assert quick.next()[1]["offset"] == number, "one after another, whoever does not read"
        kinds, missed = [], 0
        while kinds[-1:] != [count - 1]:
            kind, told = slow.next()
            missed += told["missed"] if kind == "missed" else 0
            kinds.append("missed" if kind == "missed" else told["offset"])
        assert missed > 0
        offsets = [each for each in kinds if each != "missed"]
        assert len(offsets) + missed == count
        assert offsets == sorted(offsets)
        slow.close()
        quick.close()
