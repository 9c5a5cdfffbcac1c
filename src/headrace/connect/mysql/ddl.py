"""What a statement does to the shapes of tables. Pure.

The log holds the text of such statements, so a table's shape at any place in it is found by reading them. Only what
matters for rows is understood: columns with their types and order, the primary key, names. A statement about a table
that is not understood to the end raises `NotUnderstood`; whoever called then asks the database itself.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from headrace.connect.mysql.columns import NotUnderstood, TableId, Words, charset_of_collation, read_column
from headrace.connect.mysql.events import Statement
from headrace.connect.mysql.shape import Shape, ShapeColumn
from headrace.connect.mysql.tokens import split

Name: TypeAlias = TableId
Shapes: TypeAlias = Mapping[Name, Shape]


@dataclass(frozen=True, slots=True)
class Effect:
    """What a statement did: new shapes (None: the table is gone), tables that were emptied, tables that moved.

    Rows of those that are `unseen` changed, and nobody says which; with each stands how. Those that are `indexed` may
    have another key: which index it was made of is known to the database alone.
    """

    shapes: dict[Name, Shape | None]
    emptied: tuple[Name, ...] = ()
    moved: tuple[tuple[Name, Name], ...] = ()
    unseen: tuple[tuple[Name, str], ...] = ()
    indexed: tuple[Name, ...] = ()


_NOTHING: Final = Effect({})
_EVERY_LETTER: Final = "utf8mb4"
_KEYS: Final = ("KEY", "INDEX", "UNIQUE", "FULLTEXT", "SPATIAL", "FOREIGN", "CHECK", "PERIOD")


# What statements of other kinds than these begin with may change rows: as text, by a function, or in a way to come.
_ROWS_STAY: Final = frozenset(
    {
        "", "SAVEPOINT", "RELEASE", "GRANT", "REVOKE", "SET", "FLUSH", "ANALYZE", "OPTIMIZE", "CHECK", "CHECKSUM",
        "INSTALL", "UNINSTALL", "CACHE", "LOCK", "UNLOCK", "RESET", "PURGE", "CHANGE", "START", "STOP", "USE", "SHOW",
        "KILL", "SHUTDOWN", "PREPARE", "DEALLOCATE", "BACKUP", "EXPLAIN", "DESCRIBE", "HELP",
    }
)  # fmt: skip
_NO_TABLES: Final = frozenset(
    {
        "VIEW", "INDEX", "UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR", "ONLINE", "OFFLINE", "TRIGGER", "PROCEDURE",
        "FUNCTION", "AGGREGATE", "EVENT", "USER", "ROLE", "SERVER", "SEQUENCE", "PACKAGE", "DATABASE", "SCHEMA",
        "DEFINER", "ALGORITHM", "SQL", "LOGFILE", "TABLESPACE", "UNDO", "RESOURCE", "INSTANCE", "LIBRARY", "PREPARE",
        "MASKING", "CATALOG",
    }
)  # fmt: skip


class RowsAsText(NotUnderstood):
    """A statement that may have changed rows and is no definition of a table."""


def apply_statement(
    statement: Statement,
    shapes: Shapes,
    charset_of: Callable[[str], str],
    fold: Callable[[Name], Name] = lambda name: name,
) -> Effect:
    """The effect of a statement on the shapes before it; `charset_of` says what a database gives new tables.

    `fold` makes a table's name what the server takes it for.
    """
    words = Words(split(statement.text, statement.sql_mode), fold)
    database = statement.database
    if words.skip_optional("SET", "STATEMENT"):
        words.skip_past("FOR")
    match words.take().upper:
        case "CREATE":
            return _create(words, database, shapes, charset_of)
        case "ALTER":
            words.skip_optional("ONLINE")
            is_ignoring = words.skip_optional("IGNORE")
            if words.skip_optional("TABLE"):
                return _alter(words, database, shapes, is_ignoring=is_ignoring)
            return _without_tables(words)
        case "DROP":
            return _drop(words, database, shapes, fold)
        case "RENAME":
            return _rename(words, database, shapes) if words.skip_any("TABLE", "TABLES") else _without_tables(words)
        case "TRUNCATE":
            words.skip_optional("TABLE")
            return Effect({}, emptied=(words.table(database),))
        case verb if verb in _ROWS_STAY and (verb or words.is_done):
            return _NOTHING
        case verb:
            raise RowsAsText(f"a statement that begins with {verb or 'a name'}")


def names_in(statement: Statement, fold: Callable[[Name], Name] = lambda name: name) -> set[Name]:
    """Whatever may be the name of a table in a statement, in the database in use or with its own."""
    found = set()
    tokens = split(statement.text, statement.sql_mode)
    for place, token in enumerate(tokens):
        if token.kind in ("word", "quoted"):
            is_qualified = place > 1 and tokens[place - 1].text == "." and tokens[place - 1].kind == "mark"
            found.add(fold((tokens[place - 2].text if is_qualified else statement.database, token.text)))
    return found


def _without_tables(words: Words) -> Effect:
    """A definition of something else."""
    words.skip_optional("OR", "REPLACE")
    if words.peek().upper not in _NO_TABLES:
        raise NotUnderstood(f"a definition of {words.peek().text or 'nothing'}")
    return _NOTHING


def _index(words: Words, database: str) -> Effect:
    """An index that is made or dropped: UNIQUE INDEX … ON table (…), INDEX … ON table."""
    words.skip_past("ON")
    return _NOTHING if words.is_done else Effect({}, indexed=(words.table(database),))


def _create(words: Words, database: str, shapes: Shapes, charset_of: Callable[[str], str]) -> Effect:
    is_replacing = words.skip_optional("OR", "REPLACE")
    if words.peek().upper == "TEMPORARY":
        return _NOTHING
    if "UNIQUE" in (words.peek().upper, words.peek(1).upper):
        return _index(words, database)
    if not words.skip_optional("TABLE"):
        return _without_tables(words)
    is_careful = words.skip_optional("IF", "NOT", "EXISTS")
    name = words.table(database)
    if is_careful and name in shapes and not is_replacing:
        return _NOTHING
    is_in_parentheses = words.peek().text == "(" and words.peek(1).upper == "LIKE"
    if is_in_parentheses:
        words.take()
    if words.skip_optional("LIKE"):
        model = shapes.get(words.table(database))
        if model is None:
            raise NotUnderstood("a table like one that is not known")
        return Effect({name: replace(model, database=name[0], table=name[1])}, emptied=_replaced(name, shapes))
    if words.peek().text != "(":
        raise NotUnderstood("a table made of a query")
    words.take()
    definition = _Definition(name, charset_of(name[0]))
    while True:
        definition.read_item(words)
        if words.take().text == ")":
            break
    definition.read_options(words)
    return Effect({name: definition.shape()}, emptied=_replaced(name, shapes))


def _replaced(name: Name, shapes: Shapes) -> tuple[Name, ...]:
    """A table that was made is empty, also where one of its name was there before."""
    return (name,) if name in shapes else ()


class _Definition:
    """A table that is being made or altered; columns without a character set of their own get the table's."""

    def __init__(self, name: Name, charset: str) -> None:
        self.name = name
        self.charset = charset
        self.columns: list[ShapeColumn] = []
        self.key: tuple[str, ...] = ()
        self.uniques: list[tuple[str, ...]] = []
        self.unseen: list[tuple[Name, str]] = []  # tables whose rows change, and how
        self.dropped: list[str] = []
        self.is_there = False
        self.is_indexed = False  # whether it lost an index

    def read_item(self, words: Words) -> None:
        """A column or an index between the parentheses."""
        if not self.read_index(words):
            self.add(words, None)

    def add(self, words: Words, place: int | None) -> None:
        """A column, at a place or at the end or where the words say."""
        read = read_column(words)
        if self.is_there and place is None and read.has_value:
            self.unseen.append((self.name, f"column {read.column.name} was added with a value in every row"))
        for gone in [name for name in self.dropped if place is None and name.lower() == read.column.name.lower()]:
            self.dropped.remove(gone)
            self.unseen.append((self.name, f"column {gone} was dropped and is there again, without its values"))
        self.columns.insert(len(self.columns) if place is None else place, read.column)
        if read.after is not None:
            self.columns.remove(read.column)
            self.columns.insert(0 if read.after == "" else self.place_of(read.after) + 1, read.column)
        if read.is_key:
            self.key = (read.column.name,)
        if read.is_unique:
            self.uniques.append((read.column.name,))

    def read_index(self, words: Words) -> bool:
        """An index or constraint; whether it was one. Quoted words are columns."""
        if words.peek().upper == "CONSTRAINT":
            words.take()
            if words.peek().upper not in (*_KEYS, "PRIMARY"):
                words.take()
        first = words.peek().upper
        if first == "PRIMARY" and words.peek(1).upper == "KEY":
            self.key = self._column_names(words)
        elif first == "UNIQUE":
            self.uniques.append(self._column_names(words))
        elif first not in _KEYS:
            return False
        words.skip_definition()
        return True

    def _column_names(self, words: Words) -> tuple[str, ...]:
        while words.peek().text != "(":
            words.take()
        names = words.names_in_parentheses()
        return tuple(self.columns[self.place_of(name)].name for name in names)

    def place_of(self, name: str) -> int:
        """Where a column is; names of columns are compared without case."""
        for place, column in enumerate(self.columns):
            if column.name.lower() == name.lower():
                return place
        raise NotUnderstood(f"column {name}, which is not known")

    def read_options(self, words: Words) -> None:
        """What stands behind the parentheses: only the character set matters, and whether a query follows."""
        while not words.is_done:
            word = words.take().upper
            if word in ("SELECT", "AS", "WITH") and words.peek().upper != "SYSTEM":
                raise NotUnderstood("a table made of a query")
            if word == "COLLATE":
                words.skip_optional("=")
                self.charset = charset_of_collation(words.take().text) or self.charset
            elif word == "CHARSET" or (word == "CHARACTER" and words.skip_optional("SET")):
                words.skip_optional("=")
                self.charset = words.take().text.lower()
            elif word == "PARTITION":
                return

    def shape(self) -> Shape:
        columns = tuple(
            replace(column, charset=self.charset if column.charset == "" else column.charset) for column in self.columns
        )
        required = {column.name for column in columns if not column.optional}
        key = self.key or next((one for one in self.uniques if required.issuperset(one)), ())
        columns = tuple(replace(c, optional=c.optional and c.name not in key) for c in columns)
        return Shape(*self.name, columns, key, self.charset, tuple(self.dropped))


