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
from pathlib import Path
from typing import Any, Final

from headrace import extras
from headrace.stores.derived import ChangeBatch, Place, RowChange, StoredRow, Values, completed, key_text
from headrace.stores.errors import RowRefused, SinkRefused, SinkUnavailable, TargetReplaced
from headrace.stores.folders import Generations

ID, SOURCE, ROW, TEXT, PLACE = "_id", "_source", "row", "text", "_place"
_HEAP_BYTES: Final = 64 * 1024 * 1024
_CHUNK_ROWS: Final = 2_000


class TantivySink:
    """Keeps one index in step with one topic."""

    every_change = False

    def __init__(
        self, name: str, topic: str, path: Path, text_fields: Sequence[str], folder: Path | None = None
    ) -> None:
        """With `folder`, a generation that is being built."""
        self._name = name
        self._topic = topic
        self._path = path
        self._text_fields = tuple(text_fields)
        self._built = folder
        self._tantivy = extras.load("tantivy")
        self._folder = Path()
        self._index: Any = None
        self._writer: Any = None

    # --- keeping in step

    def open(self) -> Place | None:
        """Take the writer's lock."""
        self.close()
        with self._translated():
            self._folder = self._built or Generations(self._path).ensure()
            self._index = self._tantivy.Index(_schema(self._tantivy), path=str(self._folder))
            self._writer = self._index.writer(heap_size=_HEAP_BYTES, num_threads=1)
            return self._stored_place()

    def apply(self, batch: ChangeBatch) -> None:
        """One commit."""
        with self._translated():
            if self._built is None and self._folder != Generations(self._path).current():
                raise TargetReplaced(f"index {self._path} was replaced by a rebuilt one")
            partial = [change.key for change in batch.changes if change.partial]
            changes = completed(batch.changes, {row.key: row.values for row in self._found(partial)} if partial else {})
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
        source = _compact(row)
        document.add_bytes(SOURCE, source.encode())
        try:
            document.add_json(ROW, source)
        except ValueError as error:
            raise RowRefused(
                f"the index refuses the row: {error}", partition=change.partition, offset=change.offset
            ) from error
        for name in self._text_fields:
            if isinstance(value := row.get(name), str):
                document.add_text(TEXT, value)
        return document

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise SinkUnavailable(f"index {self._path}: {error}") from error
        except UnicodeError as error:
            raise RowRefused("a text holds half of a surrogate pair, which is not a character") from error
        except ValueError as error:  # whatever Tantivy itself has to say
            if "LockBusy" in str(error) or "lock" in str(error).lower():
                raise SinkUnavailable(
                    f"index {self._path} is being written by another instance: {self._name!r} waits for it to end",
                    what=f"the lock on {self._path}",
                ) from error
            raise SinkRefused(f"index {self._path}: {error}") from error

    # --- reading

    def _stored_place(self) -> Place | None:
        self._index.reload()
        searcher = self._index.searcher()
        query = self._tantivy.Query.term_query(self._index.schema, PLACE, PLACE)
        for _, address in searcher.search(query, 1).hits:
            return Place.from_json(bytes(searcher.doc(address)[SOURCE][0]))
        return None

    def _found(self, keys: Sequence[Values]) -> list[StoredRow]:
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
        """Where the index is now."""
        return self._stored_place() if self._open_for_reading() else None

    def scan(self) -> Iterator[list[StoredRow]]:
        """Every row."""
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
        """The rows of these keys."""
        return self._found(keys) if self._open_for_reading() else []

    def comparable(self, key: Values, row: Values) -> StoredRow:
        """A row of the log as the index would hold it."""
        return StoredRow(key_text(key), dict(row))

    def _open_for_reading(self) -> bool:
        with self._translated():
            folder = self._built or Generations(self._path).current()
            if folder is None or not self._tantivy.Index.exists(str(folder)):
                return False
            self._index = self._tantivy.Index.open(str(folder))
            self._index.reload()
            return True

    # --- rebuilding

    def beside(self) -> "TantivySink":
        """The same sink for the next generation."""
        folder = Generations(self._path).prepare()
        return TantivySink(self._name, self._topic, self._path, self._text_fields, folder)

    def switch(self) -> None:
        """The link points at the next generation."""
        with self._translated():
            Generations(self._path).switch()


def _schema(tantivy: Any) -> Any:
    builder = tantivy.SchemaBuilder()
    for name in (ID, PLACE):
        builder.add_text_field(name, stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_bytes_field(SOURCE, stored=True, indexed=False)
    builder.add_json_field(ROW, stored=False)
    builder.add_text_field(TEXT, stored=False)
    return builder.build()


_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


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
    return TantivySink(name, topic, Path(path), text_fields)
