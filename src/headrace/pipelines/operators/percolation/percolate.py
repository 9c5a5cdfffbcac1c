"""`percolate`: rows as documents that flow past stored queries."""

import json as jsons
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from headrace.percolation.errors import InvalidStoredQuery
from headrace.percolation.language import DEFAULT_POLICY, Policy
from headrace.percolation.mapping import DYNAMIC, read_mapping
from headrace.percolation.mapping import Mapping as FieldMapping
from headrace.percolation.stored import StoredQuery
from headrace.pipelines.errors import BadOption
from headrace.pipelines.keyed.apply import by_places
from headrace.pipelines.observed import PERCOLATED
from headrace.pipelines.operators.errors import BadField, BadWindow, as_names, require
from headrace.pipelines.operators.frames import Transform, arrow_schema, check_events, over_keys
from headrace.pipelines.operators.percolation.hits import CALL_ROWS, COUNTED, HITS, Reading
from headrace.pipelines.operators.percolation.operator import (
    IS_QUERY,
    KEY,
    OFFSET,
    PARTITION,
    SPREAD,
    VALUE,
    PercolateDocuments,
)
from headrace.pipelines.operators.percolation.standing import Fixed
from headrace.pipelines.operators.stragglers import ASIDE, Stragglers, drop, next_number
from headrace.pipelines.operators.time_marks import TimeMark, time_marks

_RECORD: Final = ("key", "value", "partition", "offset")
_COORDINATES: Final = ("topic", "partition", "offset")


@dataclass(frozen=True)
class QueriesOfTopic:
    """The records of a topic of queries, for `percolate`."""

    records: DataFrame


Queries = Mapping[str, str | StoredQuery] | Iterable[StoredQuery] | QueriesOfTopic


def queries_from(records: DataFrame) -> QueriesOfTopic:
    """Queries that are added, changed, paused and removed while documents flow: the records of a topic, read raw.

    It is the compacted topic that `headrace search` writes, of one partition: a record's key is the query's id, its
    value JSON, `{"query": "title:bike", "owner": "ann", "tags": ["sport"]}`; a tombstone removes it. A key
    `mapping:NAME` has a mapping. Any Kafka client can write there as well.
    """
    require(_RECORD, records.columns, "queries_from")
    return QueriesOfTopic(records)


def percolate(
    queries: Queries,
    *,
    fields: str | Sequence[str] | None = None,
    json: str | None = None,
    mapping: str | FieldMapping | Mapping[str, Any] | None = None,
    highlights: bool = True,
    refused: Stragglers | None = None,
    policy: Policy | None = None,
    buckets: int | None = None,
) -> Transform:
    """Rows as documents, held against stored queries: a row for each pair of a document and a query that it matches.

    A document's fields are the columns `fields`, by default all but those that begin with `_`: text, numbers, times,
    booleans, arrays, structs and maps. With `json="value"` the document is the JSON in that column instead. `mapping`
    says what fields mean, as an object, or for queries from a topic by its name there; without it every value is what
    it looks like.

    Behind the row's own columns, and so its topic, partition and offset where it has them, a result has `query`, the
    query's id; `query_version`, `query_tags`, `query_owner`; `query_score`; and `query_highlights`, the words for which
    it matched: `field`, `value` (the number of the value in the field), `start`, `end` and `text`. Without
    `highlights`, which cost most, there is no such column. Event time is carried on: windows and joins behind it go by
    the row's own.

    `queries` are the queries themselves, by their ids or as `StoredQuery`: one that cannot be read is refused at once.
    No state is kept, and the frame need not stream. With `queries_from(…)` they come from a topic, and change while
    documents flow. What is read in a micro-batch holds for all documents of it; queries are kept with the state, and a
    query of Spark that goes on has them. Each result has `queries_offset`, too: up to which offset of their topic
    queries were known to it. One that cannot be read, or costs more than `policy` allows, does not stand, which the
    query's progress says (`headrace.percolated`: `queries`), and stops nothing.

    A row that is no document (it does not fit the mapping, or is not JSON) is counted, and with `refused` as
    `side_output()` handed on: `late_rows` has it with the reason. A null in the column of JSON is no document either,
    and is passed over. The language, mappings and scores are those of `headrace.percolation`.
    """
    choice = refused or drop()
    if choice.corrects:
        raise BadWindow("a row that is no document corrects nothing: write refused=drop() or refused=side_output()")
    if fields is not None and json is not None:
        raise BadOption("percolate takes a document from fields or from json: name one of them")
    names = None if fields is None else as_names(fields)
    if isinstance(queries, QueriesOfTopic):
        if mapping is not None and not isinstance(mapping, str):
            raise BadOption(
                "percolate: mappings of queries_from(…) are in the topic: write the name of one, or leave mapping out"
            )
        return lambda frame: _from_topic(
            _Documents.of(frame, names, json, mapping or "default", highlights, choice, from_topic=True),
            queries.records,
            policy or DEFAULT_POLICY,
            buckets,
        )
    if buckets is not None:
        raise BadOption("percolate keeps no state for queries that stay as they are: leave buckets out")
    fixed = Fixed.of(_mapping_of(mapping), _stored(queries), policy or DEFAULT_POLICY)
    return lambda frame: _as_they_are(
        _Documents.of(frame, names, json, "default", highlights, choice, from_topic=False), fixed
    )


