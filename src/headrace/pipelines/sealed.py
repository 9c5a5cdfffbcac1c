"""Columns sealed and opened in pipelines, an Arrow batch at a time.

    customers = open_columns(customers, ["name", "email"], keys="sqlite:///keys.db", master_key_file="master.key")

A sealed column is a text. Opened, it is again the text that was sealed; of another value its JSON; null for whoever was
forgotten. Each distinct value of a batch is opened once, and the keys that a batch needs are read together. What is
opened is plain from there on, in state, checkpoints and results: `headrace forget` reports such a pipeline, and it has
to be reset.

Each Python worker opens the key store by itself, so its address and the master key's file must be good where it runs.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from headrace.errors import PipelineError, nearest
from headrace.forgetting.keyring import FORGOTTEN, Keyring, open_keys
from headrace.forgetting.sealed import parse

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


@lru_cache(maxsize=8)
def _keys_of(url: str, master_key_file: str | None) -> Keyring:
    """One for each worker, which serves many batches."""
    return open_keys(url, master_key_file=master_key_file)


def open_columns(
    frame: "DataFrame", columns: Sequence[str], *, keys: str, master_key_file: str | None = None
) -> "DataFrame":
    """The frame with these columns opened; of a forgotten subject they are null."""
    _check(frame, columns)

    def convert(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        keyring = _keys_of(keys, master_key_file)
        for batch in batches:
            yield _replaced(batch, {name: open_array(keyring, batch.column(name), name) for name in columns})

    return frame.mapInArrow(convert, frame.schema)


def seal_columns(
    frame: "DataFrame", columns: Sequence[str], *, subject: str, keys: str, master_key_file: str | None = None
) -> "DataFrame":
    """The frame with these columns, which are texts, sealed with the key of whom the column `subject` names.

    A row of somebody who was forgotten gets empty sealed values, and does not hold up the others.
    """
    _check(frame, columns)
    if subject not in frame.columns:
        raise PipelineError(f"there is no column {subject!r}: {nearest(subject, frame.columns)}")
    if subject in columns:
        raise PipelineError(f"the subject's own column {subject!r} cannot be sealed: use an id")

    def convert(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        keyring = _keys_of(keys, master_key_file)
        for batch in batches:
            whose = batch.column(subject)
            yield _replaced(batch, {name: seal_array(keyring, batch.column(name), whose, name) for name in columns})

    return frame.mapInArrow(convert, frame.schema)


def _check(frame: "DataFrame", columns: Sequence[str]) -> None:
    if isinstance(columns, str):
        raise PipelineError(f"columns={columns!r} is one text: give a list, as in [{columns!r}]")
    types = {field.name: field.dataType.typeName() for field in frame.schema.fields}
    for name in columns:
        if name not in types:
            raise PipelineError(f"there is no column {name!r}: {nearest(name, types)}")
        if types[name] != "string":
            raise PipelineError(f"column {name!r} is {types[name]}, and only texts are sealed and opened: cast it")


def _replaced(batch: "pa.RecordBatch", new: dict[str, Any]) -> "pa.RecordBatch":
    import pyarrow as pa

    arrays = [new.get(name, column) for name, column in zip(batch.schema.names, batch.columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def open_array(keyring: Keyring, column: "pa.Array", field: str) -> "pa.Array":
    """A column of sealed texts opened, each distinct one once; what is not sealed stays as it is."""
    import pyarrow as pa

    encoded = column.dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    keyring.prepare({sealed.key_id for text in texts if (sealed := parse(text)) is not None})
    opened = []
    for text in texts:
        found = keyring.open_value(text, field=field)
        is_plain = isinstance(found, str) or found is None
        opened.append(None if found is FORGOTTEN else found if is_plain else json.dumps(found, ensure_ascii=False))
    return pa.array(opened, pa.string()).take(encoded.indices)


def seal_array(keyring: Keyring, column: "pa.Array", subjects: "pa.Array", field: str) -> "pa.Array":
    """A column of texts sealed, each for the subject beside it; null stays null."""
    import pyarrow as pa

    sealed = list[str | None]()
    for value, subject in zip(column.to_pylist(), subjects.to_pylist(), strict=True):
        if value is None:
            sealed.append(None)
            continue
        if subject is None:
            raise PipelineError(f"a row has a value in {field!r}, and nobody whose it is: filter such rows out")
        sealed.append(keyring.seal_late(value, subject=str(subject), field=field))
    return pa.array(sealed, pa.string())
