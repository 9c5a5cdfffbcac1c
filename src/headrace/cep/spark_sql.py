"""Expressions of one row as texts for Spark, so that the JVM evaluates them.

What always holds: a text never fails, whatever a row has in it, also in ANSI mode: where Spark would, it gives NULL, as
`evaluation.py` does. Whole numbers are computed as BIGINT and fractions as DOUBLE.

What differs, and cannot be mended from here: RLIKE is Java's regular expressions there and RE2's here (a pattern that
RE2 cannot read is NULL in both); a number turned into a text has Java's spelling; a text read as a number or a time may
have any spelling that Spark knows; the last digit of sines, powers and the like.
"""

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import re2

from headrace.cep.assembling import Assembler, NotColumnar
from headrace.cep.expressions import Call, Column, Expression, Literal, show
from headrace.cep.kinds import BOOL, DOUBLE, LONG, NULL, Kind, Type
from headrace.cep.operations import Foreign
from headrace.cep.values import moment

_NUMERIC: Final = (Kind.LONG, Kind.DOUBLE, Kind.DECIMAL)
_TRIED: Final = {"+": "try_add", "-": "try_subtract", "*": "try_multiply", "/": "try_divide"}
_FRACTIONAL: Final = {
    "acos", "asin", "atan", "atan2", "cbrt", "cos", "cosh", "degrees", "exp", "hypot", "ln", "log10", "log2", "power",
    "radians", "sign", "sin", "sinh", "sqrt", "tan", "tanh",
}  # fmt: skip
_TEXTUAL: Final = {"lower", "upper", "trim", "length"}
_LEAST: Final = "-9223372036854775808"
_UNKNOWN: Final = "CAST(NULL AS BOOLEAN)"


def spark_sql(expression: Expression, schema: pa.Schema) -> str:
    """The text; what is not an expression of one row is refused."""
    return _Writer(schema).write(expression)[0]


