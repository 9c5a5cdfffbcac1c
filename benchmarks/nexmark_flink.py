"""Flink's side, in SQL: the answers' questions (`examples/nexmark/answers.py`), put as Flink takes them."""

import zlib
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from pipelines_flink import Flink, _spelt, _timed

_REST = "date_time TIMESTAMP_LTZ(3), extra STRING, WATERMARK FOR date_time AS date_time - INTERVAL '4' SECOND"
_TABLES = {
    "persons": f"id BIGINT, name STRING, email STRING, credit_card STRING, city STRING, state STRING, {_REST}",
    "auctions": "id BIGINT, item STRING, description STRING, initial_bid BIGINT, reserve BIGINT, "
    f"expires TIMESTAMP_LTZ(3), seller BIGINT, category BIGINT, {_REST}",
    "bids": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `clock` AS PROCTIME(), " + _REST,
}
_SIDE = "side_input"
_BID = "B.auction, B.bidder, B.price, B.channel, B.url, B.date_time, B.extra"
_AUCTION = (
    "A.item, A.description, A.initial_bid, A.reserve, A.date_time AS opened, A.expires, A.seller, A.category, "
    "A.extra AS auction_extra"
)
_VALID = "auctions A JOIN bids B ON A.id = B.auction AND B.date_time BETWEEN A.date_time AND A.expires"
_WINNING = (
    "SELECT * FROM (SELECT A.id, A.category, A.seller AS by_seller, A.item, A.description, A.initial_bid, A.reserve, "
    "A.date_time AS opened, A.expires, A.extra AS auction_extra, B.bidder, B.price, B.date_time, B.extra, "
    f"ROW_NUMBER() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.date_time) AS place FROM {_VALID}) WHERE place = 1"
)
_TEN_S = "INTERVAL '10' SECOND"
_BY_TIME = "TABLE {}, DESCRIPTOR(date_time)"
_RANKS = ("price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000")


def _statistics(*counted: str) -> str:
    made = []
    for name, count in {"bids": "*", **{f"{column}s": f"DISTINCT {column}" for column in counted}}.items():
        made.append(f"COUNT({count}) AS total_{name}")
        made += [f"COUNT({count}) FILTER (WHERE {rank}) AS rank{n}_{name}" for n, rank in enumerate(_RANKS, start=1)]
    return ", ".join(made)


