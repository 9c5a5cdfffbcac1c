"""Columns of text as words: cut by a compiled loop, numbered in one call.

The loop knows the part of UAX #29 that concerns ASCII, which is most of most texts; a value with any other letter, and
one with a word too long to be one, is left to its analyzer, which is the measure of the loop too. What a word becomes
(lower case, stemmed, left out) is asked once for each word and kept.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.jit import compiled
from headrace.percolation.analysis import LONGEST_WORD, Analyzer
from headrace.percolation.index.vocabulary import Vocabulary

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Bytes = NDArray[np.uint8]

_OTHER, _LETTER, _DIGIT, _JOINER, _IN_BOTH, _IN_WORDS, _IN_NUMBERS = 0, 1, 2, 3, 4, 5, 6
_MOST_RAW: Final = 1 << 20


def _classes() -> Bytes:
    classes = np.zeros(256, np.uint8)
    for letters, kind in (("_", _JOINER), (".'", _IN_BOTH), (":", _IN_WORDS), (",;", _IN_NUMBERS)):
        classes[[ord(each) for each in letters]] = kind
    classes[ord("0") : ord("9") + 1] = _DIGIT
    classes[ord("a") : ord("z") + 1] = classes[ord("A") : ord("Z") + 1] = _LETTER
    return classes


_CLASSES: Final = _classes()
_LOWER: Final = np.arange(256, dtype=np.uint8)
_LOWER[ord("A") : ord("Z") + 1] += 32


class Tokens(NamedTuple):
    """The words of a column's rows; `starts[row]` is where those of a row begin. A word is -1 where one is left out."""

    starts: Longs
    words: Ints
    positions: Ints


@compiled
def cut_words(
    data: Bytes, offsets: Longs, classes: Bytes, longest: int, begins: Longs, ends: Longs, starts: Longs,
    is_left: NDArray[np.bool_],
) -> int:  # fmt: skip
    """The spans of the words of each value; an empty span is a word of nothing but `_`. How many there are."""
    count = 0
    for row in range(len(offsets) - 1):
        starts[row] = count
        at, end = offsets[row], offsets[row + 1]
        while at < end:
            if data[at] >= 128:
                is_left[row] = True
                break
            kind = classes[data[at]]
            if kind == _OTHER or kind > _JOINER:
                at += 1
                continue
            begin = at
            is_blank = True
            while at < end:
                kind = classes[data[at]]
                if _OTHER < kind <= _JOINER:
                    if kind != _JOINER:
                        is_blank = False
                    at += 1
                    continue
                if kind < _IN_BOTH or at + 1 >= end:
                    break
                before, after = classes[data[at - 1]], classes[data[at + 1]]
                joins_words = kind != _IN_NUMBERS and before == _LETTER and after == _LETTER
                joins_numbers = kind != _IN_WORDS and before == _DIGIT and after == _DIGIT
                if not (joins_words or joins_numbers):
                    break
                at += 1
            if at - begin > longest:
                is_left[row] = True
                break
            begins[count] = begin
            ends[count] = begin if is_blank else at
            count += 1
        if is_left[row]:
            count = starts[row]
    starts[len(offsets) - 1] = count
    return count


class Tokenizer:
    """Words for the columns that one analyzer reads."""

    def __init__(self, analyzer: Analyzer, vocabulary: Vocabulary) -> None:
        self._analyzer = analyzer
        self._vocabulary = vocabulary
        self._is_plain = analyzer.lower and not analyzer.stop and analyzer.stem is None
        self._raw = Vocabulary()
        self._forms = np.empty(0, np.int32)

    def tokenize(self, column: Any) -> Tokens:
        """The words of a column of strings, null as no value."""
        if self._analyzer.tokenizer == "whole":
            return self._whole(column)
        data, offsets = _buffers(column)
        if self._analyzer.tokenizer != "words":
            return self._each(data, offsets, np.ones(len(column), np.bool_), None)
        most = int(offsets[-1] - offsets[0]) // 2 + len(column) + 1
        begins, ends = np.empty(most, np.int64), np.empty(most, np.int64)
        starts, is_left = np.empty(len(column) + 1, np.int64), np.zeros(len(column), np.bool_)
        count = int(cut_words(data, offsets, _CLASSES, LONGEST_WORD, begins, ends, starts, is_left))
        words = self._words(data, begins[:count], ends[:count])
        positions = (np.arange(count) - np.repeat(starts[:-1], np.diff(starts))).astype(np.int32)
        tokens = Tokens(starts, words, positions)
        return self._each(data, offsets, is_left, tokens) if is_left.any() else tokens

    def _words(self, data: Bytes, begins: Longs, ends: Longs) -> Ints:
        """What the words at these spans become."""
        if self._is_plain:
            words = self._vocabulary.intern_spans(_LOWER[data], begins, ends)
            words[begins == ends] = -1
            return words
        if len(self._raw) > _MOST_RAW:
            self._raw, self._forms = Vocabulary(), np.empty(0, np.int32)
        raw = self._raw.intern_spans(data, begins, ends)
        new = range(len(self._forms), len(self._raw))
        if new:
            self._forms = np.append(self._forms, np.array([self._form(self._raw.text(each)) for each in new], np.int32))
        return self._forms[raw]

    def _form(self, raw: str) -> int:
        terms = self._analyzer.terms(raw) if raw else []
        return self._vocabulary.intern(terms[0]) if terms else -1

    def _whole(self, column: Any) -> Tokens:
        """One token a value, asked once for each value that is different."""
        encoded = column.dictionary_encode()
        words = np.array(
            [self._vocabulary.intern(self._analyzer.terms(each)[0]) for each in encoded.dictionary.to_pylist()] or [-1],
            np.int32,
        )
        is_there = np.asarray(column.is_valid())
        codes = np.asarray(encoded.indices.fill_null(0))[is_there]
        starts = np.concatenate(([0], np.cumsum(is_there))).astype(np.int64)
        return Tokens(starts, words[codes], np.zeros(len(codes), np.int32))

    def _each(self, data: Bytes, offsets: Longs, is_left: NDArray[np.bool_], done: Tokens | None) -> Tokens:
        """With those values that are left, by the analyzer."""
        words: list[Ints] = []
        positions: list[Ints] = []
        counts = np.zeros(len(is_left), np.int64) if done is None else np.diff(done.starts)
        begin = 0
        for row in np.flatnonzero(is_left).tolist():
            if done is not None:
                words.append(done.words[begin : int(done.starts[row])])
                positions.append(done.positions[begin : int(done.starts[row])])
                begin = int(done.starts[row])
            text = data[offsets[row] : offsets[row + 1]].tobytes().decode("utf-8", "replace")
            tokens = self._analyzer.tokens(text)
            words.append(np.array([self._vocabulary.intern(each.text) for each in tokens], np.int32))
            positions.append(np.array([each.position for each in tokens], np.int32))
            counts[row] = len(tokens)
        if done is not None:
            words.append(done.words[begin:])
            positions.append(done.positions[begin:])
        starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        none = np.empty(0, np.int32)
        return Tokens(starts, np.concatenate([none, *words]), np.concatenate([none, *positions]))


def _buffers(column: Any) -> tuple[Bytes, Longs]:
    """The letters of a column of strings, and where each value begins and ends in them; null is empty."""
    column = pc.fill_null(column, "") if column.null_count else column
    column = column.cast(pa.large_string())
    _, offsets, data = column.buffers()
    letters = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    ends = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    # A slice has the letters of the whole column.
    return letters[ends[0] : ends[-1]], ends - ends[0]
