"""Spark SQL as sqlglot reads it: tokens, and trees of expressions; what is no Spark SQL is refused with its place."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from headrace.cep.errors import InvalidPattern
from headrace.extras import load
from headrace.places import Place, whole

# Operators within operators: whoever evaluates them calls as deep.
DEEPEST: Final = 200
TOO_DEEP: Final = f"this condition has more than {DEEPEST} operators within each other: write IN, or two variables"
AGGREGATES: Final = {"COUNT", "SUM", "AVG", "MIN", "MAX"}
# Functions whose arguments sqlglot would drop or give another meaning are read as any function.
_AS_THEY_ARE: Final = {"FIRST", "LAST", "PREV", "NEXT", "CLASSIFIER", "MATCH_NUMBER", *AGGREGATES}


def parse(text: str, tokens: Sequence[Any], place: Place) -> list[Any]:
    """The trees of some tokens of a text: one, if it is an expression; `place` is that of all of them."""
    sqlglot = load("sqlglot", "a pattern")
    try:
        parser = _dialect().parser(error_message_context=len(text) + 1)
        return [tree for tree in parser.parse(list(tokens), text) if tree]
    except sqlglot.errors.ParseError as error:
        first = error.errors[0]
        start = len(first["start_context"] or "")
        what = (first["description"] or "cannot be read").split(" for <")[0].rstrip(".")
        what = "an operand is missing" if what.startswith("Required keyword") else what[:1].lower() + what[1:]
        raise InvalidPattern(
            f"this is not a Spark SQL expression: {what}", Place(text, start, start + len(first["highlight"] or ""))
        ) from None
    except RecursionError:
        raise InvalidPattern(TOO_DEEP, place) from None


def tokenize(text: str) -> list[Any]:
    """The tokens of a text, each with its `text`, `start` and `end` (the last character that is in it)."""
    sqlglot = load("sqlglot", "a pattern")
    try:
        return list(_dialect().tokenize(text))
    except sqlglot.errors.TokenError as error:
        raise InvalidPattern("a quote is opened here and never closed", _unclosed(text)) from error


def _unclosed(text: str) -> Place:
    quote, at = "", 0
    for index, letter in enumerate(text):
        if quote and letter == quote:
            quote = ""
        elif not quote and letter in "'\"`":
            quote, at = letter, index
    return Place(text, at, len(text)) if quote else whole(text)


@cache
def _dialect() -> Any:
    """Spark's dialect, with the functions of row patterns left alone."""
    spark = load("sqlglot.dialects.spark", "a pattern").Spark

    def others(known: Mapping[str, Any]) -> dict[str, Any]:
        return {name: function for name, function in known.items() if name not in _AS_THEY_ARE}

    parser = type(
        "Parser",
        (spark.Parser,),
        {
            "FUNCTIONS": others(spark.Parser.FUNCTIONS),
            "FUNCTION_PARSERS": others(spark.Parser.FUNCTION_PARSERS),
        },
    )
    return type("RowPatterns", (spark,), {"Parser": parser})()
