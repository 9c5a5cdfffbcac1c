"""A Tantivy index kept in step: documents and the place in the log in one commit.

A row is a document: `row` holds its columns, each to be searched for as `row.title:coffee`, `_id` the key's text and
`_source` the row as JSON. `text_fields` are copied into `text`, which a query without a field's name searches. The
place is a document too, the only one with a `_place`: so it is committed with the others.

The folder is a link to its present generation, and a rebuild points it at the next one. Tantivy's own lock lets one
writer in at a time. `search` is for who wants no more than the rows that a query finds.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Final

from headrace import extras
from headrace.stores.derived import ChangeBatch, Place, RowChange, StoredRow, Values, complete_rows, key_text
from headrace.stores.errors import RowRefused, SinkRefused, SinkUnavailable
from headrace.stores.folders import Generations
from headrace.stores.values import encode_row

ID, SOURCE, ROW, TEXT, PLACE = "_id", "_source", "row", "text", "_place"
_HEAP_BYTES: Final = 64 * 1024 * 1024
_CHUNK_ROWS: Final = 2_000


@dataclass(eq=False)
class TantivySink:
    """Keeps one index in step with one topic."""

    name: str
    topic: str
    folders: Generations
    text_fields: Sequence[str]
    every_change: ClassVar[bool] = False
    _folder: Path = field(default=Path(), init=False)
    _index: Any = field(default=None, init=False)
    _writer: Any = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._tantivy = extras.load("tantivy")
        self._where = f"index {self.folders}"

    # --- keeping in step

    def open(self) -> Place | None:
        """Take the writer's lock."""
        self.close()
        with self._translated():
            self._folder = self.folders.ensure()
            self._index = self._tantivy.Index(_schema(self._tantivy), path=str(self._folder))
            self._writer = self._index.writer(heap_size=_HEAP_BYTES, num_threads=1)
            return self._stored_place()

    def apply(self, batch: ChangeBatch) -> None:
        with self._translated():
            self.folders.check_current(self._folder, self._where)
            partial = [change.key for change in batch.changes if change.partial]
            stored = {row.key: row.values for row in self._read_rows(partial)} if partial else {}
            changes = complete_rows(batch.changes, stored)
            writer = self._writer
            try:
                if batch.clears:
                    writer.delete_all_documents()
                for change in changes:
                    text = change.key_text
                    writer.delete_documents_by_term(ID, text)
                    if change.row is not None:
                        writer.add_document(self._document(text, change))
                writer.delete_documents_by_term(PLACE, PLACE)
                place = {PLACE: PLACE, SOURCE: batch.place.to_json().encode()}
                writer.add_document(self._tantivy.Document(**place))
                writer.commit()
            except BaseException:
                writer.rollback()
                raise

    def close(self) -> None:
        """Give the lock back."""
        writer, self._writer, self._index = self._writer, None, None
        if writer is not None:
            with self._translated():
                writer.wait_merging_threads()
            del writer

    def _document(self, text: str, change: RowChange) -> Any:
        row = change.row or {}
        document = self._tantivy.Document()
        document.add_text(ID, text)
        source = encode_row(row)
        document.add_bytes(SOURCE, source.encode())
        try:
            document.add_json(ROW, source)
        except ValueError as error:
            raise RowRefused(
                f"the index refuses the row: {error}", partition=change.partition, offset=change.offset
            ) from error
        for name in self.text_fields:
            if isinstance(value := row.get(name), str):
                document.add_text(TEXT, value)
        return document

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise SinkUnavailable(f"{self._where}: {error}") from error
        except UnicodeError as error:
            raise RowRefused("a text holds half of a surrogate pair, which is not a character") from error
        except ValueError as error:  # whatever Tantivy itself has to say
            if "LockBusy" in str(error) or "lock" in str(error).lower():
                raise SinkUnavailable(
                    f"{self._where} is being written by another instance: {self.name!r} waits for it to end",
                    what=f"the lock on {self.folders}",
                ) from error
            raise SinkRefused(f"{self._where}: {error}") from error

    # --- reading

    def _stored_place(self) -> Place | None:
        self._index.reload()
        searcher = self._index.searcher()
        query = self._tantivy.Query.term_query(self._index.schema, PLACE, PLACE)
        for _, address in searcher.search(query, 1).hits:
            return Place.from_json(bytes(searcher.doc(address)[SOURCE][0]))
        return None

    def _read_rows(self, keys: Sequence[Values]) -> list[StoredRow]:
        self._index.reload()
        searcher = self._index.searcher()
        rows = []
        for key in keys:
            query = self._tantivy.Query.term_query(self._index.schema, ID, key_text(key))
            for _, address in searcher.search(query, 1).hits:
                rows.append(StoredRow(key_text(key), json.loads(bytes(searcher.doc(address)[SOURCE][0]))))
        return rows

    # --- reading back

    def place(self) -> Place | None:
        return self._stored_place() if self._open_for_reading() else None

    def scan(self) -> Iterator[list[StoredRow]]:
        if not self._open_for_reading():
            return
        with self._translated():
            searcher = self._index.searcher()
            everything = self._tantivy.Query.all_query()
            # A searcher is a snapshot: the same documents in the same order, however often it is asked.
            for at in range(0, searcher.num_docs, _CHUNK_ROWS):
                hits = searcher.search(everything, _CHUNK_ROWS, offset=at, count=False).hits
                documents = [searcher.doc(address) for _, address in hits]
                yield [
                    StoredRow(document[ID][0], json.loads(bytes(document[SOURCE][0])))
                    for document in documents
                    if document[ID]
                ]

    def look_up(self, keys: Sequence[Values]) -> list[StoredRow]:
        return self._read_rows(keys) if self._open_for_reading() else []

    def comparable(self, key: Values, row: Values) -> StoredRow:
        return StoredRow(key_text(key), dict(row))

    def _open_for_reading(self) -> bool:
        with self._translated():
            folder = self.folders.current()
            if folder is None or not self._tantivy.Index.exists(str(folder)):
                return False
            self._index = self._tantivy.Index.open(str(folder))
            self._index.reload()
            return True

    # --- rebuilding

    def beside(self) -> "TantivySink":
        return replace(self, folders=self.folders.beside())

    def switch(self) -> None:
        with self._translated():
            self.folders.switch()


def _schema(tantivy: Any) -> Any:
    builder = tantivy.SchemaBuilder()
    for name in (ID, PLACE):
        builder.add_text_field(name, stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_bytes_field(SOURCE, stored=True, indexed=False)
    builder.add_json_field(ROW, stored=False)
    builder.add_text_field(TEXT, stored=False)
    return builder.build()


def search(path: str | Path, query: str, limit: int = 10) -> list[dict[str, Any]]:
    """The rows of an index that a query finds, the best first."""
    tantivy = extras.load("tantivy")
    index = tantivy.Index.open(str(Path(path).resolve()))
    index.reload()
    searcher = index.searcher()
    hits = searcher.search(index.parse_query(query, [TEXT, ROW]), limit).hits
    documents = [searcher.doc(address) for _, address in hits]
    return [json.loads(bytes(document[SOURCE][0])) for document in documents if document[ID]]


def tantivy(name: str, topic: str, path: str | Path, *, text_fields: Sequence[str] = ()) -> TantivySink:
    """A sink to a Tantivy index."""
    return TantivySink(name, topic, Generations(Path(path)), tuple(text_fields))