def _alter(words: Words, database: str, shapes: Shapes, *, is_ignoring: bool) -> Effect:
    words.skip_optional("IF", "EXISTS")
    name = words.table(database)
    before = shapes.get(name)
    if before is None:
        raise NotUnderstood(f"ALTER TABLE of {name[1]}, which is not known")
    definition = _Definition(name, before.charset)
    definition.is_there = True
    if is_ignoring:
        definition.unseen.append((name, "ALTER IGNORE TABLE may have removed rows"))
    definition.columns = list(before.columns)
    definition.dropped = list(before.dropped)
    definition.key = before.key
    moved_to: Name | None = None
    if words.skip_optional("WAIT"):
        words.take()
    words.skip_optional("NOWAIT")
    while not words.is_done:
        moved_to = _alter_item(words, definition, database) or moved_to
        if not words.is_done and words.take().text != ",":
            raise NotUnderstood(f"what follows in an ALTER TABLE of {name[1]}")
    shape = definition.shape()
    charsets = {column.name: column.charset for column in before.columns}
    for column in shape.columns:
        if charsets.get(column.name) not in (None, column.charset) and column.charset not in (None, _EVERY_LETTER):
            definition.unseen.append((name, f"column {column.name} has another character set, without some letters"))
    if before.key and shape.key != before.key:
        # Records have other keys from here on, and those under the old ones would stay.
        definition.unseen.append((name, f"its key became {', '.join(shape.key) or 'none'}"))
    unseen = tuple(definition.unseen)
    if moved_to is None or moved_to == name:
        indexed = (name,) if definition.is_indexed else ()
        return Effect({} if shape == before else {name: shape}, unseen=unseen, indexed=indexed)
    return Effect(
        {name: None, moved_to: replace(shape, database=moved_to[0], table=moved_to[1])},
        moved=((name, moved_to),),
        unseen=(*unseen, (moved_to, _renamed(name))),
    )


