"""What is compiled before the first batch is what the first batch calls, whatever buffers its bytes are in."""

import pkgutil
from collections.abc import Callable
from importlib import import_module

import numpy as np
import pyarrow as pa
import pytest
from numba.core.dispatcher import Dispatcher

from headrace.pipelines import columns
from headrace.pipelines.columns.encode import Stamp, encode, outgoing, partitions_by_key
from headrace.pipelines.columns.json import JsonDecoder
from headrace.pipelines.columns.records import columns_of
from headrace.pipelines.columns.warm import warm
from headrace.records import Codec, Record, build_batch, header_at

ORDERS = pa.schema([("order", pa.int64()), ("customer", pa.string()), ("cents", pa.int64())])
RECORDS = [Record(0, 0, b"c7", b'{"order": 1, "customer": "c7", "cents": 250}')]


def compiled() -> dict[str, int]:
    """How many kinds of arguments each loop is compiled for."""
    modules = [import_module(f"{columns.__name__}.{found.name}") for found in pkgutil.iter_modules(columns.__path__)]
    loops = [loop for module in modules for loop in vars(module).values() if isinstance(loop, Dispatcher)]
    return {f"{loop.py_func.__module__}.{loop.py_func.__name__}": len(loop.signatures) for loop in loops}


def through_a_stream(table: pa.Table) -> pa.Table:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


@pytest.mark.parametrize("buffer", [bytes, bytearray])
@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_reading_compiles_nothing_more(buffer: Callable[[bytes], bytes], batches: int, codec: Codec) -> None:
    warm()
    before = compiled()
    batch = memoryview(buffer(build_batch(RECORDS, codec=codec)))
    records = columns_of([(header_at(batch), batch)] * batches)
    assert JsonDecoder(ORDERS).decode(records)
    assert compiled() == before


@pytest.mark.parametrize("arrived", [lambda table: table, through_a_stream])
@pytest.mark.parametrize("keys", [[b"k", b"l"], [None, b"l"], [None, None]])
def test_writing_compiles_nothing_more(arrived: Callable[[pa.Table], pa.Table], keys: list[bytes | None]) -> None:
    warm()
    before = compiled()
    table = arrived(pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(["v", "w"])})).combine_chunks()
    (key,), (value,) = table["key"].chunks, table["value"].chunks
    out = outgoing(2, values=value, keys=key, headers=None, timestamps=np.zeros(2, np.int64))
    rows = np.arange(2)
    partitions_by_key(out, rows, 3)
    assert encode(out, rows, Stamp(), Codec.NONE)
    assert compiled() == before
