"""The definition of one column in a statement. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from headrace.connect.errors import ConnectError
from headrace.connect.mysql.shape import ShapeColumn
from headrace.connect.mysql.tokens import Token

TableId: TypeAlias = tuple[str, str]  # database, table
_END: Final = Token("end", "")
_SYNONYMS: Final = {
    "integer": "int", "int1": "tinyint", "int2": "smallint", "int3": "mediumint", "middleint": "mediumint",
    "int4": "int", "int8": "bigint", "dec": "decimal", "numeric": "decimal", "fixed": "decimal", "number": "decimal",
    "real": "double",
    "float4": "float", "float8": "double", "character": "char", "nchar": "char", "nvarchar": "varchar",
    "varcharacter": "varchar", "varchar2": "varchar", "bool": "tinyint(1)", "boolean": "tinyint(1)", "clob": "longtext",
    "raw": "varbinary",
}  # fmt: skip
_TEXTS: Final = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set")
_AS_BYTES: Final = {
    "char": "binary", "varchar": "varbinary", "tinytext": "tinyblob", "text": "blob", "mediumtext": "mediumblob",
    "longtext": "longblob",
}  # fmt: skip
_KNOWN: Final = {
    "tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double", "bit", "date", "datetime",
    "timestamp", "time", "year", *_TEXTS, "binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "json",
    "uuid", "inet6", "inet4", "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring",
    "multipolygon", "geometrycollection", "geomcollection", "serial",
}  # fmt: skip


class NotUnderstood(ConnectError):
    """A statement that changes a table, in a way that is not understood."""

    def __init__(self, what: str) -> None:
        super().__init__(f"a statement in the log is not understood: {what}")


class Words:
    """The words of a statement, taken one by one."""

    def __init__(self, tokens: Sequence[Token], fold: Callable[[TableId], TableId] = lambda name: name) -> None:
        """`fold` makes a table's name what the server takes it for."""
        self._tokens = [token for token in tokens if token.text != ";" or token.kind != "mark"]
        self._fold = fold
        self._at = 0
        self.last_column = ""

    @property
    def is_done(self) -> bool:
        return self._at >= len(self._tokens)

    def peek(self, ahead: int = 0) -> Token:
        """A word that is not taken yet."""
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else _END

    def take(self) -> Token:
        token = self.peek()
        self._at += 1
        return token

    def back(self) -> None:
        self._at -= 1

    def skip_optional(self, *words: str) -> bool:
        """Pass these words, if they come next, all of them."""
        if all(self.peek(index).upper == word for index, word in enumerate(words)):
            self._at += len(words)
            return True
        return False

    def skip_any(self, *words: str) -> bool:
        """Pass one of these words, if it comes next."""
        return any(self.skip_optional(word) for word in words)

    def skip_past(self, word: str) -> None:
        """Pass everything up to and with this word."""
        while not self.is_done and self.take().upper != word:
            pass

    def skip_parentheses(self) -> list[Token]:
        """Pass what stands in parentheses, and answer it; the opening one is next."""
        found = [self.take()]
        depth = 1
        while depth:
            if self.is_done:
                raise NotUnderstood("parentheses that do not close")
            token = self.take()
            found.append(token)
            if token.kind == "mark":
                depth += (token.text == "(") - (token.text == ")")
        return found

    def skip_definition(self) -> None:
        """Pass everything up to the comma or parenthesis that ends this item."""
        while not self.is_done and not (self.peek().kind == "mark" and self.peek().text in (",", ")")):
            if self.peek().kind == "mark" and self.peek().text == "(":
                self.skip_parentheses()
            else:
                self.take()

    def names_in_parentheses(self) -> list[str]:
        """The names in a list like (a, b(10) desc)."""
        names = []
        depth = 0
        for before, token in zip([_END, *(inside := self.skip_parentheses())], inside, strict=False):
            if token.kind == "mark":
                depth += (token.text == "(") - (token.text == ")")
            elif depth == 1 and before.kind == "mark" and before.text in ("(", ","):
                names.append(token.text)
        return names

    def table(self, database: str) -> tuple[str, str]:
        first = self.take()
        if first.kind not in ("word", "quoted"):
            raise NotUnderstood("a table's name")
        if self.peek().kind == "mark" and self.peek().text == ".":
            self.take()
            return self._fold((first.text, self.take().text))
        return self._fold((database, first.text))


def charset_of_collation(collation: str) -> str | None:
    """The character set in a collation's name; MariaDB's newest collations go with any."""
    charset = collation.lower().split("_")[0]
    return None if charset == "uca1400" else charset


class ReadColumn(NamedTuple):
    """A column, and what its definition says beside; `after` is "" for the first place, None for where it is."""

    column: ShapeColumn
    is_key: bool
    is_unique: bool
    after: str | None
    has_value: bool  # in rows that are there when the column comes