_HOUR = "EXTRACT(HOUR FROM date_time)"
_CHANNEL_ID = (
    "CASE LOWER(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3' "
    "ELSE REGEXP_EXTRACT(url, '[?&]channel=channel-([0-9]+)', 1) END"
)
_HOPPED = (
    "SELECT auction, COUNT(*) AS num, window_start, window_end FROM TABLE(HOP("
    f"{_BY_TIME.format('bids')}, INTERVAL '2' SECOND, {_TEN_S})) GROUP BY auction, window_start, window_end"
)
QUERIES = {
    "q0": "SELECT auction, bidder, price, date_time, extra FROM bids",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, date_time, extra FROM bids",
    "q2": "SELECT auction, price FROM bids WHERE MOD(auction, 123) = 0",
    "q3": "SELECT P.name, P.city, P.state, A.id FROM auctions A JOIN persons P ON A.seller = P.id "
    "WHERE A.category = 10 AND P.state IN ('OR', 'ID', 'CA')",
    "q4": "SELECT category, AVG(CAST(final AS DOUBLE)) AS final FROM "
    f"(SELECT A.id, A.category, MAX(B.price) AS final FROM {_VALID} GROUP BY A.id, A.category) GROUP BY category",
    "q5": f"SELECT H.auction, H.num, H.window_start FROM ({_HOPPED}) H JOIN (SELECT MAX(num) AS best, window_start, "
    f"window_end FROM ({_HOPPED}) GROUP BY window_start, window_end) M ON H.window_start = M.window_start "
    "AND H.window_end = M.window_end AND H.num >= M.best",
    "q7": "SELECT B.auction, B.bidder, B.price, B.date_time, B.extra FROM bids B JOIN (SELECT MAX(price) AS best, "
    f"window_start, window_end FROM TABLE(TUMBLE({_BY_TIME.format('bids')}, {_TEN_S})) GROUP BY window_start, "
    f"window_end) M ON B.price = M.best AND B.date_time >= M.window_start AND B.date_time < M.window_end",
    "q8": "SELECT P.id, P.name, P.window_start FROM (SELECT id, name, window_start, window_end FROM TABLE(TUMBLE("
    f"{_BY_TIME.format('persons')}, {_TEN_S})) GROUP BY id, name, window_start, window_end) P JOIN (SELECT seller, "
    f"window_start, window_end FROM TABLE(TUMBLE({_BY_TIME.format('auctions')}, {_TEN_S})) GROUP BY seller, "
    "window_start, window_end) A ON P.id = A.seller AND P.window_start = A.window_start "
    "AND P.window_end = A.window_end",
    "q9": "SELECT id AS auction, item, description, initial_bid, reserve, opened, expires, by_seller, category, "
    f"auction_extra, bidder, price, date_time, extra FROM ({_WINNING})",
    "q10": "SELECT auction, bidder, price, date_time, extra, DATE_FORMAT(date_time, 'yyyy-MM-dd') AS dt, "
    "DATE_FORMAT(date_time, 'HH:mm') AS hm FROM bids",
    "q11": "SELECT bidder, COUNT(*) AS bids, window_start, window_end FROM TABLE(SESSION(TABLE bids PARTITION BY "
    f"bidder, DESCRIPTOR(date_time), {_TEN_S})) GROUP BY bidder, window_start, window_end",
    "q12": f"SELECT bidder, COUNT(*) AS bids FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(`clock`), {_TEN_S})) "
    "GROUP BY bidder, window_start, window_end",
    "q13": f"SELECT B.auction, B.bidder, B.price, B.date_time, S.`value` FROM bids B JOIN {_SIDE} S "
    "ON MOD(B.auction, 1000) = S.`key`",
    "q14": "SELECT auction, bidder, 0.908 * price AS price, CASE WHEN "
    f"{_HOUR} BETWEEN 8 AND 18 THEN 'day' WHEN {_HOUR} <= 6 OR {_HOUR} >= 20 THEN 'night' ELSE 'other' END AS tod, "
    "date_time, extra, CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS c_count FROM bids "
    "WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000",
    "q15": f"SELECT CAST(date_time AS DATE) AS d, {_statistics('bidder', 'auction')} FROM bids "
    "GROUP BY CAST(date_time AS DATE)",
    "q16": "SELECT channel, CAST(date_time AS DATE) AS d, MAX(DATE_FORMAT(date_time, 'HH:mm')) AS m, "
    f"{_statistics('bidder', 'auction')} FROM bids GROUP BY channel, CAST(date_time AS DATE)",
    "q17": f"SELECT auction, CAST(date_time AS DATE) AS d, {_statistics()}, MIN(price) AS lo, MAX(price) AS hi, "
    "AVG(CAST(price AS DOUBLE)) AS mean, SUM(price) AS total FROM bids GROUP BY auction, CAST(date_time AS DATE)",
    "q18": "SELECT auction, bidder, price, channel, url, date_time, extra FROM (SELECT *, ROW_NUMBER() OVER "
    "(PARTITION BY bidder, auction ORDER BY date_time DESC) AS place FROM bids) WHERE place = 1",
    "q19": "SELECT auction, bidder, price, channel, url, date_time, extra, place FROM (SELECT *, ROW_NUMBER() OVER "
    "(PARTITION BY auction ORDER BY price DESC, date_time) AS place FROM bids) WHERE place <= 10",
    "q20": f"SELECT {_BID}, {_AUCTION} FROM bids B JOIN auctions A ON B.auction = A.id WHERE A.category = 10",
    "q21": f"SELECT auction, bidder, price, channel, {_CHANNEL_ID} AS channel_id FROM bids "
    f"WHERE {_CHANNEL_ID} IS NOT NULL",
    "q22": "SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3) AS dir1, SPLIT_INDEX(url, '/', 4) AS "
    "dir2, SPLIT_INDEX(url, '/', 5) AS dir3 FROM bids",
}