def _mapping_of(given: str | FieldMapping | Mapping[str, Any] | None) -> FieldMapping:
    if isinstance(given, str):
        raise BadOption(f"percolate: mapping={given!r} names one in a topic of queries: give the mapping itself here")
    if given is None or isinstance(given, FieldMapping):
        return given or DYNAMIC
    return read_mapping(jsons.loads(jsons.dumps(given)))


def _stored(queries: Mapping[str, str | StoredQuery] | Iterable[StoredQuery]) -> list[StoredQuery]:
    if isinstance(queries, Mapping):
        found = [
            given if isinstance(given, StoredQuery) else StoredQuery(name, given) for name, given in queries.items()
        ]
        wrong = next((name for name, each in zip(queries, found, strict=True) if each.id != name), None)
        if wrong is not None:
            raise InvalidStoredQuery(f"percolate: the query under {wrong!r} has another id: give both the same")
    else:
        found = list(queries)
    if not found:
        raise BadOption("percolate has no query: write percolate({'bikes': 'title:bike'})")
    seen = set[str]()
    for each in found:
        if not isinstance(each, StoredQuery):
            raise BadOption(f"percolate: a query is a StoredQuery, or text by its id in a dict, not {each!r}")
        if each.id in seen:
            raise InvalidStoredQuery(f"percolate: query {each.id!r} is there twice: leave one out")
        seen.add(each.id)
    return found


