"""The compiled walk over packets: lines of a spelling that is known, whose values are simple decimals, are added up.

A spelling is what stands before a line's values and what stands behind them: name, type, rate and tags as they were
written. What it says was read once, exactly; since then it is looked up by its bytes. Everything else, a new spelling,
a number with an exponent or of many digits, an event, is left to the exact reader, in its place between the other
lines: the walk stops before such a line and goes on behind it.

A decimal of at most 2^53 without its point, and at most 22 places behind it, is the quotient of two numbers that are
exact in 64 bits, and so is rounded once, as an exact reader does.
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.jit import compiled

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Hashes = NDArray[np.uint64]
Doubles = NDArray[np.float64]


class Spellings(NamedTuple):
    """Slots of a hash table, and for each spelling a row of `rows`, its weight, and its bytes in `text`."""

    slots: Ints
    rows: Longs
    weights: Doubles
    text: Bytes


class Interval(NamedTuple):
    """What is added up; a row of `sums` and of `places` for each series."""

    sums: Doubles
    places: Longs
    pool: Doubles  # samples, of each series in one piece
    marks: Hashes  # members of sets, as hashes, in a hash table
    owners: Ints  # whose they are


# Of a spelling: its hash, where its bytes are, how many stand before the values and how many behind, whose it is.
HASH, TEXT, BEFORE, BEHIND, NUMBER, KIND = range(6)
REFUSED: Final = -1  # as a number: there was no room for the series
# Of a series' sums; the last is a counter's value or a gauge's, each on its own.
COUNT, WEIGHT, TOTAL, SQUARES, LOW, HIGH, VALUE, WIDTH = range(8)
# Of its places: its piece of the pool, how large it is, how much is in it or how many members it has, a set's level.
START, ROOM, KEPT, LEVEL = range(4)
# How far the walk is, and what it counts.
PACKET, AT, LINES, REFUSALS, POOL_TOP, MARKS, MOST, RANDOM = range(8)
STATE: Final = 8
# Why it stopped.
DONE, LEFT, POOL_FULL, MARKS_FULL = range(4)

COUNTER, GAUGE, SET = 0, 1, 5
FEW: Final = 8
_PRIME: Final = np.uint64(0x100000001B3)
_OFFSET: Final = np.uint64(0xCBF29CE484222325)
_MIX_1: Final = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2: Final = np.uint64(0x94D049BB133111EB)
_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)
_S27, _S30, _S31 = np.uint64(27), np.uint64(30), np.uint64(31)
_ONE, _NONE = np.uint64(1), np.uint64(0)
_POWERS: Final = np.array([float(10**places) for places in range(23)])
_MOST_EXACT: Final = 2**53
_COLON, _BAR, _LINE, _POINT, _MINUS, _PLUS, _ZERO = 58, 124, 10, 46, 45, 43, 48


@compiled
def mixed(value: Any) -> Any:
    value = (value ^ (value >> _S30)) * _MIX_1
    value = (value ^ (value >> _S27)) * _MIX_2
    return value ^ (value >> _S31)


@compiled
def hash_bytes(data: Bytes, at: int, end: int, seed: Any) -> Any:
    value = seed ^ _OFFSET
    for place in range(at, end):
        value = (value ^ np.uint64(data[place])) * _PRIME
    value = mixed(value)
    return _ONE if value == _NONE else value


@compiled
def hash_spelling(before: Bytes, behind: Bytes, seed: Any) -> int:
    value = seed ^ _OFFSET
    for byte in before:
        value = (value ^ np.uint64(byte)) * _PRIME
    for byte in behind:
        value = (value ^ np.uint64(byte)) * _PRIME
    return np.int64(mixed(value))


@compiled
def file_spellings(spellings: Spellings, first: int, end: int) -> None:
    """Let these rows be found."""
    mask = len(spellings.slots) - 1
    for row in range(first, end):
        slot = spellings.rows[row, HASH] & mask
        while spellings.slots[slot] >= 0:
            slot = (slot + 1) & mask
        spellings.slots[slot] = row


@compiled
def find_spelling(
    spellings: Spellings, data: Bytes, hashed: Any, before: int, before_end: int, behind: int, behind_end: int
) -> int:
    mask = len(spellings.slots) - 1
    slot = hashed & mask
    while True:
        row = spellings.slots[slot]
        if row < 0:
            return -1
        if (
            spellings.rows[row, HASH] == hashed
            and spellings.rows[row, BEFORE] == before_end - before
            and spellings.rows[row, BEHIND] == behind_end - behind
        ):
            text = spellings.rows[row, TEXT]
            place = before
            while place < before_end and spellings.text[text] == data[place]:
                place += 1
                text += 1
            if place == before_end:
                place = behind
                while place < behind_end and spellings.text[text] == data[place]:
                    place += 1
                    text += 1
                if place == behind_end:
                    return row
        slot = (slot + 1) & mask


@compiled
def decimal(data: Bytes, at: int, end: int) -> tuple[bool, float]:
    """A simple decimal; what is not one is left."""
    is_negative = False
    if at < end and (data[at] == _MINUS or data[at] == _PLUS):
        is_negative = data[at] == _MINUS
        at += 1
    if end - at > 24 or at >= end:
        return False, 0.0
    whole = np.int64(0)
    point = -1
    for place in range(at, end):
        byte = data[place]
        if byte == _POINT and point < 0:
            point = place
            continue
        digit = np.int64(byte) - _ZERO
        if digit < 0 or digit > 9 or whole > _MOST_EXACT:
            return False, 0.0
        whole = np.int64(whole * 10 + digit)
    places = 0 if point < 0 else end - point - 1
    if whole > _MOST_EXACT or places > 22 or (point >= 0 and end - at == 1):
        return False, 0.0
    value = np.float64(whole) / _POWERS[places]
    return True, (-value if is_negative else value)


@compiled
def add_sample(interval: Interval, state: Longs, number: int, value: float, weight: float) -> bool:
    """False, and nothing changed, if there is no room in the pool."""
    sums, places, pool = interval.sums, interval.places, interval.pool
    kept = places[number, KEPT]
    most = state[MOST]
    if kept == places[number, ROOM] and kept < most:
        room = min(max(FEW, 2 * kept), most)
        start = state[POOL_TOP]
        if start + room > len(pool):
            return False
        old = places[number, START]
        for place in range(kept):
            pool[start + place] = pool[old + place]
        places[number, START] = start
        places[number, ROOM] = room
        state[POOL_TOP] = start + room
    if sums[number, COUNT] == 0:
        sums[number, LOW] = value
        sums[number, HIGH] = value
    sums[number, COUNT] += 1
    sums[number, WEIGHT] += weight
    sums[number, TOTAL] += value
    sums[number, SQUARES] += value * value
    sums[number, LOW] = min(sums[number, LOW], value)
    sums[number, HIGH] = max(sums[number, HIGH], value)
    if kept < most:
        pool[places[number, START] + kept] = value
        places[number, KEPT] = kept + 1
    else:
        state[RANDOM] += 1
        chance = mixed(np.uint64(state[RANDOM]) * _SPREAD)
        chosen = np.int64(chance % np.uint64(sums[number, COUNT]))
        if chosen < kept:
            pool[places[number, START] + chosen] = value
    return True


@compiled
def add_member(interval: Interval, state: Longs, number: int, hashed: Any, most: int) -> bool:
    """False, and nothing changed, if there is no room for one more: in all, or in this set."""
    places, marks = interval.places, interval.marks
    level = places[number, LEVEL]
    if level == 0 or hashed & ((_ONE << np.uint64(level)) - _ONE) == _NONE:
        mask = np.uint64(len(marks) - 1)
        slot = mixed(hashed ^ (np.uint64(number) * _SPREAD)) & mask
        while marks[slot] != _NONE:
            if marks[slot] == hashed and interval.owners[slot] == number:
                break
            slot = (slot + _ONE) & mask
        if marks[slot] == _NONE:
            if places[number, KEPT] >= most or 2 * state[MARKS] >= len(marks):
                return False
            marks[slot] = hashed
            interval.owners[slot] = number
            places[number, KEPT] += 1
            state[MARKS] += 1
    interval.sums[number, COUNT] += 1
    return True


@compiled
def walk(
    data: Bytes,
    starts: Longs,
    sizes: Longs,
    spellings: Spellings,
    interval: Interval,
    gauges: Doubles,
    state: Longs,
    seed: Any,
    most_bytes: int,
    most_members: int,
    gauge_deltas: bool,
) -> int:
    """Go on through packets until all are read, or what comes next is for somebody else."""
    sums = interval.sums
    while state[PACKET] < len(starts):
        packet = state[PACKET]
        end = starts[packet] + sizes[packet]
        at = state[AT]
        while at < end:
            state[AT] = at
            # The name, up to the first colon.
            hashed = seed ^ _OFFSET
            place = at
            while place < end:
                byte = data[place]
                if byte == _COLON or byte == _LINE or byte == _BAR:  # noqa: SIM109 - a tuple is slower
                    break
                hashed = (hashed ^ np.uint64(byte)) * _PRIME
                place += 1
            if place < end and place == at and data[place] == _LINE:
                at = place + 1
                continue
            if place >= end or data[place] != _COLON:
                return LEFT
            colon = place
            # The values, up to the first bar.
            several = False
            place += 1
            while place < end and data[place] != _BAR and data[place] != _LINE:
                several = several or data[place] == _COLON
                place += 1
            if place >= end or data[place] != _BAR:
                return LEFT
            bar = place
            # The rest of the line.
            while place < end and data[place] != _LINE:
                hashed = (hashed ^ np.uint64(data[place])) * _PRIME
                place += 1
            if place - at > most_bytes:
                return LEFT
            row = find_spelling(spellings, data, np.int64(mixed(hashed)), at, colon, bar, place)
            if row < 0 or bar == colon + 1:
                return LEFT
            number = spellings.rows[row, NUMBER]
            kind = spellings.rows[row, KIND]
            weight = spellings.weights[row]
            if kind == SET:
                if number < 0:
                    state[REFUSALS] += 1
                elif not add_member(interval, state, number, hash_bytes(data, colon + 1, bar, seed), most_members):
                    return MARKS_FULL
            elif not several:
                is_simple, value = decimal(data, colon + 1, bar)
                if not is_simple or (kind == 2 and value < 0):
                    return LEFT
                if number < 0:
                    state[REFUSALS] += 1
                elif kind == COUNTER:
                    sums[number, VALUE] += value * weight
                    sums[number, COUNT] += 1
                elif kind == GAUGE:
                    byte = data[colon + 1]
                    if gauge_deltas and (byte == _MINUS or byte == _PLUS):  # noqa: SIM109
                        gauges[number] += value
                    else:
                        gauges[number] = value
                    sums[number, COUNT] += 1
                elif not add_sample(interval, state, number, value, weight):
                    return POOL_FULL
            else:
                code = add_several(data, colon + 1, bar, interval, gauges, state, number, kind, weight, gauge_deltas)
                if code != DONE:
                    return code
            state[LINES] += 1
            at = place + 1
        state[PACKET] = packet + 1
        if packet + 1 < len(starts):
            state[AT] = starts[packet + 1]
    return DONE


@compiled
def add_several(
    data: Bytes,
    at: int,
    end: int,
    interval: Interval,
    gauges: Doubles,
    state: Longs,
    number: int,
    kind: int,
    weight: float,
    gauge_deltas: bool,
) -> int:
    """All the values of a line, or none of them."""
    sums, places = interval.sums, interval.places
    count = 0
    begin = at
    while begin <= end:
        stop = begin
        while stop < end and data[stop] != _COLON:
            stop += 1
        is_simple, value = decimal(data, begin, stop)
        if not is_simple or (kind == 2 and value < 0):
            return LEFT
        count += 1
        begin = stop + 1
    if number < 0:
        state[REFUSALS] += 1
        return DONE
    if kind > GAUGE:
        # Room for all of them before the first.
        kept = places[number, KEPT]
        wanted = min(kept + count, state[MOST])
        if state[POOL_TOP] + 4 * wanted + FEW > len(interval.pool):
            return POOL_FULL
    begin = at
    while begin <= end:
        stop = begin
        while stop < end and data[stop] != _COLON:
            stop += 1
        _, value = decimal(data, begin, stop)
        if kind == COUNTER:
            sums[number, VALUE] += value * weight
            sums[number, COUNT] += 1
        elif kind == GAUGE:
            if gauge_deltas and (data[begin] == _MINUS or data[begin] == _PLUS):
                gauges[number] += value
            else:
                gauges[number] = value
            sums[number, COUNT] += 1
        else:
            add_sample(interval, state, number, value, weight)
        begin = stop + 1
    return DONE


# --- making room


@compiled
def move_marks(old: Interval, new: Interval, state: Longs) -> None:
    """The members whose hashes fit their sets' levels, into a table that is empty."""
    for number in range(len(old.places)):
        if old.places[number, ROOM] == 0:  # it has no samples, so what is counted are members
            old.places[number, KEPT] = 0
    state[MARKS] = 0
    mask = np.uint64(len(new.marks) - 1)
    for place in range(len(old.marks)):
        hashed = old.marks[place]
        if hashed == _NONE:
            continue
        number = old.owners[place]
        if hashed & ((_ONE << np.uint64(old.places[number, LEVEL])) - _ONE) != _NONE:
            continue
        slot = mixed(hashed ^ (np.uint64(number) * _SPREAD)) & mask
        while new.marks[slot] != _NONE:
            slot = (slot + _ONE) & mask
        new.marks[slot] = hashed
        new.owners[slot] = number
        old.places[number, KEPT] += 1
        state[MARKS] += 1


