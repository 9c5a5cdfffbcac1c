"""Statements that change tables."""

import pytest

from headrace.connect.mysql.columns import NotUnderstood
from headrace.connect.mysql.ddl import Effect, apply_statement
from headrace.connect.mysql.events import Statement
from headrace.connect.mysql.shape import Shape, ShapeColumn
from headrace.connect.mysql.tokens import ANSI_QUOTES, NO_BACKSLASH_ESCAPES

T = ("shop", "t")
BEFORE = Shape(
    "shop",
    "t",
    (ShapeColumn("id", "int(11)", None, False), ShapeColumn("a", "varchar(5)", "latin1")),
    ("id",),
    "latin1",
)


def _run(statement: str, database: str = "shop") -> Effect:
    return apply_statement(Statement(database, statement), {T: BEFORE}, lambda _database: "utf8mb4")


def _after(statement: str) -> Shape:
    shape = _run(statement).shapes[T]
    assert shape is not None
    return shape


def _described(shape: Shape) -> list[str]:
    return [f"{column.name} {column.type}" for column in shape.columns]


def test_a_table_is_made_with_all_that_a_definition_can_hold() -> None:
    effect = _run(
        """CREATE TABLE IF NOT EXISTS `Ord``er` ( -- a comment, with (parentheses
            id BIGINT(20) UNSIGNED NOT NULL AUTO_INCREMENT COMMENT 'the ''key'', (really)',
            `from` VARCHAR(20) CHARACTER SET ucs2 COLLATE ucs2_general_ci NOT NULL DEFAULT '',
            kind ENUM('a','it''s','b,c)') NULL DEFAULT 'a', -- another
            price DECIMAL(10) DEFAULT -1.5 CHECK (price > (0 + 1)),
            at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3),
            total DOUBLE PRECISION GENERATED ALWAYS AS (price * 2) STORED,
            doc JSON CHECK (json_valid(doc)),
            yes BOOLEAN, bits BIT(9), raw CHAR(4) CHARACTER SET binary, /*!50000 extra INT, */
            PRIMARY KEY (id, `from`(10)) USING BTREE, UNIQUE KEY u (kind, price), KEY (price),
            CONSTRAINT fk FOREIGN KEY (id) REFERENCES other (id) ON DELETE CASCADE, FULLTEXT INDEX f (`from`)
        ) ENGINE=InnoDB DEFAULT CHARSET=cp1251 COMMENT='x' PARTITION BY HASH (id) PARTITIONS 4"""
    )
    shape = effect.shapes["shop", "Ord`er"]
    assert shape is not None
    assert _described(shape) == [
        "id bigint(20) unsigned", "from varchar(20)", "kind enum('a','it''s','b,c)')", "price decimal(10,0)",
        "at timestamp(3)", "total double", "doc json", "yes tinyint(1)", "bits bit(9)", "raw binary(4)", "extra int",
    ]  # fmt: skip
    assert shape.key == ("id", "from")
    assert [column.charset for column in shape.columns] == [
        None, "ucs2", "cp1251", None, None, None, "utf8mb4", None, None, None, None,
    ]  # fmt: skip
    assert shape.columns[2].labels == ("a", "it's", "b,c)")
    assert [column.name for column in shape.columns if not column.optional] == ["id", "from", "at"]
    assert shape.columns[6].is_json