def _renamed(old: Name) -> str:
    return f"table {old[0]}.{old[1]} took its name"


def _alter_item(words: Words, definition: _Definition, database: str) -> Name | None:
    """One change; answers a new name, if it is one."""
    word = words.take().upper
    if word == "ADD":
        if definition.read_index(words):
            return None
        words.skip_optional("COLUMN")
        is_careful = words.skip_optional("IF", "NOT", "EXISTS")
        if words.peek().text == "(":
            words.take()
            while True:
                definition.read_item(words)
                if words.take().text == ")":
                    return None
        _add(words, definition, is_careful=is_careful)
    elif word == "DROP":
        _drop_item(words, definition)
    elif word in ("MODIFY", "CHANGE"):
        words.skip_optional("COLUMN")
        is_careful = words.skip_optional("IF", "EXISTS")
        old = words.take().text if word == "CHANGE" else words.peek().text
        if is_careful and all(column.name.lower() != old.lower() for column in definition.columns):
            words.skip_definition()
            return None
        _redefine(words, definition, old)
    elif word == "RENAME":
        return _rename_item(words, definition, database)
    elif word == "CONVERT":
        if words.peek().upper != "TO":
            raise NotUnderstood("ALTER TABLE … CONVERT, which moves rows between tables")
        words.skip_past("TO")
        if not words.skip_any("CHARSET"):
            words.skip_optional("CHARACTER", "SET")
        charset = words.take().text.lower()
        definition.columns = [
            replace(column, charset=charset) if column.charset is not None else column for column in definition.columns
        ]
        definition.charset = charset
        words.skip_definition()
    elif word in ("DEFAULT", "CHARACTER", "CHARSET", "COLLATE"):
        words.back()
        definition.read_options(words)
    elif word in ("ALTER", "ORDER", "PARTITION", "REORGANIZE", "COALESCE", "REMOVE", "ANALYZE", "REBUILD", "OPTIMIZE"):
        words.skip_definition()
    elif word in ("EXCHANGE", "DISCARD", "IMPORT", "TRUNCATE"):
        what = "partition" if word in ("EXCHANGE", "TRUNCATE") else "tablespace"
        definition.unseen.append((definition.name, f"ALTER TABLE … {word} changed a {what} of it"))
        if word == "EXCHANGE":
            words.skip_past("TABLE")
            what = f"its rows were exchanged with those of a partition of {definition.name[1]}"
            definition.unseen.append((words.table(database), what))
        while not words.is_done:  # partitions are listed with commas, and nothing else can follow
            words.take()
    elif word == "SYSTEM" or not word:
        raise NotUnderstood("an ALTER TABLE")
    else:
        words.skip_definition()  # ENGINE=…, COMMENT=…, FORCE, ALGORITHM=…, LOCK=…, ENABLE KEYS …: rows stay as they are
    return None