@dataclass(frozen=True)
class _Documents:
    """The rows, how they are documents, and what carries their time."""

    frame: DataFrame
    reading: Reading
    marks: tuple[TimeMark, ...]

    @classmethod
    def of(
        cls,
        frame: DataFrame,
        fields: Sequence[str] | None,
        json: str | None,
        mapping: str,
        highlights: bool,
        choice: Stragglers,
        *,
        from_topic: bool,
    ) -> "_Documents":
        check_events(frame, "percolate")
        if json is not None:
            require([json], frame.columns, "json in percolate")
            kind = frame.schema[json].dataType.simpleString()
            if kind not in ("string", "binary"):
                raise BadField(f"percolate: json={json!r} is {kind}, and JSON is a string or binary: name its column")
        chosen = [name for name in frame.columns if not name.startswith("_")] if fields is None else fields
        require(chosen, frame.columns, "fields in percolate")
        if not chosen and json is None:
            raise BadField("percolate: the documents have no field: name columns with fields=[…]")
        reading = Reading(
            arrow_schema(frame), tuple(dict.fromkeys(chosen)), json, mapping, highlights, choice, from_topic
        )
        taken = {field.name for field in reading.hit} | {HITS, ASIDE, COUNTED}
        for name in frame.columns:
            if name.lower() in taken:
                raise BadField(f"percolate: the rows have a column {name!r}, as results have: rename it")
        return cls(frame, reading, tuple(time_marks(frame)))

    def emitted(self, found: DataFrame) -> DataFrame:
        """A row of each hit, and with its time; what was counted is in the query's progress."""
        said = fn.col(COUNTED)
        totals = (fn.coalesce(fn.sum(said[name]), fn.lit(0)).alias(name) for name in ("documents", "refused", "hits"))
        counted = found.observe(
            f"{PERCOLATED}.{next_number()}", *totals, fn.collect_set(said["queries"]).alias("queries")
        ).where(f"{COUNTED} IS NULL")
        columns = [fn.col(f"`{name}`") for name in self.frame.columns]
        hit = fn.col(HITS)
        parts = [hit[field.name].alias(field.name) for field in self.reading.hit]
        if self.reading.refused.hands_on:
            apart = counted.select(*columns, ASIDE, fn.explode_outer(HITS).alias(HITS)).select(*columns, *parts, ASIDE)
        else:
            apart = counted.select(*columns, fn.explode(HITS).alias(HITS)).select(*columns, *parts)
        return reduce(lambda frame, mark: mark.put(frame), self.marks, apart)


def _as_they_are(documents: _Documents, fixed: Fixed) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    reading = documents.reading
    output = from_arrow_schema(reading.output)
    return documents.emitted(by_places(documents.frame).mapInArrow(_holding(reading, fixed), output))


def _holding(reading: Reading, fixed: Fixed) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def hold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            # Spark names its session's time zone in each timestamp.
            typed = pa.RecordBatch.from_arrays(
                [
                    column if column.type.equals(kind) else column.cast(kind)
                    for column, kind in zip(batch.columns, reading.rows.types, strict=True)
                ],
                schema=reading.rows,
            )
            for at in range(0, typed.num_rows, CALL_ROWS):
                for held in reading.held(fixed.percolator(), typed.slice(at, CALL_ROWS), None, None):
                    yield held.output

    return hold


def _from_topic(documents: _Documents, records: DataFrame, policy: Policy, buckets: int | None) -> DataFrame:
    frame, reading = documents.frame, documents.reading
    if frame.isStreaming != records.isStreaming:
        raise BadField(
            "percolate: documents and queries_from(…) have to be read in one way: both with readStream, or both with "
            "read"
        )
    told = records.select(
        fn.lit(True).alias(IS_QUERY),
        fn.col("key").cast("binary").alias(KEY),
        fn.col("value").cast("binary").alias(VALUE),
        fn.col("partition").cast("int").alias(PARTITION),
        fn.col("offset").cast("bigint").alias(OFFSET),
        fn.lit(0).cast("bigint").alias(SPREAD),
    )
    rows = frame.withColumns({IS_QUERY: fn.lit(False), SPREAD: _spread(frame)})
    operator = PercolateDocuments(reading, policy)
    both = rows.unionByName(told, allowMissingColumns=True)
    return documents.emitted(over_keys(both, [SPREAD], lambda _: operator, buckets))


def _spread(frame: DataFrame) -> Column:
    """A number by which documents go to buckets: the same for a row whenever it is read."""
    names = {name.lower() for name in frame.columns}
    coordinates = next(
        (
            [f"{start}{name}" for name in _COORDINATES[1:]]
            for start in ("_", "")
            if {f"{start}{name}" for name in _COORDINATES[1:]} <= names
        ),
        None,
    )
    # What has no hash (a map) is left out.
    plain = [name for name in frame.columns if "map<" not in frame.schema[name].dataType.simpleString()]
    chosen = coordinates or plain
    return fn.xxhash64(*(fn.col(f"`{name}`") for name in chosen)) if chosen else fn.lit(0).cast("bigint")