_KEYED = ("q9",)  # whose changes are told by their first column alone, without what they were before


class FlinkNexmark(Flink):
    """Bounded reads, as in the other comparisons with Flink."""

    def query(self, query: str, bootstrap: str, prefix: str) -> dict[str, Any]:
        environment = self._with_tables(bootstrap, prefix)
        columns = ", ".join(f"`{name}` {kind}" for name, kind in self._columns(environment, query))
        environment.execute_sql("DROP TABLE IF EXISTS nothing")
        environment.execute_sql(f"CREATE TABLE nothing ({columns}) WITH ('connector' = 'blackhole')")
        return _timed(environment, f"INSERT INTO nothing {QUERIES[query]}")

    @staticmethod
    def _columns(environment: Any, query: str) -> list[tuple[str, str]]:
        schema = environment.sql_query(QUERIES[query])._j_table.getResolvedSchema()
        kinds = [each.getLogicalType().asSerializableString() for each in schema.getColumnDataTypes()]
        return [
            (name, kind.replace(" NOT NULL", "")) for name, kind in zip(schema.getColumnNames(), kinds, strict=True)
        ]

    def verify(self, query: str, bootstrap: str, prefix: str) -> dict[str, Any]:
        environment = self._with_tables(bootstrap, prefix)
        found: Counter[tuple[Any, ...]] = Counter()
        last: dict[Any, tuple[Any, ...]] = {}
        # Times with a zone do not come into Python; the session's zone is UTC.
        columns = [
            f"CAST(`{name}` AS TIMESTAMP(3))" if "LOCAL TIME ZONE" in kind else f"`{name}`"
            for name, kind in self._columns(environment, query)
        ]
        with environment.execute_sql(f"SELECT {', '.join(columns)} FROM ({QUERIES[query]})").collect() as rows:
            for each in rows:
                row, kind = tuple(map(_plain, each)), each.get_row_kind().name
                found[row] += -1 if kind in ("UPDATE_BEFORE", "DELETE") else 1
                if query in _KEYED and (before := last.pop(row[0], None)) is not None:
                    found[before] -= 1
                last[row[0]] = row
        total = sum(zlib.crc32(repr(row).encode()) * times for row, times in found.items())
        return {"rows": found.total(), "sum": total}

    def _with_tables(self, bootstrap: str, prefix: str) -> Any:
        environment = self._environment("stream")
        for name, columns in _TABLES.items():
            options = {
                "connector": "kafka",
                "topic": prefix + name,
                "properties.bootstrap.servers": bootstrap,
                "scan.startup.mode": "earliest-offset",
                "scan.bounded.mode": "latest-offset",
                "format": "json",
                "json.timestamp-format.standard": "ISO-8601",
            }
            environment.execute_sql(f"DROP TABLE IF EXISTS {name}")
            environment.execute_sql(f"CREATE TABLE {name} ({columns}) WITH ({_spelt(options)})")
        side = {"connector": "filesystem", "path": f"file://{_side_input()}", "format": "csv"}
        environment.execute_sql(f"DROP TABLE IF EXISTS {_SIDE}")
        columns = "`key` BIGINT, `value` STRING"
        environment.execute_sql(f"CREATE TABLE {_SIDE} ({columns}) WITH ({_spelt(side)})")
        return environment


def _side_input() -> str:
    """The example's file without its first line, which Flink would take for data."""
    from harness import CACHE, ROOT

    lines = (ROOT / "examples" / "nexmark" / "side_input.csv").read_text().splitlines()
    path = CACHE / "nexmark-side-input.csv"
    path.write_text("\n".join(lines[1:]) + "\n")
    return str(path)


def _plain(value: Any) -> Any:
    """As `answers.summed` has it; this runs in Flink's own environment, where DuckDB is not."""
    if isinstance(value, datetime):
        return round((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * 1000)
    if isinstance(value, Decimal | float):
        return f"{float(value):.4f}"
    return str(value) if isinstance(value, date) else value
