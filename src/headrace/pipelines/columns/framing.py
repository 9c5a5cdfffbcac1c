"""Confluent's framing of a value: a zero byte, the schema's id as an int32, then the value itself. Compiled.

Protobuf puts the message's place in its file behind the id: a count and that many indexes, zig-zag varints, with a
lone zero standing for the first message.
"""

from headrace.jit import compiled
from headrace.pipelines.columns.walk import Bytes, Longs, varint_at

# In the place of an id, which is never negative.
NULL, TOO_SHORT, NO_MAGIC, BAD_INDEXES, OTHER_MESSAGE = -1, -2, -3, -4, -5

REASONS = {
    TOO_SHORT: "the value is too short for Confluent's framing, which takes five bytes",
    NO_MAGIC: "the value does not begin with a zero byte, so it is not in Confluent's framing",
    BAD_INDEXES: "the message's place in its file is broken",
    OTHER_MESSAGE: "the value is another message of its file",
}


@compiled
def split_frames(
    arena: Bytes, value_at: Longs, value_size: Longs, ids: Longs, body_at: Longs, body_size: Longs
) -> None:
    """Each value's schema id (or why there is none, below 0), and where what follows the id is; null stays null."""
    for row in range(value_at.shape[0]):
        at, size = value_at[row], value_size[row]
        body_at[row] = at
        body_size[row] = 0 if size >= 0 else -1
        if size < 0:
            ids[row] = NULL
        elif size < 5:
            ids[row] = TOO_SHORT
        elif arena[at] != 0 or arena[at + 1] >= 0x80:
            ids[row] = NO_MAGIC
        else:
            number = 0
            for step in range(1, 5):
                number = number * 256 + arena[at + step]
            ids[row] = number
            body_at[row] = at + 5
            body_size[row] = size - 5


@compiled
def strip_indexes(arena: Bytes, ids: Longs, body_at: Longs, body_size: Longs, path: Longs) -> None:
    """Move each body behind its message indexes, which must be `path`; an id says where they are not."""
    for row in range(ids.shape[0]):
        if ids[row] < 0:
            continue
        end = body_at[row] + body_size[row]
        count, at = varint_at(arena, body_at[row], end)
        if at < 0 or count < 0 or count > end - at:
            ids[row] = BAD_INDEXES
            continue
        same = count == path.shape[0] or (count == 0 and path.shape[0] == 1 and path[0] == 0)
        for step in range(count):
            index, at = varint_at(arena, at, end)
            if at < 0 or index < 0:
                ids[row] = BAD_INDEXES
                break
            same = same and index == path[step]
        if ids[row] >= 0:
            body_at[row] = at
            body_size[row] = end - at
            if not same:
                ids[row] = OTHER_MESSAGE