def test_a_unique_key_stands_in_for_a_primary_one() -> None:
    effect = _run("CREATE TABLE u (a INT NOT NULL, b INT, c INT NOT NULL UNIQUE KEY, UNIQUE (b), UNIQUE (a, c))")
    assert effect.shapes["shop", "u"].key == ("c",)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("statement", "columns", "key"),
    [
        ("ALTER TABLE t ADD b INT", ["id int(11)", "a varchar(5)", "b int"], ("id",)),
        ("ALTER TABLE shop.t ADD COLUMN b INT FIRST", ["b int", "id int(11)", "a varchar(5)"], ("id",)),
        ("alter table `t` add column if not exists a int, add b int after id",
         ["id int(11)", "b int", "a varchar(5)"], ("id",)),
        ("ALTER TABLE t ADD (b INT, c TEXT), DROP a", ["id int(11)", "b int", "c text"], ("id",)),
        ("ALTER TABLE t CHANGE id k BIGINT NOT NULL", ["k bigint", "a varchar(5)"], ("k",)),
        ("ALTER TABLE t MODIFY COLUMN id SMALLINT UNSIGNED AFTER a", ["a varchar(5)", "id smallint unsigned"], ("id",)),
        ("ALTER TABLE t RENAME COLUMN id TO `new id`", ["new id int(11)", "a varchar(5)"], ("new id",)),
        ("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (a, id)", ["id int(11)", "a varchar(5)"], ("a", "id")),
        ("ALTER TABLE t ADD b DATETIME(6) DEFAULT now(6), ADD INDEX i (b), ENGINE=InnoDB, COMMENT 'a, b'",
         ["id int(11)", "a varchar(5)", "b datetime(6)"], ("id",)),
        ("ALTER ONLINE TABLE t NOWAIT ADD b NATIONAL CHARACTER VARYING(7), ALGORITHM=INPLACE, LOCK=NONE",
         ["id int(11)", "a varchar(5)", "b varchar(7)"], ("id",)),
        ("SET STATEMENT max_statement_time=60 FOR ALTER TABLE t ADD b FLOAT(30)",
         ["id int(11)", "a varchar(5)", "b double"], ("id",)),
    ],
)  # fmt: skip
def test_tables_are_altered(statement: str, columns: list[str], key: tuple[str, ...]) -> None:
    shape = _after(statement)
    assert _described(shape) == columns
    assert shape.key == key


def test_character_sets_follow_the_table() -> None:
    assert _after("ALTER TABLE t ADD b TEXT").columns[2].charset == "latin1"
    assert _after("ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin").columns[1].charset == "utf8mb4"
    assert _after("ALTER TABLE t DEFAULT CHARACTER SET = greek").columns[1].charset == "latin1"


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t ADD INDEX (a)", "ALTER TABLE t ENGINE = InnoDB", "ALTER TABLE t ALTER a SET DEFAULT 'x'",
        "ALTER TABLE t DROP FOREIGN KEY f", "ALTER TABLE t RENAME INDEX a TO b",
        "CREATE TEMPORARY TABLE t (id INT)", "CREATE INDEX i ON t (a)", "ANALYZE TABLE t",
        "CREATE TABLE IF NOT EXISTS t (x INT)", "GRANT ALL ON *.* TO me", "DROP TEMPORARY TABLE t", "DROP VIEW t",
        "ALTER TABLE t DROP COLUMN IF EXISTS gone", "", "FLUSH TABLES",
    ],
)  # fmt: skip
def test_what_does_not_matter_has_no_effect(statement: str) -> None:
    assert _run(statement) == Effect({})


@pytest.mark.parametrize(
    "statement", ["DROP INDEX i ON t", "CREATE UNIQUE INDEX i ON t (a)", "ALTER TABLE t DROP INDEX i, DROP KEY j"]
)
def test_another_index_may_be_another_key(statement: str) -> None:
    assert _run(statement) == Effect({}, indexed=(("shop", "t"),))


def test_tables_are_dropped_emptied_renamed_and_copied() -> None:
    assert _run("DROP TABLE IF EXISTS `shop`.`t`, other /* generated by server */").shapes == {T: None}
    assert _run("DROP DATABASE shop").shapes == {T: None}
    assert _run("TRUNCATE TABLE t").emptied == (T,)
    assert _run("TRUNCATE shop.t", database="else").emptied == (T,)
    copied = _run("CREATE TABLE c LIKE t").shapes["shop", "c"]
    assert copied is not None
    assert copied.columns == BEFORE.columns
    renamed = _run("RENAME TABLE t TO old.t2")
    assert renamed.shapes[T] is None
    assert [name for name, _ in renamed.unseen] == [("old", "t2")]
    assert renamed.shapes["old", "t2"].full_name == "old.t2"  # type: ignore[union-attr]
    moved = _run("ALTER TABLE t ADD b INT, RENAME TO t3")
    assert moved.moved == ((T, ("shop", "t3")),)
    assert moved.shapes[T] is None
    assert [name for name, _ in moved.unseen] == [("shop", "t3")]
    assert _run("CREATE OR REPLACE TABLE t (id INT PRIMARY KEY)").emptied == (T,)


