"""The loops that match: the facts of a row, the queries filed under them, their programs.

A row's facts are stamped with its serial number, so that nothing has to be cleared between rows, and "is it true of the
row" is a look at one place. Tokens of a field that are facts are chained in their order, for phrases. For each fact of
the row all that is filed under it is looked at: a further fact that a match needs, then the program if there is one.

What always holds: a pair of row and query comes out at most once; what comes out as YES matches, what as UNSURE may,
and whatever does not come out does not match.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.jit import compiled
from headrace.percolation.index.facts import find_fact
from headrace.percolation.index.places import place_key

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]
Flags = NDArray[np.bool_]

NO, YES, UNSURE = 0, 1, 2
FACT, PHRASE, RANGE, BOX, CIRCLE, CONSTANT, DOUBT, BOOLEAN = 0, 1, 2, 3, 4, 5, 6, 7
LOW_IS_INEXACT, HIGH_IS_INEXACT = 1, 2
HAS_PROGRAM, HAS_SIBLINGS, FLAG_BITS = 1, 2, 2
# Places in `counters`.
C_SERIAL, C_CANDIDATES, C_PROGRAMS, C_WIDTH = 0, 1, 2, 3
# A frame of a Boolean that is under way: its counts, what has come, where it ends.
F_MUST, F_SHOULD, F_ALL, F_NEEDED, F_END, F_DONE, F_HITS, F_MAYBE, F_UNSURE, F_WIDTH = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
_DEEPEST = 64
# Codes of scores: the last one has none, the one before is added up.
TALLIED, UNKNOWN_SCORE = 254, 255
_EARTH_METRES = 6371008.7714
LOWEST, HIGHEST = -(2**63), 2**63 - 1


class Batch(NamedTuple):
    """The rows of a batch as the loops see them; `…_starts[row]` is where those of a row begin."""

    rows: int
    # One line of `token_starts` for each column of tokens; words are -1 where a position is empty.
    token_fields: Longs
    token_starts: NDArray[np.int64]
    words: Ints
    positions: Ints
    patterns: Ints
    """By token: where in `expansions` the facts of patterns that it matches stand, -1 for none."""
    expansions: Ints
    number_starts: Longs
    number_fields: Ints
    number_ranks: Longs
    number_exact: Flags
    point_starts: Longs
    point_fields: Ints
    points: Floats
    fact_starts: Longs
    """Facts that are known already: fields that have a value."""
    facts: Ints


class Index(NamedTuple):
    """What the loops look up."""

    keys: Longs
    key_facts: Ints
    starts: Ints
    counts: Ints
    stamps: Ints
    firsts: Ints
    lasts: Ints
    entries: Ints
    levels: NDArray[np.uint64]
    """By field, the levels of blocks or cells under which something is filed, as bits."""
    programs: Ints
    program_starts: Ints
    query_stamps: Ints
    word_counts: Ints
    score_codes: Bytes
    scores: Floats


@compiled
def long_at(words: Ints, at: int) -> int:
    """An integer that was written as two."""
    return (np.int64(words[at]) << 32) | (np.int64(words[at + 1]) & np.int64(0xFFFFFFFF))


@compiled
def float_of(rank: int, scratch: Longs) -> float:
    """The number of a rank."""
    scratch[0] = rank if rank >= 0 else np.int64(-9223372036854775807 - 1) - rank
    return scratch.view(np.float64)[0]


@compiled
def run_phrase(
    words: Ints, at: int, serial: np.int32, stamps: Ints, firsts: Ints, positions: Ints, chain: Longs, cursors: Longs
) -> int:
    """Whether the words of a phrase stand close together in the row."""
    slop, repeats, count = words[at + 1], words[at + 2], words[at + 3]
    first = at + 4
    for each in range(count):
        if stamps[words[first + 2 * each]] != serial:
            return NO
    if count > len(cursors):
        return UNSURE
    if slop == 0:
        # The rarest word leads; the others are sought at the places that follow from each of its own.
        for each in range(1, count):
            cursors[each] = firsts[words[first + 2 * each]]
        place = np.int64(firsts[words[first]])
        while place >= 0:
            begin = positions[place] - words[first + 1]
            found = True
            for each in range(1, count):
                wanted = begin + words[first + 2 * each + 1]
                cursor = cursors[each]
                while cursor >= 0 and positions[cursor] < wanted:
                    cursor = chain[cursor]
                cursors[each] = cursor
                if cursor < 0:
                    return NO
                if positions[cursor] != wanted:
                    found = False
                    break
            if found:
                return YES
            place = chain[place]
        return NO
    # The place that lies furthest back moves on, until all lie within the slop.
    for each in range(count):
        cursors[each] = firsts[words[first + 2 * each]]
    while True:
        low, low_at, high = np.int64(1 << 40), 0, np.int64(-(1 << 40))
        for each in range(count):
            begin = np.int64(positions[cursors[each]] - words[first + 2 * each + 1])
            if begin < low:
                low, low_at = begin, each
            high = max(high, begin)
        if high - low <= slop:
            # One place may have been taken for two words that are the same.
            return UNSURE if repeats else YES
        cursors[low_at] = chain[cursors[low_at]]
        if cursors[low_at] < 0:
            return NO


@compiled
def run_range(words: Ints, at: int, row: int, starts: Longs, fields: Ints, ranks: Longs, exact: Flags) -> int:
    """Whether a number of the row lies in a range; one that no float holds lies between the two beside its rank."""
    field, flags = words[at + 1], words[at + 2]
    low, high = long_at(words, at + 3), long_at(words, at + 5)
    result = NO
    for each in range(starts[row], starts[row + 1]):
        if fields[each] != field:
            continue
        value = ranks[each]
        if exact[each]:
            if value < low or value > high:
                continue
            if not ((flags & LOW_IS_INEXACT and value == low) or (flags & HIGH_IS_INEXACT and value == high)):
                return YES
            result = UNSURE
        elif value + 1 >= low and value - 1 <= high:
            if (low == LOWEST or value - 1 > low) and (high == HIGHEST or value + 1 < high):
                return YES
            result = UNSURE
    return result


@compiled
def run_box(words: Ints, at: int, row: int, starts: Longs, fields: Ints, points: Floats, scratch: Longs) -> int:
    field, crosses = words[at + 1], words[at + 2]
    top, left = float_of(long_at(words, at + 3), scratch), float_of(long_at(words, at + 5), scratch)
    bottom, right = float_of(long_at(words, at + 7), scratch), float_of(long_at(words, at + 9), scratch)
    for each in range(starts[row], starts[row + 1]):
        latitude, longitude = points[each, 0], points[each, 1]
        if fields[each] != field or latitude > top or latitude < bottom:
            continue
        if crosses:
            if longitude >= left or longitude <= right:
                return YES
        elif left <= longitude <= right:
            return YES
    return NO


@compiled
def run_circle(words: Ints, at: int, row: int, starts: Longs, fields: Ints, points: Floats, scratch: Longs) -> int:
    field = words[at + 1]
    latitude = np.radians(float_of(long_at(words, at + 2), scratch))
    longitude = np.radians(float_of(long_at(words, at + 4), scratch))
    metres = float_of(long_at(words, at + 6), scratch)
    result = NO
    for each in range(starts[row], starts[row + 1]):
        if fields[each] != field:
            continue
        other, across = np.radians(points[each, 0]), np.radians(points[each, 1])
        half_up, half_across = np.sin((other - latitude) / 2), np.sin((across - longitude) / 2)
        chord = half_up * half_up + np.cos(latitude) * np.cos(other) * half_across * half_across
        distance = 2 * _EARTH_METRES * np.arcsin(np.sqrt(min(1.0, max(0.0, chord))))
        # Sines differ in their last digits from library to library, and near the antipode that is metres.
        rim = 1e-3 + 1e-9 * metres + (200.0 if chord > 0.999999 else 0.0)
        if distance <= metres - rim:
            return YES
        if distance <= metres + rim:
            result = UNSURE
    return result


@compiled
def run_program(
    at: int, row: int, serial: np.int32, words: Ints, stamps: Ints, firsts: Ints, positions: Ints, chain: Longs,
    number_starts: Longs, number_fields: Ints, number_ranks: Longs, number_exact: Flags,
    point_starts: Longs, point_fields: Ints, points: Floats, frames: Longs, cursors: Longs, scratch: Longs,
) -> int:  # fmt: skip
    """What a program says of a row."""
    depth = 0
    while True:
        operation = words[at]
        value = NO
        if operation == FACT:
            value = YES if stamps[words[at + 1]] == serial else NO
            at += 2
        elif operation == BOOLEAN:
            frames[depth, F_MUST] = words[at + 1]
            frames[depth, F_SHOULD] = words[at + 1] + words[at + 2]
            frames[depth, F_ALL] = words[at + 1] + words[at + 2] + words[at + 3]
            frames[depth, F_NEEDED] = words[at + 4]
            frames[depth, F_END] = at + words[at + 5]
            frames[depth, F_DONE] = frames[depth, F_HITS] = frames[depth, F_MAYBE] = frames[depth, F_UNSURE] = 0
            depth += 1
            at += 6
            continue
        elif operation == DOUBT:
            frames[depth, F_MUST] = -1
            frames[depth, F_END] = at + words[at + 1]
            depth += 1
            at += 2
            continue
        elif operation == PHRASE:
            value = run_phrase(words, at, serial, stamps, firsts, positions, chain, cursors)
            at += 4 + 2 * words[at + 3]
        elif operation == RANGE:
            value = run_range(words, at, row, number_starts, number_fields, number_ranks, number_exact)
            at += 7
        elif operation == CONSTANT:
            value = words[at + 1]
            at += 2
        elif operation == BOX:
            value = run_box(words, at, row, point_starts, point_fields, points, scratch)
            at += 11
        else:
            value = run_circle(words, at, row, point_starts, point_fields, points, scratch)
            at += 8
        # The value goes to what it is a branch of, and perhaps settles it.
        while depth > 0:
            top = depth - 1
            must = frames[top, F_MUST]
            if must < 0:
                value = NO if value == NO else UNSURE
                depth -= 1
                continue
            done = frames[top, F_DONE]
            settled = False
            if done < must:
                settled = value == NO
                if value == UNSURE:
                    frames[top, F_UNSURE] = 1
            elif done < frames[top, F_SHOULD]:
                if value == YES:
                    frames[top, F_HITS] += 1
                elif value == UNSURE:
                    frames[top, F_MAYBE] += 1
                left = frames[top, F_SHOULD] - done - 1
                settled = frames[top, F_HITS] + frames[top, F_MAYBE] + left < frames[top, F_NEEDED]
            else:
                settled = value == YES
                if value == UNSURE:
                    frames[top, F_UNSURE] = 1
            done += 1
            frames[top, F_DONE] = done
            if settled:
                value = NO
            elif done < frames[top, F_ALL]:
                # A disjunction that has enough, and is nobody's but its own, is done.
                if not (
                    done < frames[top, F_SHOULD]
                    and frames[top, F_SHOULD] == frames[top, F_ALL]
                    and frames[top, F_HITS] >= frames[top, F_NEEDED]
                    and done >= must
                ):
                    break
                value = UNSURE if frames[top, F_UNSURE] else YES
            elif frames[top, F_HITS] >= frames[top, F_NEEDED]:
                value = UNSURE if frames[top, F_UNSURE] else YES
            else:
                value = UNSURE
            at = frames[top, F_END]
            depth -= 1
        if depth == 0:
            return value


@compiled
def add_up(at: np.int64, serial: np.int32, words: Ints, stamps: Ints, scores: Floats) -> float:
    """A score that is added up: behind the program stand pairs of fact and code, a code for all, and how many pairs."""
    end = at + words[at]
    count = words[end - 1]
    total = scores[words[end - 2]]
    for each in range(end - 2 - 2 * count, end - 2, 2):
        if stamps[words[each]] == serial:
            total += scores[words[each + 1]]
    return total


@compiled
def stamp_values(row: int, serial: np.int32, index: Index, batch: Batch, true: Ints, count: int) -> int:
    """Stamp the facts of a row that are no tokens; how many facts are true then."""
    for each in range(batch.fact_starts[row], batch.fact_starts[row + 1]):
        fact = batch.facts[each]
        if index.stamps[fact] != serial:
            index.stamps[fact] = serial
            true[count] = fact
            count += 1
    for each in range(batch.number_starts[row], batch.number_starts[row + 1]):
        field = batch.number_fields[each]
        levels = index.levels[field]
        level = 0
        while levels != np.uint64(0):
            if levels & np.uint64(1):
                key = place_key(field, level, batch.number_ranks[each] >> level, 0)
                fact = find_fact(key, index.keys, index.key_facts)
                if fact >= 0 and index.stamps[fact] != serial:
                    index.stamps[fact] = serial
                    true[count] = fact
                    count += 1
            levels >>= np.uint64(1)
            level += 1
    for each in range(batch.point_starts[row], batch.point_starts[row + 1]):
        field = batch.point_fields[each]
        levels = index.levels[field]
        level = 0
        while levels != np.uint64(0):
            if levels & np.uint64(1):
                width = 180.0 / (1 << level)
                across = np.int64(np.floor((batch.points[each, 1] + 180.0) / width))
                up = np.int64(np.floor((batch.points[each, 0] + 90.0) / width))
                fact = find_fact(place_key(field, level, across, up), index.keys, index.key_facts)
                if fact >= 0 and index.stamps[fact] != serial:
                    index.stamps[fact] = serial
                    true[count] = fact
                    count += 1
            levels >>= np.uint64(1)
            level += 1
    return count


@compiled
def stamp_tokens(row: int, serial: np.int32, index: Index, batch: Batch, chain: Longs, true: Ints, count: int) -> int:
    """Stamp the facts of a row's tokens and chain those that are the same; how many facts are true then."""
    for column in range(len(batch.token_fields)):
        field = batch.token_fields[column] << 32
        for place in range(batch.token_starts[column, row], batch.token_starts[column, row + 1]):
            word = batch.words[place]
            if word < 0:
                continue
            index.word_counts[word] += 1
            fact = find_fact(field | word, index.keys, index.key_facts)
            if fact >= 0:
                chain[place] = -1
                if index.stamps[fact] != serial:
                    index.stamps[fact] = serial
                    index.firsts[fact] = place
                    true[count] = fact
                    count += 1
                else:
                    chain[index.lasts[fact]] = place
                index.lasts[fact] = place
            at = batch.patterns[place]
            if at >= 0:
                for each in range(at + 1, at + 1 + batch.expansions[at]):
                    fact = batch.expansions[each]
                    if index.stamps[fact] != serial:
                        index.stamps[fact] = serial
                        true[count] = fact
                        count += 1
    return count


