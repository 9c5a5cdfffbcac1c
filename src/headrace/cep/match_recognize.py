"""Patterns in SQL: `MATCH_RECOGNIZE ( PARTITION BY … ORDER BY … MEASURES … PATTERN (…) DEFINE … )`, as in SQL:2016.

The text is cut into tokens, and each expression in it is parsed, by sqlglot in Spark's dialect. Its own reading of
MATCH_RECOGNIZE keeps PATTERN as text and forgets where things stood; so the clauses and the row pattern are read here,
with the place of everything, and `WITHIN INTERVAL …` as Flink has it.

    PATTERN   A  (A B)  A | B  PERMUTE(A, B)  {- A -}   and behind any of them  ? * + {n} {n,} {,m} {n,m};
              another ? behind makes it reluctant
    MEASURES  expression AS name, …   RUNNING or FINAL in front
    AFTER MATCH SKIP   PAST LAST ROW (if nothing is said) · TO NEXT ROW · TO [FIRST | LAST] variable

What always holds: names of variables are compared without case, and are shown as PATTERN spells them first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from headrace.cep.errors import InvalidPattern
from headrace.cep.expressions import Expression, Literal
from headrace.cep.parsing import tokenize
from headrace.cep.reading import Scope, read_expression
from headrace.cep.row_pattern import RowPattern
from headrace.cep.tree import (
    Absence,
    AfterMatch,
    Alternation,
    Exclusion,
    Measure,
    Node,
    Output,
    PatternTree,
    Permutation,
    Repeat,
    Skip,
    Variable,
)
from headrace.cep.tree import Sequence as SequenceNode
from headrace.errors import nearest
from headrace.places import Place, whole

# Each clause by its first words.
_CLAUSES: Final = {
    "PARTITION BY": "PARTITION BY",
    "ORDER BY": "ORDER BY",
    "MEASURES": "MEASURES",
    "ONE ROW PER MATCH": "ROWS",
    "ALL ROWS PER MATCH": "ROWS",
    "AFTER MATCH SKIP": "SKIP",
    "PATTERN": "PATTERN",
    "WITHIN": "WITHIN",
    "SUBSET": "SUBSET",
    "DEFINE": "DEFINE",
}


@dataclass(frozen=True)
class _Clause:
    words: str
    tokens: Sequence[Any]
    place: Place


def read_match_recognize(text: str) -> PatternTree:
    """The pattern tree of such a text."""
    return _Reader(text).read()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokenize(text)

    def read(self) -> PatternTree:
        clauses = self._clauses()
        if "PATTERN" not in clauses:
            raise InvalidPattern("MATCH_RECOGNIZE needs a PATTERN (…)", whole(self._text))
        pattern = clauses["PATTERN"]
        begin, end = self._inside(pattern)
        row_pattern = RowPattern(self._text, begin, end)
        node = row_pattern.read()
        names = row_pattern.names
        scope = {lower: frozenset({name}) for lower, name in names.items()}
        self._read_subsets(clauses.get("SUBSET"), names, scope)
        conditions = self._read_definitions(clauses.get("DEFINE"), names, scope)
        rows = clauses.get("ROWS")
        all_rows = rows is not None and rows.words.startswith("ALL")
        if rows is not None:
            self._check_rows(rows)
        measures = self._read_measures(clauses.get("MEASURES"), scope, all_rows)
        return PatternTree(
            _with_conditions(node, conditions),
            self._read_within(clauses.get("WITHIN")),
            self._read_skip(clauses.get("SKIP"), scope),
            True,
            None,
            tuple(self._name(part, "PARTITION BY") for part in self._parts(clauses.get("PARTITION BY"))),
            self._read_order(clauses.get("ORDER BY")),
            Output(measures, all_rows),
            pattern.place,
        )

    # --- clauses

    def _clauses(self) -> dict[str, _Clause]:
        tokens = self._tokens
        if not tokens or tokens[0].text.upper() != "MATCH_RECOGNIZE" or len(tokens) < 2 or tokens[1].text != "(":
            raise InvalidPattern("this does not begin with MATCH_RECOGNIZE (", whole(self._text))
        close = self._closing(1)
        if close + 1 != len(tokens):
            raise InvalidPattern("nothing may follow the last bracket", self._place(tokens[close + 1 :]))
        starts = self._clause_starts(2, close)
        if not starts or starts[0][0] != 2:
            raise InvalidPattern(
                f"a clause is expected here: {', '.join(dict.fromkeys(_CLAUSES))}", self._place(tokens[2:3] or tokens)
            )
        clauses: dict[str, _Clause] = {}
        for number, (at, words, length) in enumerate(starts):
            end = starts[number + 1][0] if number + 1 < len(starts) else close
            kind = _CLAUSES[words]
            if kind in clauses:
                raise InvalidPattern(f"{words} is there twice", self._place(tokens[at : at + length]))
            clauses[kind] = _Clause(words, tokens[at + length : end], self._place(tokens[at:end]))
        return clauses

    def _clause_starts(self, begin: int, end: int) -> list[tuple[int, str, int]]:
        """Where clauses begin: the token, the words, and how many tokens these are."""
        found = []
        depth = 0
        for at in range(begin, end):
            depth += _depth(self._tokens[at])
            if depth:
                continue
            for words in _CLAUSES:
                length = self._spells(at, end, words)
                following = self._tokens[at + length].text.upper() if at + length < end else ""
                wanted = {"PATTERN": "(", "WITHIN": "INTERVAL"}.get(words)
                if length and (wanted is None or following == wanted):
                    found.append((at, words, length))
                    break
        return found

    def _spells(self, at: int, end: int, words: str) -> int:
        """How many tokens from here on spell these words; 0 if they do not."""
        spelled: list[str] = []
        wanted = words.split()
        count = 0
        while at + count < end and len(spelled) < len(wanted):
            spelled += self._tokens[at + count].text.upper().split()
            count += 1
        return count if spelled == wanted else 0

    def _closing(self, opening: int) -> int:
        depth = 0
        for at in range(opening, len(self._tokens)):
            depth += _depth(self._tokens[at])
            if not depth:
                return at
        raise InvalidPattern("this bracket is never closed", self._place(self._tokens[opening : opening + 1]))

    def _inside(self, clause: _Clause) -> tuple[int, int]:
        """From where to where the text in the brackets of PATTERN goes."""
        depth = 0
        for number, token in enumerate(clause.tokens):
            depth += _depth(token)
            if not depth:
                if number + 1 < len(clause.tokens):
                    following = clause.tokens[number + 1 :]
                    is_within = following[0].text.upper() == "WITHIN"
                    sentence = "WITHIN takes an interval: write for example WITHIN INTERVAL '5' MINUTE"
                    raise InvalidPattern(sentence if is_within else "a clause is expected here", self._place(following))
                return clause.tokens[0].end + 1, token.start
        raise InvalidPattern("this bracket is never closed", clause.place)

    def _parts(self, clause: _Clause | None) -> list[Sequence[Any]]:
        """The tokens between commas."""
        if clause is None:
            return []
        parts: list[list[Any]] = [[]]
        depth = 0
        for token in clause.tokens:
            depth += _depth(token)
            if token.text == "," and not depth:
                parts.append([])
            else:
                parts[-1].append(token)
        for part in parts:
            if not part:
                raise InvalidPattern(f"something is missing in {clause.words}", clause.place)
        return list(parts)

    def _place(self, tokens: Sequence[Any]) -> Place:
        return Place(self._text, tokens[0].start, tokens[-1].end + 1) if tokens else whole(self._text)

    def _name(self, part: Sequence[Any], where: str) -> str:
        if len(part) != 1:
            raise InvalidPattern(f"{where} takes names of columns", self._place(part))
        return str(part[0].text)

    # --- what is in them

    def _read_order(self, clause: _Clause | None) -> str | None:
        parts = self._parts(clause)
        if not parts:
            return None
        if len(parts) > 1:
            raise InvalidPattern(
                "rows are in the order of one column, the event time, and those of equal time in that of their offsets",
                self._place(parts[1]),
            )
        part = parts[0]
        if len(part) == 2 and part[1].text.upper() == "DESC":
            raise InvalidPattern(
                "rows come in the order of time, not against it: leave DESC out", self._place(part[1:])
            )
        return self._name(part[:1] if len(part) == 2 and part[1].text.upper() == "ASC" else part, "ORDER BY")

    def _check_rows(self, clause: _Clause) -> None:
        said = " ".join(token.text.upper() for token in clause.tokens)
        if said == "WITH UNMATCHED ROWS":
            raise InvalidPattern("WITH UNMATCHED ROWS is unsupported", clause.place)
        if said and not (clause.words.startswith("ALL") and said in ("SHOW EMPTY MATCHES", "OMIT EMPTY MATCHES")):
            raise InvalidPattern("a clause is expected here", self._place(clause.tokens))

    def _read_skip(self, clause: _Clause | None, scope: dict[str, frozenset[str]]) -> AfterMatch:
        if clause is None:
            return AfterMatch(Skip.PAST_LAST)
        words = [token.text for token in clause.tokens]
        upper = [word.upper() for word in words]
        if upper == ["PAST", "LAST", "ROW"]:
            return AfterMatch(Skip.PAST_LAST, place=clause.place)
        if upper == ["TO", "NEXT", "ROW"]:
            return AfterMatch(Skip.TO_NEXT, place=clause.place)
        if upper[:1] == ["TO"] and 2 <= len(words) <= 3:
            skip = Skip.TO_FIRST if upper[1:-1] == ["FIRST"] else Skip.TO_LAST
            if len(words) == 2 or upper[1] in ("FIRST", "LAST"):
                return AfterMatch(skip, self._variables(clause.tokens[-1], scope), clause.place)
        raise InvalidPattern(
            "AFTER MATCH SKIP is followed by PAST LAST ROW, TO NEXT ROW, or TO [FIRST | LAST] and a variable",
            clause.place,
        )

    def _variables(self, token: Any, scope: dict[str, frozenset[str]]) -> frozenset[str]:
        found = scope.get(token.text.lower())
        if found is None:
            known = sorted(name for names in scope.values() for name in names)
            raise InvalidPattern(
                f"unknown variable {token.text!r}: {nearest(token.text, known, 'the pattern has')}",
                self._place([token]),
            )
        return found

    def _read_within(self, clause: _Clause | None) -> int | None:
        if clause is None:
            return None
        value = read_expression(self._text, Scope(), clause.place, clause.tokens)
        if not isinstance(value, Literal) or not isinstance(value.value, timedelta) or value.value <= timedelta():
            raise InvalidPattern(
                "WITHIN takes an interval that is longer than nothing: INTERVAL '1' MINUTE", clause.place
            )
        return round(value.value / timedelta(microseconds=1))

    def _read_subsets(self, clause: _Clause | None, names: dict[str, str], scope: dict[str, frozenset[str]]) -> None:
        for part in self._parts(clause):
            texts = [token.text for token in part]
            if len(part) < 5 or texts[1:3] != ["=", "("] or texts[-1] != ")" or set(texts[4:-1:2]) - {","}:
                raise InvalidPattern("SUBSET is written as U = (A, B)", self._place(part))
            if texts[0].lower() in scope:
                raise InvalidPattern(f"{texts[0]!r} is a variable already", self._place(part[:1]))
            plain = {name: scope[name] for name in names}
            members = [self._variables(token, plain) for token in part[3:-1:2]]
            scope[texts[0].lower()] = frozenset().union(*members)

    def _read_definitions(
        self, clause: _Clause | None, names: dict[str, str], scope: dict[str, frozenset[str]]
    ) -> dict[str, tuple[Expression, Place]]:
        found: dict[str, tuple[Expression, Place]] = {}
        for part in self._parts(clause):
            if len(part) < 2 or part[1].text.upper() != "AS":
                raise InvalidPattern("DEFINE is written as A AS condition, …", self._place(part))
            (name,) = self._variables(part[0], {lower: frozenset({spelled}) for lower, spelled in names.items()})
            if name in found:
                raise InvalidPattern(f"{name} is defined twice", self._place(part[:1]))
            place = self._place(part[2:] or part)
            found[name] = read_expression(self._text, Scope(scope, name), place, part[2:]), place
        return found

    def _read_measures(
        self, clause: _Clause | None, scope: dict[str, frozenset[str]], all_rows: bool
    ) -> tuple[Measure, ...]:
        measures: dict[str, Measure] = {}
        for part in self._parts(clause):
            if len(part) < 3 or part[-2].text.upper() != "AS":
                raise InvalidPattern("a measure is written as expression AS name", self._place(part))
            tokens = list(part[:-2])
            said = {token.text.upper() for token in tokens if token.text.upper() in ("FINAL", "RUNNING")}
            if len(said) > 1:
                raise InvalidPattern("a measure is FINAL or RUNNING, not both", self._place(part))
            tokens = [token for token in tokens if token.text.upper() not in said]
            value = read_expression(self._text, Scope(scope), self._place(part), tokens)
            name = str(part[-1].text)
            if name in measures:
                raise InvalidPattern(f"two measures have the name {name}", self._place(part[-1:]))
            measures[name] = Measure(name, value, "FINAL" in said or not (all_rows or "RUNNING" in said))
        return tuple(measures.values())


def _depth(token: Any) -> int:
    """What a token adds to the depth of brackets; one in quotes is none."""
    return {"L_PAREN": 1, "R_PAREN": -1}.get(token.token_type.name, 0)


def _with_conditions(node: Node, conditions: dict[str, tuple[Expression, Place]]) -> Node:
    """The tree with what DEFINE says; what it does not name is true for every row."""
    if isinstance(node, Variable):
        found = conditions.get(node.name)
        return node if found is None else Variable(node.name, *found)
    if isinstance(node, SequenceNode):
        items = []
        for link, item in node.items:
            assert not isinstance(item, Absence)
            items.append((link, _with_conditions(item, conditions)))
        return SequenceNode(tuple(items))
    if isinstance(node, Alternation):
        return Alternation(tuple(_with_conditions(branch, conditions) for branch in node.branches))
    if isinstance(node, Permutation):
        return Permutation(tuple(_with_conditions(item, conditions) for item in node.items), node.link, node.place)
    if isinstance(node, Exclusion):
        return Exclusion(_with_conditions(node.body, conditions))
    return Repeat(_with_conditions(node.body, conditions), node.least, node.most, node.greed, place=node.place)