@pytest.mark.parametrize(
    ("statement", "tables"),
    [
        ("ALTER TABLE t DROP PARTITION a, b", [T]),
        ("ALTER TABLE t TRUNCATE PARTITION ALL", [T]),
        ("ALTER TABLE t EXCHANGE PARTITION p WITH TABLE other.x WITHOUT VALIDATION", [T, ("other", "x")]),
        ("ALTER TABLE t IMPORT TABLESPACE", [T]),
        ("ALTER TABLE t DISCARD PARTITION p TABLESPACE", [T]),
        ("ALTER IGNORE TABLE t ADD UNIQUE (a)", [T]),
        ("RENAME TABLE t TO t2, t2 TO t", []),
        ("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (a)", [T]),
        ("ALTER TABLE t CHANGE id number INT", [T]),
        ("ALTER TABLE t ADD b INT", []),
        ("ALTER TABLE t ADD b INT DEFAULT NULL, ADD c TIMESTAMP NULL", []),
        ("ALTER TABLE t ADD b INT DEFAULT 5", [T]),
        ("ALTER TABLE t ADD (b INT NOT NULL)", [T]),
        ("ALTER TABLE t ADD b TIMESTAMP", [T]),
        ("ALTER TABLE t ADD b INT AS (id + 1)", [T]),
        ("ALTER TABLE t CHANGE a b VARCHAR(5)", [T]),
        ("ALTER TABLE t RENAME COLUMN a TO b", [T]),
        ("ALTER TABLE t MODIFY a VARCHAR(50) FIRST, MODIFY id BIGINT NOT NULL", []),
        ("ALTER TABLE t MODIFY a VARCHAR(2)", [T]),
        ("ALTER TABLE t MODIFY id SMALLINT NOT NULL", [T]),
        ("ALTER TABLE t DROP a, ADD A VARCHAR(5)", [T]),
        ("ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4", []),
        ("ALTER TABLE t CONVERT TO CHARACTER SET ascii", [T]),
        ("ALTER TABLE t MODIFY a VARCHAR(5) CHARACTER SET ascii", [T]),
        ("ALTER TABLE t DEFAULT CHARACTER SET ascii", []),
    ],
)
def test_rows_that_change_unseen(statement: str, tables: list[tuple[str, str]]) -> None:
    assert list(dict.fromkeys(name for name, _ in _run(statement).unseen)) == tables


def test_a_column_that_comes_back_is_empty() -> None:
    dropped = _after("ALTER TABLE t DROP a")
    again = Shape.from_json(dropped.as_json())
    effect = apply_statement(Statement("shop", "ALTER TABLE t ADD a INT"), {T: again}, lambda _database: "utf8mb4")
    assert [name for name, _ in effect.unseen] == [T]
    shape = effect.shapes[T]
    assert shape is not None
    assert not shape.dropped


@pytest.mark.parametrize(
    ("statement", "sql_mode", "labels"),
    [
        (r"ALTER TABLE t ADD e ENUM('a\\b', 'it''s', 'q\'q', 'n\n')", 0, ("a\\b", "it's", "q'q", "n\n")),
        (r"ALTER TABLE t ADD e SET('a\b', 'c')", NO_BACKSLASH_ESCAPES, ("a\\b", "c")),
        ('ALTER TABLE "t" ADD "e" ENUM(\'"\', \'ü\')', ANSI_QUOTES, ('"', "ü")),
    ],
)
def test_labels_are_what_was_meant(statement: str, sql_mode: int, labels: tuple[str, ...]) -> None:
    shape = apply_statement(Statement("shop", statement, sql_mode), {T: BEFORE}, lambda _: "utf8mb4").shapes[T]
    assert shape is not None
    assert shape.columns[-1].labels == labels


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE n AS SELECT 1", "CREATE TABLE n (id INT) SELECT 1", "CREATE TABLE n LIKE unknown",
        "ALTER TABLE t ADD b SOMETHING", "ALTER TABLE elsewhere.t ADD b INT", "RENAME TABLE nobody TO t",
        "ALTER TABLE t CONVERT PARTITION p TO TABLE x", "INSERT INTO t VALUES (1)", "/* why */ UPDATE t SET a = 1",
        "(SELECT f())", "WITH c AS (SELECT 1) DELETE FROM t", "CALL p()", "CREATE SOMETHING new", "REPAIR TABLE t",
        "CREATE TABLE n (id INT",
        "ALTER TABLE t MODIFY nowhere INT", "ALTER TABLE t ADD SYSTEM VERSIONING",
    ],
)  # fmt: skip
def test_what_is_not_understood_is_said(statement: str) -> None:
    with pytest.raises(NotUnderstood):
        _run(statement)
