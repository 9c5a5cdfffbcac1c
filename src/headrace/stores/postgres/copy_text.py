"""Arrow batches as the text format of PostgreSQL's COPY, a column at a time: no value is touched by Python.

Text and not binary, because the table's own columns decide how a text is read: a string goes into a `uuid`, an `enum`
or a `json` column as well as into `text`. Every value that PostgreSQL prints it reads back, so nothing is lost.
"""

import pyarrow as pa
import pyarrow.compute as pc

_NULL = "\\N"


def copy_text(batch: pa.RecordBatch, prefix: str = "") -> pa.Buffer | bytes:
    """The rows as COPY reads them; `prefix` stands before each row (with its own tab)."""
    if batch.num_rows == 0:
        return b""
    parts = [_large(prefix)]
    for column in batch.columns:
        parts += [pc.fill_null(_escaped(_text(column)), _large(_NULL)), _large("\t")]
    parts[-1] = _large("\n")
    return _contents(_joined(*parts))


def _large(text: str | None) -> pa.Scalar:
    return pa.scalar(text, pa.large_string())


def _joined(*parts: pa.Array | pa.Scalar) -> pa.Array:
    """The parts of each row one after another; null if one of them is."""
    return pc.binary_join_element_wise(*parts, _large(""))


def _contents(column: pa.Array) -> pa.Buffer:
    """All values of a large string column, one after another, without a copy."""
    offsets = column.buffers()[1]
    positions = memoryview(offsets).cast("q")
    first, last = positions[column.offset], positions[column.offset + len(column)]
    return column.buffers()[2].slice(first, last - first)


def _text(column: pa.Array) -> pa.Array:
    """Each value as PostgreSQL would write it, not yet escaped."""
    kind = column.type
    if pa.types.is_large_string(kind):
        return column
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _hex(column)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _array(column)
    if pa.types.is_timestamp(kind):
        text = column.cast(pa.timestamp("us", kind.tz and "UTC")).cast(pa.timestamp("us")).cast(pa.large_string())
        return _joined(text, _large("+00")) if kind.tz else text
    if pa.types.is_decimal(kind):
        return column.cast(pa.string()).cast(pa.large_string())
    return column.cast(pa.large_string())


def _hex(column: pa.Array) -> pa.Array:
    """`\\x0aff`: the bytes of all values in one go, then cut at twice the offsets."""
    column = column.cast(pa.large_binary())
    positions = memoryview(column.buffers()[1]).cast("q")
    start, end = positions[column.offset], positions[column.offset + len(column)]
    data = column.buffers()[2]
    digits = bytes(data.slice(start, end - start)).hex().encode() if data is not None else b""
    cuts = pa.array(positions[column.offset : column.offset + len(column) + 1], pa.int64())
    cuts = pc.multiply(pc.subtract(cuts, start), 2)
    plain = pa.Array.from_buffers(pa.large_string(), len(column), [None, cuts.buffers()[1], pa.py_buffer(digits)])
    return pc.if_else(column.is_valid(), _joined(_large("\\x"), plain), _large(None))


def _array(column: pa.Array) -> pa.Array:
    """`{"a","b",NULL}`: the elements of all rows are quoted in one go, then joined row by row."""
    elements = _text(column.flatten())
    for special in ("\\", '"'):
        elements = pc.replace_substring(elements, special, "\\" + special)
    elements = pc.fill_null(_joined(_large('"'), elements, _large('"')), _large("NULL"))
    lengths = pc.fill_null(pc.list_value_length(column), 0).cast(pa.int64())
    ends = pc.cumulative_sum(lengths)
    cuts = pa.concat_arrays([pa.array([0], pa.int64()), ends])
    inner = pc.binary_join(pa.LargeListArray.from_arrays(cuts, elements), _large(","))
    return pc.if_else(column.is_valid(), _joined(_large("{"), inner, _large("}")), _large(None))


def _escaped(column: pa.Array) -> pa.Array:
    """What COPY would take for a separator or an escape, behind a backslash."""
    if not pc.any(pc.match_substring_regex(column, "[\\\\\t\n\r]")).as_py():
        return column
    for special, written in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")):
        column = pc.replace_substring(column, special, written)
    return column
