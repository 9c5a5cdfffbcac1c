"""Types of PostgreSQL whose values the log writes in a form of its own, in a table that has them already."""

from collections.abc import Iterator

import psycopg
import pytest

from headrace.connect.postgres.values import bits_json, money_json
from headrace.stores.derived import ChangeBatch, Place, RowChange
from headrace.stores.errors import RowRefused
from headrace.stores.postgres.derived import postgres
from tests.integration.table_sink_stores import PostgresServer

TOPIC = "shop.public.flags"


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    made = PostgresServer()
    yield made
    made.end()


@pytest.mark.parametrize("rows", [3, 30])  # inserted one by one, and copied
def test_bits_and_money(server: PostgresServer, rows: int) -> None:
    with psycopg.connect(server.url, autocommit=True) as db:
        db.execute("CREATE TABLE flags (id int PRIMARY KEY, one bit(1), several bit(11), price money)")
        expected = [(n, str(n % 2), f"{n * 37:011b}", f"{n * 1000 - 500}.25") for n in range(rows)]
        changes = [
            RowChange(
                {"id": n},
                {
                    "id": n,
                    "one": one == "1",
                    "several": bits_json(some).strip('"'),
                    "price": money_json(price).strip('"'),
                },
                0, n, 1,
            )
            for n, one, some, price in expected
        ]  # fmt: skip
        changes.append(RowChange({"id": rows}, {"id": rows, "one": None, "several": None, "price": None}, 0, rows, 1))
        sink = postgres("copy", TOPIC, server.url, "flags")
        assert sink.open() is None
        sink.apply(ChangeBatch(changes, Place(TOPIC, {0: rows + 1})))
        found = db.execute(
            "SELECT id, one::text, several::text, price::numeric::text FROM flags ORDER BY id"
        ).fetchall()
        assert found == [*expected, (rows, None, None, None)]
        stored = {row.key: row for chunk in sink.scan() for row in chunk}
        assert stored == {str(change.key["id"]): sink.comparable(change.key, change.row or {}) for change in changes}
        wide = RowChange({"id": 0}, {"id": 0, "several": bits_json("1" * 12).strip('"')}, 0, 99, 1)
        with pytest.raises(RowRefused):
            sink.apply(ChangeBatch([wide], Place(TOPIC, {0: 100})))
        sink.close()