@compiled
def move_samples(interval: Interval, pool: Doubles, state: Longs) -> None:
    """The samples of each series, at most so many and chosen by chance, into another pool, one behind the other."""
    places, old = interval.places, interval.pool
    most = state[MOST]
    top = 0
    for number in range(len(places)):
        if places[number, ROOM] == 0:
            continue
        start, kept = places[number, START], places[number, KEPT]
        if kept > most:
            for place in range(most):
                state[RANDOM] += 1
                chance = mixed(np.uint64(state[RANDOM]) * _SPREAD)
                other = place + np.int64(chance % np.uint64(kept - place))
                old[start + place], old[start + other] = old[start + other], old[start + place]
            kept = most
        for place in range(kept):
            pool[top + place] = old[start + place]
        places[number, START] = top
        places[number, ROOM] = kept
        places[number, KEPT] = kept
        top += kept
    state[POOL_TOP] = top


# --- the end of an interval


@compiled
def timer_rows(
    interval: Interval, numbers: Longs, seconds: float, shares: Doubles, ends: Doubles, out: Doubles
) -> None:
    """A row of what `timing.timer_facts` says: five a percentile (NaN for none), the nine of the whole, buckets."""
    longest = 0
    for number in numbers:
        longest = max(longest, interval.places[number, KEPT])
    sums = np.empty(longest)
    squares = np.empty(longest)
    for index in range(len(numbers)):
        number = numbers[index]
        start, kept = interval.places[number, START], interval.places[number, KEPT]
        ordered = np.sort(interval.pool[start : start + kept])
        seen = interval.sums[number, COUNT]
        scale = seen / kept
        sums[0], squares[0] = ordered[0], ordered[0] * ordered[0]
        for place in range(1, kept):
            sums[place] = ordered[place] + sums[place - 1]
            squares[place] = ordered[place] * ordered[place] + squares[place - 1]
        column = 0
        for share in shares:
            inside = 1 if kept == 1 else np.int64(np.floor(abs(share) / 100 * kept + 0.5))
            if inside == 0:
                out[index, column : column + 5] = np.nan
            else:
                if share > 0 or kept == 1:
                    bound, total, square = ordered[inside - 1], sums[inside - 1], squares[inside - 1]
                else:
                    outside = kept - inside
                    bound, total, square = ordered[outside], sums[kept - 1], squares[kept - 1]
                    if outside:
                        total -= sums[outside - 1]
                        square -= squares[outside - 1]
                out[index, column] = inside * scale
                out[index, column + 1] = total / inside
                out[index, column + 2] = bound
                out[index, column + 3] = total * scale
                out[index, column + 4] = square * scale
            column += 5
        total, square = sums[kept - 1], squares[kept - 1]
        if seen != kept:
            total, square = interval.sums[number, TOTAL], interval.sums[number, SQUARES]
        mean = total / seen
        if seen == kept:
            differences = 0.0
            for place in range(kept):
                differences += (ordered[place] - mean) * (ordered[place] - mean)
            std = np.sqrt(differences / kept)
        else:
            std = np.sqrt(max(square / seen - mean * mean, 0.0))
        middle = kept // 2
        weight = interval.sums[number, WEIGHT]
        out[index, column] = std
        out[index, column + 1] = interval.sums[number, HIGH]
        out[index, column + 2] = interval.sums[number, LOW]
        out[index, column + 3] = weight
        out[index, column + 4] = weight / seconds
        out[index, column + 5] = total
        out[index, column + 6] = square
        out[index, column + 7] = mean
        out[index, column + 8] = ordered[middle] if kept % 2 else (ordered[middle - 1] + ordered[middle]) / 2
        column += 9
        place = 0
        for bucket in range(len(ends)):
            before = place
            while place < kept and (ends[bucket] == np.inf or ordered[place] < ends[bucket]):
                place += 1
            out[index, column + bucket] = (place - before) * scale