class _Writer:
    def __init__(self, schema: pa.Schema) -> None:
        self._assembler = Assembler(schema)
        self._schema = schema

    def write(self, expression: Expression) -> tuple[str, Type | None]:
        """The text and the type of its value; None if it is a type that only goes through."""
        if isinstance(expression, Literal):
            return _literal(expression.value)
        if isinstance(expression, Column):
            return self._column(expression)
        if not isinstance(expression, Call):
            raise NotColumnar(f"{show(expression)} looks at other rows", expression)
        name, args = expression.name, expression.args
        if name in ("and", "or"):
            return "(" + f" {name.upper()} ".join(self._truth(one) for one in args) + ")", BOOL
        if name == "not":
            return f"(NOT {self._truth(args[0])})", BOOL
        if name == "is null":
            return f"({self.write(args[0])[0]} IS NULL)", BOOL
        if name in ("=", "<>", "<", "<=", ">", ">=", "<=>"):
            return self._compare(name, args[0], args[1]), BOOL
        if name == "in":
            return "(" + " OR ".join(self._compare("=", args[0], one) for one in args[1:]) + ")", BOOL
        if name == "nullif":
            text, found = self.write(args[0])
            return f"CASE WHEN {self._compare('=', args[0], args[1])} THEN NULL ELSE {text} END", found
        if name in ("case", "coalesce", "greatest", "least"):
            return self._choice(name, args)
        if name in ("+", "-", "*", "/", "div", "%"):
            return self._arithmetic(name, args)
        if name == "cast":
            assert isinstance(args[1], Literal)
            return self._cast(args[0], str(args[1].value))
        return self._function(name, args)

    def _column(self, column: Column) -> tuple[str, Type | None]:
        text = ".".join("`" + part.replace("`", "``") + "`" for part in column.path)
        try:
            found: Type | None = self._assembler.type_of(column)
        except Foreign:
            return text, None
        if found is NULL and len(column.path) > 1:
            return "NULL", NULL
        return text, found

    def _as(self, expression: Expression, kind: Kind) -> str:
        """A value as a number of a kind."""
        text, found = self.write(expression)
        return _converted(text, found, kind)

    def _truth(self, expression: Expression) -> str:
        text, found = self.write(expression)
        if found is None or found.kind in (Kind.BOOL, Kind.NULL):
            return text if found is None or found.kind is Kind.BOOL else _UNKNOWN
        return f"({text} <> 0)"

    def _compare(self, name: str, left: Expression, right: Expression) -> str:
        (one, first), (other, second) = self.write(left), self.write(right)
        if first is None or second is None or first.kind is Kind.NULL or second.kind is Kind.NULL:
            unlike = (first is not None and second is not None) or (first or second or BOOL).kind is Kind.NULL
            if unlike and name == "<=>":
                return f"({one} IS NULL AND {other} IS NULL)"
            return _UNKNOWN if unlike else f"({one} {name} {other})"
        kinds: set[Kind] = {first.kind, second.kind}
        if len(kinds) == 2:
            wanted = _meeting(kinds)
            if wanted is None:
                return f"({one} IS NULL AND {other} IS NULL)" if name == "<=>" else _UNKNOWN
            one, other = _converted(one, first, wanted), _converted(other, second, wanted)
        return f"({one} {name} {other})"

    def _choice(self, name: str, args: Sequence[Expression]) -> tuple[str, Type | None]:
        values = [*args[1:-1:2], args[-1]] if name == "case" else list(args)
        written = [self.write(value) for value in values]
        known = [found for _, found in written if found is not None and found.kind is not Kind.NULL]
        kinds = {found.kind for found in known}
        texts = [text for text, _ in written]
        is_foreign = any(found is None for _, found in written)
        result: Type | None = None if is_foreign else known[0] if known else NULL
        if result and kinds <= {*_NUMERIC} and (len(kinds) > 1 or kinds == {Kind.LONG} or kinds == {Kind.DOUBLE}):
            kind = Kind.LONG if kinds == {Kind.LONG} else Kind.DOUBLE
            texts = [_converted(text, found, kind) for text, found in written]
            result = LONG if kind is Kind.LONG else DOUBLE
        if name != "case":
            return f"{name}({', '.join(texts)})", result
        tests = [self._truth(test) for test in args[:-1:2]]
        branches = " ".join(f"WHEN {test} THEN {text}" for test, text in zip(tests, texts[:-1], strict=True))
        return f"CASE {branches} ELSE {texts[-1]} END", result

    def _arithmetic(self, name: str, args: Sequence[Expression]) -> tuple[str, Type | None]:
        (one, first), (other, second) = self.write(args[0]), self.write(args[1])
        if first is None or second is None:
            raise NotColumnar(f"{show(Call(name, tuple(args)))} is no arithmetic that is known", args[0])
        kinds = {first.kind, second.kind}
        if Kind.NULL in kinds:
            return "NULL", NULL
        if Kind.TIME in kinds or Kind.SPAN in kinds:
            return self._time_arithmetic(name, one, other, first, second)
        if name == "/" or kinds & {Kind.TEXT, Kind.DOUBLE, Kind.BOOL}:
            one, other = _converted(one, first, Kind.DOUBLE), _converted(other, second, Kind.DOUBLE)
            if name == "div":
                return f"TRY_CAST(try_divide({one}, {other}) AS BIGINT)", LONG
            if name == "%":
                return f"CASE WHEN {other} <> 0D THEN {one} % {other} END", DOUBLE
            if name == "/":
                return f"try_divide({one}, {other})", DOUBLE
            return f"({one} {name} {other})", DOUBLE
        if kinds == {Kind.LONG}:
            one, other = _converted(one, first, Kind.LONG), _converted(other, second, Kind.LONG)
            if name == "%":
                return f"CASE WHEN {other} = -1L THEN 0L WHEN {other} <> 0L THEN {one} % {other} END", LONG
            if name == "div":
                whole = f"CASE WHEN {other} = -1L THEN try_subtract(0L, {one})"
                return f"{whole} WHEN {other} <> 0L THEN {one} div {other} END", LONG
            return f"{_TRIED[name]}({one}, {other})", LONG
        if name in _TRIED:
            scale = first.scale + second.scale if name == "*" else max(first.scale, second.scale)
            return f"{_TRIED[name]}({one}, {other})", Type(Kind.DECIMAL, pa.decimal128(38, min(38, scale)))
        return f"CASE WHEN {other} <> 0 THEN {one} {name} {other} END", LONG if name == "div" else first

    def _time_arithmetic(self, name: str, one: str, other: str, first: Type, second: Type) -> tuple[str, Type | None]:
        kinds = first.kind, second.kind
        if name == "-" and kinds == (Kind.TIME, Kind.TIME):
            return f"({one} - {other})", Type(Kind.SPAN, pa.duration("us"))
        if name == "/" and kinds == (Kind.SPAN, Kind.SPAN):
            parts = [f"CAST(unix_micros(timestamp_micros(0L) + {text}) AS DOUBLE)" for text in (one, other)]
            return f"try_divide({parts[0]}, {parts[1]})", DOUBLE
        if name in ("+", "-", "*") and Kind.SPAN in kinds:
            return f"{_TRIED[name]}({one}, {other})", first if first.kind is Kind.TIME else (
                second if second.kind is Kind.TIME else Type(Kind.SPAN, pa.duration("us"))
            )
        return "NULL", NULL

    def _cast(self, given: Expression, target: str) -> tuple[str, Type | None]:
        text, _ = self.write(given)
        kind, spelled = {
            "int": (LONG, "BIGINT"), "double": (DOUBLE, "DOUBLE"), "boolean": (BOOL, "BOOLEAN"),
            "string": (Type(Kind.TEXT, pa.string()), "STRING"),
            "timestamp": (Type(Kind.TIME, pa.timestamp("us", "UTC")), "TIMESTAMP"),
            "decimal": (None, "DECIMAL(38, 18)"),
        }[target]  # fmt: skip
        return f"TRY_CAST({text} AS {spelled})", kind

    def _function(self, name: str, args: Sequence[Expression]) -> tuple[str, Type | None]:
        if name == "pi":
            return "pi()", DOUBLE
        if name in _FRACTIONAL:
            texts = ", ".join(self._as(one, Kind.DOUBLE) for one in args)
            return f"{'signum' if name == 'sign' else name}({texts})", DOUBLE
        text, found = self.write(args[0])
        if name in ("like", "rlike"):
            return self._like(name, text, args[1]), BOOL
        if name in ("||", "concat"):
            texts = ", ".join(f"CAST({self.write(one)[0]} AS STRING)" for one in args)
            return f"concat({texts})", Type(Kind.TEXT, pa.string())
        if name in _TEXTUAL:
            return f"{name}(CAST({text} AS STRING))", LONG if name == "length" else Type(Kind.TEXT, pa.string())
        if name == "substring":
            rest = "".join(f", CAST({self._as(one, Kind.LONG)} AS INT)" for one in args[1:])
            return f"substring(CAST({text} AS STRING){rest})", Type(Kind.TEXT, pa.string())
        if found is not None and found.kind is Kind.TEXT:
            text, found = _converted(text, found, Kind.DOUBLE), DOUBLE
        if name in ("abs", "negate"):
            if found is not None and found.kind is Kind.LONG:
                text = _converted(text, found, Kind.LONG)
                negative = f"try_subtract(0L, {text})"
                return negative if name == "negate" else f"CASE WHEN {text} < 0L THEN {negative} ELSE {text} END", LONG
            return f"abs({text})" if name == "abs" else f"(- {text})", found
        if name in ("ceil", "floor"):
            if found is not None and found.kind is Kind.DOUBLE:
                return f"CASE WHEN abs({text}) < 9.223372036854775E18D THEN {name}({text}) END", LONG
            return f"TRY_CAST({name}({text}) AS BIGINT)", LONG
        digits = (f", {self.write(args[1])[0]}" if len(args) > 1 else "").replace("L", "")
        if found is not None and found.kind is Kind.LONG:
            # Left of the point it may be more than the type holds.
            return f"TRY_CAST(round(CAST({text} AS DECIMAL(20, 0)){digits}) AS BIGINT)", LONG
        return f"round({text}{digits})", found

    def _like(self, name: str, text: str, pattern: Expression) -> str:
        text = f"CAST({text} AS STRING)"
        if not isinstance(pattern, Literal):
            return f"({text} {name.upper()} {self.write(pattern)[0]})"
        if pattern.value is None:
            return _UNKNOWN
        given = str(pattern.value)
        if name == "rlike":
            try:
                re2.compile(given)
            except re2.error:
                return _UNKNOWN
            return f"({text} RLIKE {_quoted(given)})"
        # Spark refuses a backslash in front of anything but % _ and itself.
        shown, at = "", 0
        while at < len(given):
            letter = given[at]
            if letter == "\\" and at + 1 < len(given):
                at += 1
                letter = given[at]
                shown += "\\" + letter if letter in "%_\\" else letter
            else:
                shown += "\\\\" if letter == "\\" else letter
            at += 1
        return f"({text} LIKE {_quoted(shown)})"


