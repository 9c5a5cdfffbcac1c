"""Texts cut into words that can be compared, and the words' places kept."""

import pytest

from headrace.percolation.analysis import LANGUAGES, LONGEST_WORD, NAMED, STANDARD, Analyzer, fold, read_analyzer
from headrace.percolation.errors import InvalidMapping


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("The Quick-Brown fox's 3,000.50 U.S.A. snake_case", "the quick brown fox's 3,000.50 u.s.a snake_case"),
        ("a.1 1.a a:b ___ x__y 1.2.3", "a 1 1 a a:b x__y 1.2.3"),
        ("Crème Brûlée straße ŁÓDŹ Ångström œuvre", "creme brulee strasse lodz angstrom oeuvre"),
        ("Cre\u0300me", "creme"),
        ("ΟΔΟΣ Άνθρωπος", "οδοσ ανθρωποσ"),
        ("йод Ёлка", "йод ёлка"),
        ("l’été aujourd’hui", "l'ete aujourd'hui"),
        ("東京タワーに", "東 京 タワー に"),
        ("हिन्दी भाषा", "हिन्दी भाषा"),
        ("สวัสดีครับ hello", "สวัสดีครับ hello"),
        ("I ❤️ you", "i ❤️ you"),
        ("ＡＢＣ ﬁne", "abc fine"),
        ('צה"ל', 'צה"ל'),
        ("", ""),
        (" .,;- ", ""),
    ],
)
def test_words_end_where_unicode_says(text, terms):
    assert STANDARD.terms(text) == terms.split()
    assert [token.text for token in STANDARD.tokens(text)] == terms.split()


def test_offsets_are_those_of_the_given_text():
    text = "Die Straße, weiß: CRÈME"
    assert [text[token.start : token.end] for token in STANDARD.tokens(text)] == ["Die", "Straße", "weiß", "CRÈME"]
    assert [token.position for token in STANDARD.tokens(text)] == [0, 1, 2, 3]


def test_stop_words_leave_gaps_and_stems_stay():
    analyzer = Analyzer(stop=frozenset({"the", "of"}), stem="english")
    assert [(t.text, t.position) for t in analyzer.tokens("The running of the bulls")] == [("run", 1), ("bull", 4)]
    assert analyzer.terms("The running of the bulls") == ["run", "bull"]


def test_stemming_comes_before_folding():
    german = NAMED["german"]
    assert german.terms("Häuser Haus") == ["haus", "haus"]
    assert NAMED["french"].terms("mangées manger") == ["mang", "mang"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_its_stemmer(language):
    assert NAMED[language].terms("word") != []


def test_a_word_longer_than_any_is_cut():
    word = "a" * (2 * LONGEST_WORD + 3)
    assert [len(term) for term in STANDARD.terms(word)] == [LONGEST_WORD, LONGEST_WORD, 3]
    assert [(t.start, t.end) for t in STANDARD.tokens(word)] == [(0, 255), (255, 510), (510, 513)]


def test_a_keyword_is_one_token_as_it_is():
    assert NAMED["keyword"].terms("New York!") == ["New York!"]
    assert NAMED["lowercase"].terms("Café New") == ["cafe new"]
    assert NAMED["whitespace"].terms("New York! a-b") == ["New", "York!", "a-b"]


def test_folding_leaves_at_least_a_letter():
    for code in range(0x110000):
        if not 0xD800 <= code < 0xE000:
            assert len(fold(f"a{chr(code)}")) >= 2


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ("english", "as an object"),
        ({"stemm": "english"}, "did you mean 'stem'?"),
        ({"stem": "englisch"}, "did you mean 'english'?"),
        ({"tokenizer": "word"}, "did you mean 'words'?"),
        ({"stop": "the"}, "a list of the words"),
        ({"lower": 1}, "true or false"),
        ({"tokenizer": "whole", "stem": "english"}, "no words to stem"),
    ],
)
def test_an_analyzer_that_is_none_is_refused(settings, sentence):
    with pytest.raises(InvalidMapping, match=sentence.replace("?", r"\?")):
        read_analyzer("mine", settings)
