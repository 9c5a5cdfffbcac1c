"""The values of rows as lanes: what conditions read, filled for all rows of a call before the automaton sees them.

What always holds: the places of texts are those among all texts of the call and of its constants; they keep the order
of the texts where something asks for it, and else only whether two are equal.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.cep.assembling import Assembler, Lane
from headrace.cep.kinds import Kind, Type, numbers_of
from headrace.cep.loops.layout import N_WIDTH, Flags, Longs, Look

NO_NODES: Final = np.empty((0, N_WIDTH), np.int64)


def fill(assembler: Assembler, columns: Sequence[pa.Array], count: int) -> tuple[Look, pa.Array | None]:
    """What code looks at, with a column for each lane; and the texts that their places mean."""
    values = np.zeros((count, len(columns)), np.int64)
    known = np.zeros((count, len(columns)), np.bool_)
    types = list(assembler.lanes.values())
    constants = np.zeros(max(1, len(assembler.constants)), np.int64)
    for at, (found, column) in enumerate(zip(types, columns, strict=True)):
        if found.kind is not Kind.TEXT:
            values[:, at], known[:, at] = numbers_of(column, found)
    texts = None
    if any(found.kind is Kind.TEXT for found in (*types, *(one for one, _ in assembler.constants))):
        texts = _fill_texts(assembler, columns, types, values, known, constants)
    for at, (found, value) in enumerate(assembler.constants):
        if found.kind is Kind.DOUBLE:
            constants[at : at + 1].view(np.float64)[0] = value
        elif found.kind is not Kind.TEXT:
            constants[at] = value
    sets = np.zeros((max(1, len(assembler.sets)), max(1, len(assembler.variables))), np.bool_)
    for names, at in assembler.sets.items():
        for number, name in enumerate(assembler.variables):
            sets[at, number] = names is None or name in names
    code = np.array(assembler.code, np.int64).reshape(len(assembler.code), 5)
    longest = max(1, len(code))
    look = Look(
        code, constants, constants.view(np.float64), sets, values, values.view(np.float64), known,
        np.zeros(longest, np.int64), np.zeros(longest, np.float64), np.zeros(longest, np.bool_),
    )  # fmt: skip
    return look, texts


def _fill_texts(
    assembler: Assembler, columns: Sequence[pa.Array], types: Sequence[Type], values: Longs, known: Flags, fixed: Longs
) -> pa.Array:
    places = [at for at, found in enumerate(types) if found.kind is Kind.TEXT]
    constants = [at for at, (found, _) in enumerate(assembler.constants) if found.kind is Kind.TEXT]
    given = pa.array([assembler.constants[at][1].encode() for at in constants], pa.large_binary())
    parts = [columns[at].cast(types[at].arrow).cast(pa.large_binary()) for at in places]
    encoded = pa.concat_arrays([*parts, given]).dictionary_encode()
    texts, indices = encoded.dictionary, encoded.indices
    ranks = np.arange(len(texts))
    if assembler.orders_texts:
        order = pc.sort_indices(texts).to_numpy()
        ranks[order] = np.arange(len(texts))
        texts = texts.take(pa.array(order))
    flags = indices.is_valid().to_numpy(zero_copy_only=False)
    numbers = indices.fill_null(0).to_numpy() if len(texts) else np.zeros(len(indices), np.int64)
    found = ranks[numbers] if len(texts) else numbers
    count = len(values)
    for number, at in enumerate(places):
        values[:, at] = found[number * count : (number + 1) * count]
        known[:, at] = flags[number * count : (number + 1) * count]
    fixed[constants] = found[len(places) * count :]
    return texts


def lagged(column: pa.Array, tail: pa.Array, row_ends: Longs, tail_ends: Longs, back: int) -> pa.Array:
    """A column's values `back` rows earlier in the partition: of the rows of this call, or else of the kept ones."""
    starts = np.concatenate([[0], row_ends[:-1]]) if len(row_ends) else row_ends
    counts = row_ends - starts
    position = np.arange(len(column)) - np.repeat(starts, counts)
    ends = np.repeat(tail_ends, counts)
    lengths = np.repeat(np.diff(tail_ends, prepend=0), counts)
    short = back - position  # how far into the kept rows
    source = np.where(short > 0, ends - short, len(tail) + np.arange(len(column)) - back)
    missing = short > lengths
    return pa.concat_arrays([tail, column]).take(pa.array(np.where(missing, 0, source), mask=missing))


def last_rows(row_ends: Longs, tail_ends: Longs, most: int) -> tuple[Longs, Longs]:
    """The last rows of each key, as places in the kept ones and then those of the call; and where each key's end."""
    new = np.diff(row_ends, prepend=0)
    old = np.diff(tail_ends, prepend=0)
    taken_new = np.minimum(new, most)
    taken_old = np.minimum(old, most - taken_new)
    total = taken_new + taken_old
    ends = np.cumsum(total)
    position = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - total, total)
    from_old = np.repeat(taken_old, total)
    old_at = np.repeat(tail_ends - taken_old, total) + position
    held = int(tail_ends[-1]) if len(tail_ends) else 0
    new_at = np.repeat(held + row_ends - taken_new, total) + position - from_old
    return np.where(position < from_old, old_at, new_at), ends


def names_of(lanes: Sequence[Lane]) -> list[str]:
    return [f"v{number}" for number in range(len(lanes))]
