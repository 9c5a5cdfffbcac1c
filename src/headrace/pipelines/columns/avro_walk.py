"""The walk over Avro records by a program made from their writer's schema. Compiled; arrays in, arrays out.

A step of a program is a row of four numbers: what to read, the leaf it is for (-1: nobody wants it), and two arguments.
Steps run one after the other; only a union jumps, and only forward, so that a record takes at most one pass.
"""

from headrace.jit import compiled
from headrace.pipelines.columns.json_grammar import utf8_ok
from headrace.pipelines.columns.walk import Bytes, Longs, varint_at

# NUMBER: lowest, highest. BLOB: 1 if it must be text. FIXED: its size. UNION: the branch of null, and where to jump
# then. PRESENT marks a record as there.
NUMBER, BOOLEAN, FLOAT, DOUBLE, BLOB, FIXED, UNION, PRESENT = range(8)
FINE, CUT_SHORT, OUT_OF_RANGE, NO_BOOLEAN, NO_TEXT, NO_BRANCH, LEFT_OVER = range(7)

REASONS = {
    CUT_SHORT: "the value is cut short in field {name!r}",
    OUT_OF_RANGE: "field {name!r} is a number outside its Avro type",
    NO_BOOLEAN: "field {name!r} is a boolean that is neither 0 nor 1",
    NO_TEXT: "field {name!r} is a string that is not valid UTF-8",
    NO_BRANCH: "field {name!r} is of a branch that its union does not have",
    LEFT_OVER: "bytes follow the record",
}


@compiled
def walk_avro(
    arena: Bytes,
    value_at: Longs,
    value_size: Longs,
    program: Longs,
    found: Bytes,
    numbers: Longs,
    at_of: Longs,
    size_of: Longs,
    fault: Bytes,
    where: Longs,
) -> int:
    """Run the program over every value that is not null; the number of rows with a fault."""
    faults = 0
    steps = program.shape[0]
    for row in range(value_at.shape[0]):
        if value_size[row] < 0:
            continue
        at = value_at[row]
        end = at + value_size[row]
        step = 0
        code = FINE
        while step < steps:
            kind, leaf, first = program[step, 0], program[step, 1], program[step, 2]
            if kind == NUMBER:
                number, behind = varint_at(arena, at, end)
                if behind < 0:
                    code = CUT_SHORT
                    break
                if number < first or number > program[step, 3]:
                    code = OUT_OF_RANGE
                    break
                at = behind
                if leaf >= 0:
                    numbers[leaf, row] = number
                    found[leaf, row] = 1
            elif kind in (BLOB, FIXED):
                size = first
                if kind == BLOB:
                    size, behind = varint_at(arena, at, end)
                    if behind < 0:
                        code = CUT_SHORT
                        break
                    at = behind
                if size < 0 or size > end - at:
                    code = CUT_SHORT
                    break
                if kind == BLOB and first == 1 and not utf8_ok(arena, at, at + size):
                    code = NO_TEXT
                    break
                if leaf >= 0:
                    at_of[leaf, row] = at
                    size_of[leaf, row] = size
                    found[leaf, row] = 1
                at += size
            elif kind in (DOUBLE, FLOAT):
                size = 8 if kind == DOUBLE else 4
                if size > end - at:
                    code = CUT_SHORT
                    break
                if leaf >= 0:
                    number = 0
                    for place in range(size):
                        number |= arena[at + place] << (8 * place)
                    numbers[leaf, row] = number
                    found[leaf, row] = 1
                at += size
            elif kind == UNION:
                branch, behind = varint_at(arena, at, end)
                if behind < 0:
                    code = CUT_SHORT
                    break
                if branch < 0 or branch > 1:
                    code = NO_BRANCH
                    break
                at = behind
                if branch == first:
                    step = program[step, 3]
                    continue
            elif kind == BOOLEAN:
                if at >= end:
                    code = CUT_SHORT
                    break
                if arena[at] > 1:
                    code = NO_BOOLEAN
                    break
                if leaf >= 0:
                    numbers[leaf, row] = arena[at]
                    found[leaf, row] = 1
                at += 1
            elif leaf >= 0:
                found[leaf, row] = 1
            step += 1
        if code == FINE and at != end:
            code = LEFT_OVER
        if code != FINE:
            faults += 1
            fault[row] = code
            where[row] = step
            for leaf in range(found.shape[0]):
                found[leaf, row] = 0
    return faults