def _converted(text: str, found: Type | None, wanted: Kind) -> str:
    if found is None:
        return text
    if found.kind is Kind.TEXT and wanted is not Kind.TEXT:
        spelled = {Kind.LONG: "BIGINT", Kind.DOUBLE: "DOUBLE", Kind.BOOL: "BOOLEAN", Kind.TIME: "TIMESTAMP"}[wanted]
        return f"TRY_CAST({text} AS {spelled})"
    if wanted is Kind.DOUBLE and found.arrow != pa.float64():
        return f"CAST({text} AS DOUBLE)"
    if wanted is Kind.LONG and found.arrow != pa.int64():
        return f"CAST({text} AS BIGINT)"
    return text


def _meeting(kinds: set[Kind]) -> Kind | None:
    """As what two kinds compare."""
    if kinds <= {Kind.BOOL, *_NUMERIC}:
        return Kind.DOUBLE
    if Kind.TEXT in kinds:
        (other,) = kinds - {Kind.TEXT}
        return Kind.DOUBLE if other in _NUMERIC else None if other is Kind.SPAN else other
    return None


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r") + "'"


def _literal(value: Any) -> tuple[str, Type | None]:
    if value is None:
        return "NULL", NULL
    if isinstance(value, bool):
        return str(value).upper(), BOOL
    if isinstance(value, int):
        return f"{value}L" if value != -(2**63) else f"CAST('{_LEAST}' AS BIGINT)", LONG
    if isinstance(value, float):
        finite = value == value and value not in (float("inf"), -float("inf"))
        return f"{value!r}D" if finite else f"CAST('{value}' AS DOUBLE)", DOUBLE
    if isinstance(value, str):
        return _quoted(value), Type(Kind.TEXT, pa.string())
    if isinstance(value, datetime | date):
        at = moment(value)
        return f"TIMESTAMP '{at.isoformat(' ', 'microseconds')}'", Type(Kind.TIME, pa.timestamp("us", "UTC"))
    if isinstance(value, timedelta):
        micros = abs(value // timedelta(microseconds=1))
        seconds, micros = divmod(micros, 1_000_000)
        sign = "-" if value < timedelta() else ""
        days, seconds = divmod(seconds, 86_400)
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{micros:06}"
        return f"INTERVAL '{sign}{days} {clock}' DAY TO SECOND", Type(Kind.SPAN, pa.duration("us"))
    if isinstance(value, Decimal):
        return f"{value}BD", None
    return "NULL", NULL