def _add(words: Words, definition: _Definition, *, is_careful: bool) -> None:
    if is_careful and any(column.name.lower() == words.peek().text.lower() for column in definition.columns):
        words.skip_definition()
        return
    definition.add(words, None)


def _redefine(words: Words, definition: _Definition, old: str) -> None:
    place = definition.place_of(old)
    before = definition.columns.pop(place)
    definition.add(words, place)
    after = definition.columns[definition.place_of(words.last_column)]
    if after.name != before.name:
        definition.unseen.append((definition.name, f"column {before.name} was renamed"))
    elif not after.holds_values_of(before):
        definition.unseen.append((definition.name, f"values of column {before.name} became others"))
    definition.key = tuple(words.last_column if name == before.name else name for name in definition.key)


def _drop_item(words: Words, definition: _Definition) -> None:
    if words.skip_optional("PRIMARY", "KEY"):
        definition.key = ()
        return
    if words.peek().upper == "PARTITION":
        definition.unseen.append((definition.name, "ALTER TABLE … DROP PARTITION removed rows"))
        while not words.is_done:
            words.take()
        return
    if words.peek().upper in ("INDEX", "KEY", "FOREIGN", "CONSTRAINT", "CHECK", "PERIOD", "SYSTEM"):
        if words.peek().upper == "SYSTEM":
            raise NotUnderstood("system versioning")
        definition.is_indexed |= words.peek().upper in ("INDEX", "KEY", "CONSTRAINT")
        words.skip_definition()
        return
    words.skip_optional("COLUMN")
    is_careful = words.skip_optional("IF", "EXISTS")
    name = words.take().text
    words.skip_any("RESTRICT", "CASCADE")
    if is_careful and all(column.name.lower() != name.lower() for column in definition.columns):
        return
    gone = definition.columns.pop(definition.place_of(name))
    definition.dropped.append(gone.name)
    if gone.name in definition.key:
        definition.key = tuple(part for part in definition.key if part != gone.name)