@compiled
def match_rows(
    first: int, index: Index, batch: Batch, counters: Longs, rows: Ints, numbers: Ints, verdicts: Bytes,
    worths: Floats, true: Ints, chain: Longs,
) -> tuple[int, int]:  # fmt: skip
    """The pairs of rows from `first` on: up to which row they are there, and how many. One that does not fit waits."""
    frames = np.empty((_DEEPEST, F_WIDTH), np.int64)
    cursors = np.empty(1024, np.int64)
    scratch = np.empty(1, np.int64)
    # Arrays of their own: what is looked up through a tuple is counted as a reference each time.
    starts, counts, stamps, firsts, entries = index.starts, index.counts, index.stamps, index.firsts, index.entries
    programs, program_starts, query_stamps = index.programs, index.program_starts, index.query_stamps
    number_starts, number_fields = batch.number_starts, batch.number_fields
    number_ranks, number_exact = batch.number_ranks, batch.number_exact
    point_starts, point_fields, points = batch.point_starts, batch.point_fields, batch.points
    positions = batch.positions
    score_codes, scores = index.score_codes, index.scores
    found, candidates, programs_run = 0, 0, 0
    for row in range(first, batch.rows):
        counters[C_SERIAL] += 1
        serial = np.int32(counters[C_SERIAL])
        begin = found
        stamps[0] = serial
        true[0] = 0
        count = stamp_tokens(row, serial, index, batch, chain, true, 1)
        count = stamp_values(row, serial, index, batch, true, count)
        for each in range(count):
            fact = true[each]
            if found + counts[fact] > len(rows):
                counters[C_CANDIDATES] += candidates
                counters[C_PROGRAMS] += programs_run
                return row, begin
            candidates += counts[fact]
            at = np.int64(starts[fact])
            end = at + 2 * np.int64(counts[fact])
            while at < end:
                entry = entries[at]
                confirm = entries[at + 1]
                at += 2
                if confirm >= 0 and stamps[confirm] != serial:
                    continue
                number = entry >> FLAG_BITS
                if entry & HAS_SIBLINGS:
                    if query_stamps[number] == serial:
                        continue
                    query_stamps[number] = serial
                verdict = YES
                if entry & HAS_PROGRAM:
                    programs_run += 1
                    place = np.int64(program_starts[number])
                    verdict = run_program(
                        place + 2 + programs[place + 1], row, serial, programs, stamps, firsts, positions, chain,
                        number_starts, number_fields, number_ranks, number_exact,
                        point_starts, point_fields, points, frames, cursors, scratch,
                    )  # fmt: skip
                    if verdict == NO:
                        continue
                rows[found] = row
                numbers[found] = number
                verdicts[found] = verdict
                code = score_codes[number]
                if code == TALLIED:
                    worths[found] = add_up(np.int64(program_starts[number]), serial, programs, stamps, scores)
                else:
                    worths[found] = scores[code]
                found += 1
    counters[C_CANDIDATES] += candidates
    counters[C_PROGRAMS] += programs_run
    return batch.rows, found