@dataclass(slots=True)
class _Attributes:
    suffix: str = ""
    charset: str | None = None
    optional: bool = True
    is_key: bool = False
    is_unique: bool = False
    is_json: bool = False
    after: str | None = None
    is_null: bool = False  # said in as many words
    has_value: bool = False


def read_column(words: Words) -> ReadColumn:
    """A column's definition, up to the comma or parenthesis behind it."""
    token = words.take()
    if token.kind not in ("word", "quoted"):
        raise NotUnderstood("a column's name")
    name = words.last_column = token.text
    base = _read_type(words)
    arguments = ""
    if words.peek().kind == "mark" and words.peek().text == "(":
        arguments = "".join(
            # As the information schema writes it.
            "'" + token.text.replace("\\", "\\\\").replace("'", "''") + "'" if token.kind == "string" else token.text
            for token in words.skip_parentheses()
        )
    found = _read_attributes(words)
    if base == "serial":
        base, found.suffix, found.optional, found.is_unique = "bigint", " unsigned", False, True
    if base == "float" and arguments and "," not in arguments:
        base, arguments = ("double", "") if int(arguments[1:-1]) > 24 else (base, "")
    if base == "json":
        found.is_json = True
    charset: str | None = None
    if base in _TEXTS:
        charset = found.charset if found.charset is not None else ""
        if charset == "binary" and base in _AS_BYTES:
            base, charset = _AS_BYTES[base], None
    elif base == "json":
        charset = "utf8mb4"
    if base == "decimal" and not arguments:
        arguments = "(10,0)"
    if base == "decimal" and "," not in arguments:
        arguments = arguments[:-1] + ",0)"
    column = ShapeColumn(name, f"{base}{arguments}{found.suffix}", charset, found.optional, found.is_json)
    # MariaDB gives a TIMESTAMP the present time, unless it is said to be null.
    has_value = found.has_value or not found.optional or (base == "timestamp" and not found.is_null)
    return ReadColumn(column, found.is_key, found.is_unique, found.after, has_value)


def _read_type(words: Words) -> str:
    token = words.take()
    base = token.text.lower()
    if base == "national":
        base = words.take().text.lower()
    if base == "double":
        words.skip_optional("PRECISION")
    if base == "long":
        base = "mediumblob" if words.skip_any("VARBINARY") else "mediumtext"
        words.skip_any("VARCHAR")
    if base in ("char", "character", "nchar") and words.skip_any("VARYING"):
        base = "varchar"
    if base == "char" and words.skip_any("BYTE"):
        base = "binary"
    base = _SYNONYMS.get(base, base)
    if base.split("(")[0] not in _KNOWN or token.kind != "word":
        raise NotUnderstood(f"the type {token.text}")
    return base


def _read_attributes(words: Words) -> _Attributes:
    found = _Attributes()
    while not words.is_done and not (words.peek().kind == "mark" and words.peek().text in (",", ")")):
        token = words.take()
        match token.upper:
            case "UNSIGNED":
                found.suffix = " unsigned"
            case "ZEROFILL":
                found.suffix = " unsigned zerofill"
            case "CHARSET" | "CHARACTER":
                words.skip_optional("SET")
                words.skip_optional("=")
                found.charset = words.take().text.lower()
            case "COLLATE":
                words.skip_optional("=")
                found.charset = found.charset or charset_of_collation(words.take().text)
            case "ASCII":
                found.charset = "latin1"
            case "UNICODE":
                found.charset = "ucs2"
            case "NOT":
                found.optional = not words.skip_any("NULL") and found.optional
            case "NULL":
                found.optional = found.is_null = True
            case "PRIMARY":
                words.skip_any("KEY")
                found.is_key, found.optional = True, False
            case "KEY":
                found.is_key, found.optional = True, False
            case "UNIQUE":
                words.skip_any("KEY")
                found.is_unique = True
            case "DEFAULT" | "COMMENT":
                found.has_value |= token.upper == "DEFAULT" and words.peek().upper != "NULL"
                if words.peek().text == "(" and words.peek().kind == "mark":
                    words.skip_parentheses()
                else:
                    words.skip_any("-", "+")
                    words.take()
            case "CHECK":
                inside = words.skip_parentheses()
                found.is_json = found.is_json or any(part.upper == "JSON_VALID" for part in inside)
            case "FIRST":
                found.after = ""
            case "AFTER":
                found.after = words.take().text
            case "(":
                words.back()
                words.skip_parentheses()
            case "WITH" | "WITHOUT":
                raise NotUnderstood("system versioning")
            case "AS" | "GENERATED" | "AUTO_INCREMENT":
                found.has_value = True
            case _:
                pass  # ON UPDATE …, INVISIBLE, GENERATED ALWAYS AS … STORED, REFERENCES … and the like
    return found
