"""Stored queries over keyed state and over columns find what the plain percolator finds, as they change."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.percolation import Catalog, InvalidDocument, Percolator, read_mapping
from headrace.percolation.language import DEFAULT_POLICY
from headrace.pipelines.operators.errors import BadField
from headrace.pipelines.operators.percolation import hits as hits_module
from headrace.pipelines.operators.percolation import operator as operators
from headrace.pipelines.operators.percolation import standing
from headrace.pipelines.operators.percolation.hits import COUNTED, HITS, Reading
from headrace.pipelines.operators.percolation.operator import (
    HEAD,
    IS_QUERY,
    KEY,
    LOG,
    OFFSET,
    PARTITION,
    SPREAD,
    VALUE,
    PercolateDocuments,
)
from headrace.pipelines.operators.percolation.standing import Record, latest
from headrace.pipelines.operators.stragglers import ASIDE, drop, side_output
from tests.keyed_memory import MemoryRunner
from tests.property.storage_model import examples

PARTS = pa.list_(pa.struct([("name", pa.string()), ("price", pa.int64())]))
COLUMNS = pa.schema(
    [
        ("n", pa.int64()),
        ("title", pa.string()),
        ("price", pa.float64()),
        ("tags", pa.list_(pa.string())),
        ("at", pa.timestamp("us", "UTC")),
        ("parts", PARTS),
        ("more", pa.map_(pa.string(), pa.string())),
        ("body", pa.binary()),
    ]
)
FIELDS = ("title", "price", "tags", "at", "parts")
MAPPINGS = [
    {"fields": {"title": {"type": "text", "analyzer": "english"}, "price": "double"}},
    {"fields": {"title": "keyword", "price": "long"}},
    {"fields": {"price": "text"}, "default_fields": ["title"]},
]
TEXTS = [
    "title:cars", "bike", "title:*", "-title:car", "price:[1 TO 3]", "price:2", 'title:"fast car"~1', "at:>2030-01-01",
    "parts:nested(name:wheel AND price:>1)", "tags:(sale new)^2", "fast", "title:ca*", "more.colour:red",
]  # fmt: skip
BROKEN = ["title:(", "*car", "price:>now"]
VALUES = st.one_of(
    st.none(),
    st.builds(
        lambda text, boost, paused, owner: json.dumps(
            {"query": text, "boost": boost, "paused": paused, "owner": owner, "tags": [owner or "none"]}
        ).encode(),
        st.sampled_from([*TEXTS, *BROKEN]), st.sampled_from([1, 2.5]), st.sampled_from([False, False, True]),
        st.sampled_from(["", "ann"]),
    ),
    st.sampled_from([b"{", b"[]", b"\xff"]),
)  # fmt: skip
CHANGES = st.one_of(
    st.tuples(st.sampled_from([b"a", b"b", b"c", None]), VALUES),
    st.tuples(st.sampled_from([b"a", b"b", b"c", b"d", b"e"]), VALUES),
    st.tuples(
        st.just(b"mapping:default"),
        st.one_of(
            st.sampled_from(MAPPINGS).map(lambda given: json.dumps(given).encode()), st.sampled_from([None, b"{"])
        ),
    ),
)
TITLES = st.lists(st.sampled_from(["car", "cars", "fast", "bike", "a"]), max_size=4).map(" ".join)
ROWS = st.fixed_dictionaries(
    {
        "title": st.none() | TITLES,
        "price": st.none() | st.sampled_from([0.5, 1.0, 2.0, 3.0]),
        "tags": st.none() | st.lists(st.sampled_from(["sale", "new", "old"]), max_size=2),
        "at": st.none() | st.sampled_from([1_893_456_000_000_000 + each for each in (-1, 0, 86_400_000_000)]),
        "parts": st.none()
        | st.lists(
            st.fixed_dictionaries({"name": st.sampled_from(["wheel", "car"]), "price": st.integers(0, 2)}), max_size=2
        ),
        "more": st.none() | st.just([("colour", "red")]),
        "body": st.sampled_from(
            [None, b"{", b"3", b'{"title": "fast cars", "price": 2}', b'{"title": ["bike", "car"], "tags": "new"}']
        ),
    }
)
STEPS = st.lists(
    st.tuples(st.lists(CHANGES, max_size=4), st.lists(ROWS, max_size=5), st.integers(0, 2)), min_size=1, max_size=6
)
ALL = pa.schema(
    [
        *COLUMNS, (IS_QUERY, pa.bool_()), (KEY, pa.binary()), (VALUE, pa.binary()), (PARTITION, pa.int32()),
        (OFFSET, pa.int64()), (SPREAD, pa.int64()),
    ]
)  # fmt: skip


def reading(**changed: Any) -> Reading:
    usual = {
        "rows": COLUMNS, "fields": FIELDS, "json": None, "mapping": "default", "highlights": True,
        "refused": side_output(), "from_topic": True,
    }  # fmt: skip
    return Reading(**{**usual, **changed})


def flat(found: Any, offset: int | None = None) -> list[dict[str, Any]]:
    """Hits of the plain class as a row has them."""
    return [
        {
            "query": hit.id,
            "query_version": hit.version,
            "query_tags": list(hit.tags),
            "query_owner": hit.owner,
            "query_score": hit.score,
            "query_highlights": [
                {name: getattr(each, name) for name in ("field", "value", "start", "end", "text")}
                for each in hit.highlights
            ],
            **({} if offset is None else {"queries_offset": offset}),
        }
        for hit in found
    ]


def documents(how: Reading, rows: list[dict[str, Any]]) -> list[Any]:
    """What each row is to the plain class; text where it cannot be read."""
    batch = pa.RecordBatch.from_pylist(rows, schema=COLUMNS)
    if how.json is None:
        return batch.select(list(how.fields)).to_pylist(maps_as_pydicts="lossy")
    found = list[Any]()
    for row in rows:
        try:
            found.append(None if row["body"] is None else json.loads(row["body"]))
        except ValueError:
            found.append("no JSON")
    return found


def expected(how: Reading, percolator: Percolator, rows: list[dict[str, Any]], offset: int | None) -> tuple[Any, Any]:
    """By the number of each row its hits, and the reason for which it was refused."""
    hits, refused = {}, {}
    for row, document in zip(rows, documents(how, rows), strict=True):
        if document is None:
            continue
        if document == "no JSON":
            refused[row["n"]] = "it is not JSON"
            continue
        try:
            found = percolator.percolate(document)
        except InvalidDocument as error:
            refused[row["n"]] = str(error)
            continue
        if found:
            hits[row["n"]] = flat(found, offset)
    return hits, refused


def split(out: list[dict[str, Any]]) -> tuple[Any, Any, list[Any]]:
    """What came out: hits and refusals by the number of each row, and the counts."""
    hits: dict[int, list[Any]] = {}
    for row in out:
        if row[HITS] is not None:
            assert 0 < len(row[HITS]) <= hits_of_a_part()
            hits.setdefault(row["n"], []).extend(row[HITS])
    refused = {row[ASIDE]["row"]["n"]: row[ASIDE]["reason"] for row in out if row[ASIDE] is not None}
    counted = [row[COUNTED] for row in out if row[COUNTED] is not None]
    assert all((row[HITS] is None) + (row[ASIDE] is None) + (row[COUNTED] is None) == 2 for row in out)
    return hits, refused, counted


def hits_of_a_part() -> int:
    return max(hits_module._MANY, hits_module._HIGHLIGHTED)


@contextmanager
def small_parts(many: int | None) -> Iterator[None]:
    """Parts of so many hits, which are usually of thousands."""
    kept = hits_module._MANY, hits_module._HIGHLIGHTED, hits_module._FIRST_TOGETHER
    if many is not None:
        hits_module._MANY = hits_module._HIGHLIGHTED = hits_module._FIRST_TOGETHER = many
    try:
        yield
    finally:
        hits_module._MANY, hits_module._HIGHLIGHTED, hits_module._FIRST_TOGETHER = kept


def held_by(how: Reading, percolator: Percolator, batch: pa.RecordBatch) -> list[tuple[int, dict[str, Any]]]:
    """What comes out, with the row that each is of."""
    parts = [*how.held(percolator, batch, None, None)]
    return [pair for part in parts for pair in zip(part.rows.tolist(), part.output.to_pylist(), strict=True)]


WAYS = st.sampled_from([reading(), reading(fields=(*FIELDS, "more")), reading(json="body", fields=("title",))])


@examples(60)
@given(STEPS, st.integers(1, 3), st.booleans(), WAYS, st.sampled_from([None, 3]), st.sampled_from([None, 1, 2]))
def test_queries_that_change_match_the_documents_behind_them(
    steps: list[Any], buckets: int, model: bool, how: Reading, call_rows: int | None, many: int | None
) -> None:
    spare, operators._SPARE = operators._SPARE, 3  # the log is made anew often
    try:
        with small_parts(many):
            check_changes(steps, buckets, model, how, call_rows)
    finally:
        operators._SPARE = spare


def check_changes(steps: list[Any], buckets: int, model: bool, how: Reading, call_rows: int | None) -> None:
    runner = MemoryRunner(
        PercolateDocuments(how, DEFAULT_POLICY),
        by=[SPREAD],
        schema=ALL,
        buckets=buckets,
        model=model,
        call_rows=call_rows,
    )
    catalog, offset, number = Catalog(), 100, 0
    offset_known = 0
    for changes, rows, event in steps:
        if event:
            standing.forget()  # another process
        if event == 2:
            runner.restart()
        told = []
        for key, value in changes:
            told.append({IS_QUERY: True, KEY: key, VALUE: value, PARTITION: 0, OFFSET: offset, SPREAD: 0})
            catalog.apply(offset, key, value)
            offset += 3
            offset_known = offset - 2
        numbered = [{**row, "n": number + at} for at, row in enumerate(rows)]
        number += len(rows)
        given_rows = [{**row, IS_QUERY: False, SPREAD: row["n"] * 7} for row in numbered]
        out = runner.batch([*told, *given_rows]).to_pylist()
        hits, refused, counted = split(out)
        assert (hits, refused) == expected(how, catalog.percolator, numbered, offset_known)
        assert sum(each["documents"] for each in counted) == len(rows)
        assert sum(each["refused"] for each in counted) == len(refused)
        assert sum(each["hits"] for each in counted) == sum(map(len, hits.values()))
        for each in counted[-1:]:
            said = json.loads(each["queries"])
            assert said["queries"] == len(catalog.percolator)
            assert said["refused"] == len(catalog.refused)
            assert set(said["reasons"]) == set(catalog.refused)
    heads = {row["token"] for _, row in runner.state(HEAD)}
    assert len(heads) <= 1, "all buckets have the same queries"
    size = len(catalog.percolator) + len(catalog.refused) + len(catalog.percolator.mappings)
    assert len(runner.state(LOG)) <= buckets * (2 * size + 3 + 4), "what says nothing any more goes"


@examples(200)
@given(st.lists(CHANGES, max_size=20))
def test_the_records_that_are_kept_say_what_all_say(changes: list[Any]) -> None:
    records = [Record(number, *change) for number, change in enumerate(changes)]
    whole, kept = Catalog(), Catalog()
    for record in records:
        whole.apply(*record)
    for record in latest(records):
        kept.apply(*record)
    assert list(kept.percolator) == list(whole.percolator)
    assert kept.percolator.mappings == whole.percolator.mappings
    assert set(kept.refused) == set(whole.refused)
    assert latest(latest(records)) == latest(records)


@examples(60)
@given(
    st.lists(st.sampled_from(TEXTS), min_size=1, max_size=8),
    st.lists(ROWS, max_size=8),
    st.sampled_from(MAPPINGS),
    WAYS,
    st.sampled_from([None, 1, 2, 3]),
)
def test_queries_that_stay_match_rows_of_any_batch(
    texts: list[str], rows: list[dict[str, Any]], mapping: Any, way: Reading, many: int | None
) -> None:
    how = reading(fields=way.fields, json=way.json, from_topic=False)
    percolator = Percolator({"default": read_mapping(mapping)})
    for at, text in enumerate(texts):
        percolator.add(f"q{at}", text, boost=1.5 if at % 2 else 1.0)
    numbered = [{**row, "n": at} for at, row in enumerate(rows)]
    batch = pa.RecordBatch.from_pylist(numbered, schema=COLUMNS)
    with small_parts(many):
        held = held_by(how, percolator, batch)
        hits, refused, counted = split([out for _, out in held])
    assert (hits, refused) == expected(how, percolator, numbered, None)
    assert [each["queries"] for each in counted] == [None]
    for row, out in held:
        assert out["n"] is None or out["n"] == row


@pytest.mark.parametrize("how", [reading(from_topic=False), reading(json="body", fields=("title",), from_topic=False)])
def test_rows_with_very_many_hits_come_out_in_parts_of_bounded_size(how: Reading) -> None:
    """Two hundred rows that match three thousand queries each: all at once they would be gigabytes, in millions."""
    percolator = Percolator()
    for number in range(3_000):
        percolator.add(f"q{number:04}", "title:bike")
    title = "bike " * 50
    row = {"n": 0, "title": title, "body": json.dumps({"title": title}).encode()}
    batch = pa.RecordBatch.from_pylist([row] * 200, schema=COLUMNS)
    parts = iter(how.held(percolator, batch, None, None))
    sizes = []
    for _ in range(10):
        part = next(parts)
        sizes.append(sum(len(hits) for hits in part.output.column(HITS).to_pylist() if hits is not None))
        assert part.output.nbytes < 64 << 20
    assert set(sizes) == {hits_module._HIGHLIGHTED}


def test_without_highlights_and_side_output_there_are_no_such_columns() -> None:
    how = reading(highlights=False, refused=drop(), from_topic=False)
    percolator = Percolator({"default": read_mapping(MAPPINGS[1])})
    percolator.add("a", "title:car")
    rows = [{"n": 1, "title": "car", "price": 2.0}, {"n": 2, "title": "car", "price": 0.5}]
    out = [row for _, row in held_by(how, percolator, pa.RecordBatch.from_pylist(rows, schema=COLUMNS))]
    assert [row["n"] for row in out if row[HITS]] == [1]
    assert "query_highlights" not in out[0][HITS][0]
    assert out[1][COUNTED] == {"documents": 2, "refused": 1, "hits": 1, "queries": None}
    assert all(row[ASIDE] is None for row in out)


def test_a_topic_with_several_partitions_is_refused() -> None:
    runner = MemoryRunner(PercolateDocuments(reading(), DEFAULT_POLICY), by=[SPREAD], schema=ALL)
    record = {IS_QUERY: True, KEY: b"a", VALUE: b"{}", PARTITION: 1, OFFSET: 0, SPREAD: 0}
    with pytest.raises(BadField, match="single partition"):
        runner.batch([record])