def _rename_item(words: Words, definition: _Definition, database: str) -> Name | None:
    if words.skip_optional("COLUMN"):
        words.skip_optional("IF", "EXISTS")
        place = definition.place_of(words.take().text)
        words.skip_any("TO")
        name = words.take().text
        old = definition.columns[place]
        definition.unseen.append((definition.name, f"column {old.name} was renamed"))
        definition.columns[place] = ShapeColumn(name, old.type, old.charset, old.optional, old.is_json)
        definition.key = tuple(name if part == old.name else part for part in definition.key)
        return None
    if words.peek().upper in ("INDEX", "KEY"):
        words.skip_definition()
        return None
    words.skip_any("TO", "AS", "=")
    return words.table(database)


def _drop(words: Words, database: str, shapes: Shapes, fold: Callable[[Name], Name]) -> Effect:
    if words.skip_any("DATABASE", "SCHEMA"):
        words.skip_optional("IF", "EXISTS")
        gone = words.take().text
        return Effect({name: None for name in shapes if name == fold((gone, name[1]))})
    if words.peek().upper == "TEMPORARY":
        return _NOTHING
    if "INDEX" in (words.peek().upper, words.peek(1).upper):
        return _index(words, database)
    if not words.skip_any("TABLE", "TABLES"):
        return _without_tables(words)
    words.skip_optional("IF", "EXISTS")
    names = [words.table(database)]
    while words.skip_any(","):
        names.append(words.table(database))
    return Effect({name: None for name in names if name in shapes})


def _rename(words: Words, database: str, shapes: Shapes) -> Effect:
    """Pairs are done one after the other, so that two tables can change places."""
    now: dict[Name, Shape | None] = dict(shapes)
    came_from: dict[Name, Name] = {}
    touched: list[Name] = []
    moved: list[tuple[Name, Name]] = []
    words.skip_optional("IF", "EXISTS")
    while True:
        old = words.table(database)
        if words.skip_any("WAIT"):
            words.take()
        words.skip_any("NOWAIT")
        words.skip_any("TO")
        new = words.table(database)
        shape = now.get(old)
        if shape is None:
            raise NotUnderstood(f"RENAME TABLE of {old[1]}, which is not known")
        now[old] = None
        now[new] = replace(shape, database=new[0], table=new[1])
        came_from[new] = came_from.pop(old, old)
        touched += [old, new]
        moved.append((old, new))
        if not words.skip_any(","):
            break
    effect = {name: now[name] for name in touched if now[name] is not None or name in shapes}
    return Effect(
        effect,
        moved=tuple(pair for pair in moved if now.get(pair[1]) is not None or pair[0] in shapes),
        unseen=tuple((name, _renamed(old)) for name, old in came_from.items() if old != name),
    )
