"""Analyzers: what becomes of a text before it is compared. A query's words go the same way as a document's.

    tokenizer   words (Unicode's word boundaries, UAX #29), whitespace, or whole (a keyword: the value is one token)
    lower       lower case
    stop        words left out; the next word keeps its position, so phrases keep the gap
    stem        the Snowball stemmer of a language: `running` and `runs` become `run`
    fold        marks and letters as people type them: `é` is `e`, `ß` is `ss`; after stemming, which needs the marks

What always holds: a token's offsets are those of the text as it was given, whatever was folded or stemmed; `terms` has
the texts that `tokens` has, in the same order; a text without a letter beyond ASCII never needs the slower pattern, and
both patterns agree on it.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

from headrace.errors import nearest
from headrace.extras import load
from headrace.percolation.errors import InvalidMapping

# As in Lucene: a longer run of letters is no word that anybody looks for, and is cut.
LONGEST_WORD: Final = 255

# ASCII's part of UAX #29: a mark within a word holds it together between two letters or between two digits.
_ASCII_WORDS: Final = re.compile(
    r"_*[A-Za-z0-9]\w*(?:(?:(?<=[A-Za-z])[.':](?=[A-Za-z])|(?<=[0-9])[.',;](?=[0-9]))\w+)*", re.ASCII
)
_HALF: Final = re.compile("[\ud800-\udfff]")
_ODD: Final = re.compile("[\u0130\u0307\ud800-\udfff]")
_WHITESPACE: Final = re.compile(r"\S+")


class Token(NamedTuple):
    """A word as it is compared, its position among the words, and the characters of the text that it was made of."""

    text: str
    position: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Analyzer:
    """See the module; the default is `standard`: words in lower case, folded."""

    tokenizer: str = "words"
    lower: bool = True
    stop: frozenset[str] = frozenset()
    stem: str | None = None
    fold: bool = True

    def tokens(self, text: str) -> list[Token]:
        """The tokens of a text in their order, each with its place."""
        if self.tokenizer == "whole":
            return [Token(self.normal(text), 0, 0, len(text))]
        spans = [piece for match in _pattern(self.tokenizer, text).finditer(text) for piece in _pieces(*match.span())]
        words = self._finish([text[start:end] for start, end in spans])
        return [
            Token(word, position, start, end)
            for position, (word, (start, end)) in enumerate(zip(words, spans, strict=True))
            if word
        ]

    def terms(self, text: str) -> list[str]:
        """The texts of the tokens alone, which is faster."""
        if self.tokenizer == "whole":
            return [self.normal(text)]
        words: list[str] = _pattern(self.tokenizer, text).findall(text)
        if len(text) > LONGEST_WORD and max(map(len, words), default=0) > LONGEST_WORD:
            words = [word[a:b] for word in words for a, b in _pieces(0, len(word))]
        return [word for word in self._finish(words) if word]

    def normal(self, text: str) -> str:
        """A text in the letters that tokens are written in, neither cut into words nor stemmed: for a prefix, say."""
        if not text.isascii():
            text = self._whole_letters(unicodedata.normalize("NFC", text))
        if self.lower:
            text = text.lower()
        return fold(text) if self.fold else text

    def _whole_letters(self, text: str) -> str:
        """Without halves of letters, which no pattern takes; and İ folded before lower case makes two letters of it."""
        text = _HALF.sub("\ufffd", text)
        return text.replace("\u0130", "I").replace("i\u0307", "i") if self.fold and self.lower else text

    def _finish(self, words: list[str]) -> list[str]:
        """The words as tokens, one for one; an empty text stands for a word that is left out."""
        joined = "".join(words)
        plain = joined.isascii()
        if not plain and not unicodedata.is_normalized("NFC", joined):
            words = [unicodedata.normalize("NFC", word) for word in words]
        if not plain and _ODD.search(joined) is not None:
            words = [self._whole_letters(word) for word in words]
        if self.lower:
            words = [word.lower() for word in words]
        if self.stop:
            words = ["" if word in self.stop else word for word in words]
        if self.stem is not None:
            words = _stemmer(self.stem)(words)
        if self.fold and not plain:
            words = [fold(word) for word in words]
        return words


def fold(text: str) -> str:
    """The text without marks on Latin and Greek letters, with ligatures and wide letters written out."""
    return text if text.isascii() else text.translate(_FOLDED)


class _Folded(dict[int, str]):
    """What each letter folds into, worked out when it is first seen."""

    _SPECIAL: Final = {
        "ø": "o", "Ø": "O", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "ß": "ss", "ẞ": "SS", "ł": "l", "Ł": "L",
        "đ": "d", "Đ": "D", "ð": "d", "Ð": "D", "þ": "th", "Þ": "TH", "ħ": "h", "Ħ": "H", "ı": "i", "ŋ": "n", "Ŋ": "N",
        "ς": "σ", "’": "'", "‘": "'", "ʼ": "'", "＇": "'",
    }  # fmt: skip

    def __missing__(self, code: int) -> str:
        letter = chr(code)
        found = self._SPECIAL.get(letter)
        if found is None:
            apart = unicodedata.normalize("NFKD", letter)
            # A mark is part of the letter in most scripts (й is not и): only Latin and Greek lose theirs.
            if len(apart) > 1 and unicodedata.name(apart[0], "").startswith(("LATIN", "GREEK", "DIGIT")):
                found = "".join(each for each in apart if not unicodedata.combining(each)) or letter
            else:
                found = unicodedata.normalize("NFKC", letter)
                # One character becomes at least one: what normalizes to white space would end a word within it.
                found = letter if not found.strip() else found
        self[code] = found
        return found


_FOLDED: Final = _Folded()


def _pieces(start: int, end: int) -> Iterable[tuple[int, int]]:
    if end - start <= LONGEST_WORD:
        return ((start, end),)
    return ((at, min(at + LONGEST_WORD, end)) for at in range(start, end, LONGEST_WORD))


def _pattern(tokenizer: str, text: str) -> Any:
    if tokenizer == "whitespace":
        return _WHITESPACE
    return _ASCII_WORDS if text.isascii() else _words()


@cache
def _words() -> Any:
    """Unicode's word boundaries; like Lucene's, ideographs and hiragana one by one, Thai in runs, and emoji."""
    regex = load("regex", "a text field")
    letter, digit, joiner = r"\p{WB=ALetter}\p{WB=Hebrew_Letter}", r"\p{WB=Numeric}", r"\p{WB=ExtendNumLet}"
    marks = r"\p{WB=Extend}\p{WB=Format}\p{WB=ZWJ}"
    in_words = r"\p{WB=MidLetter}\p{WB=MidNumLet}\p{WB=Single_Quote}"
    in_numbers = r"\p{WB=MidNum}\p{WB=MidNumLet}\p{WB=Single_Quote}"
    word, run = f"[{letter}{digit}]", r"\p{Line_Break=SA}"
    more = f"[{letter}{digit}{joiner}{marks}]"
    between = "|".join(
        (
            f"(?<=[{letter}][{marks}]*)[{in_words}][{marks}]*(?=[{letter}])",
            f"(?<={digit}[{marks}]*)[{in_numbers}][{marks}]*(?={digit})",
            rf'(?<=\p{{WB=Hebrew_Letter}}[{marks}]*)"(?=\p{{WB=Hebrew_Letter}})',
        )
    )
    return regex.compile(
        f"{joiner}*+{word}{more}*+(?:(?:{between}){more}++)*+"
        rf"|{joiner}*+\p{{WB=Katakana}}[\p{{WB=Katakana}}{joiner}{marks}]*+"
        f"|{run}[{run}{marks}]*+"
        rf"|[\p{{Script=Han}}\p{{Script=Hiragana}}][{marks}]*+"
        rf"|\p{{Extended_Pictographic}}[{marks}\p{{Extended_Pictographic}}]*+",
        regex.V1,
    )


@cache
def _stemmer(language: str) -> Callable[[list[str]], list[str]]:
    stemmer = load("Stemmer", "a stemming analyzer").Stemmer(language)
    # It remembers words: a bound on what a stream of new words can make it keep.
    stemmer.maxCacheSize = 100_000
    found: Callable[[list[str]], list[str]] = stemmer.stemWords
    return found


# --- the analyzers that have a name

LANGUAGES: Final = (
    "arabic", "armenian", "basque", "catalan", "danish", "dutch", "english", "estonian", "finnish", "french", "german",
    "greek", "hindi", "hungarian", "indonesian", "irish", "italian", "lithuanian", "nepali", "norwegian", "portuguese",
    "romanian", "russian", "serbian", "spanish", "swedish", "tamil", "turkish", "yiddish",
)  # fmt: skip

STANDARD: Final = Analyzer()
KEYWORD: Final = Analyzer(tokenizer="whole", lower=False, fold=False)

NAMED: Final = {
    "standard": STANDARD,
    "exact": Analyzer(lower=False, fold=False),
    "whitespace": Analyzer(tokenizer="whitespace", lower=False, fold=False),
    "keyword": KEYWORD,
    "lowercase": Analyzer(tokenizer="whole"),
    **{language: Analyzer(stem=language) for language in LANGUAGES},
}

_SETTINGS: Final = ("tokenizer", "lower", "stop", "stem", "fold")
_TOKENIZERS: Final = ("words", "whitespace", "whole")


def read_analyzer(name: str, settings: object) -> Analyzer:
    """An analyzer that a mapping describes."""
    if not isinstance(settings, dict):
        raise InvalidMapping(f"analyzer {name!r}: write its settings as an object, such as {{'stem': 'english'}}")
    for each in settings:
        if each not in _SETTINGS:
            raise InvalidMapping(f"analyzer {name!r}: {each!r} is unknown; {nearest(str(each), _SETTINGS)}")
    tokenizer, stem = settings.get("tokenizer", "words"), settings.get("stem")
    if tokenizer not in _TOKENIZERS:
        raise InvalidMapping(f"analyzer {name!r}: tokenizer {tokenizer!r}; {nearest(str(tokenizer), _TOKENIZERS)}")
    if stem is not None and stem not in LANGUAGES:
        raise InvalidMapping(f"analyzer {name!r}: no stemmer for {stem!r}; {nearest(str(stem), LANGUAGES)}")
    lower, fold_marks = settings.get("lower", True), settings.get("fold", True)
    if not isinstance(lower, bool) or not isinstance(fold_marks, bool):
        raise InvalidMapping(f"analyzer {name!r}: 'lower' and 'fold' are true or false")
    stop = settings.get("stop", [])
    if not isinstance(stop, list) or not all(isinstance(word, str) for word in stop):
        raise InvalidMapping(f"analyzer {name!r}: 'stop' is a list of the words that are left out")
    if tokenizer == "whole" and (stem or stop):
        raise InvalidMapping(f"analyzer {name!r}: a whole value has no words to stem or to leave out")
    words = frozenset(unicodedata.normalize("NFC", word.lower() if lower else word) for word in stop)
    return Analyzer(tokenizer, lower, words, stem, fold_marks)
