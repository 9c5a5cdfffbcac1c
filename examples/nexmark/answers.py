"""What Nexmark's queries must answer, asked of DuckDB over all events at once, and how results are held against it.

A result has the columns of the answer, and may have more, such as a window's end. Every
event has a time of its own, so that there is one answer where a query orders by it.
"""

import zlib
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from events import TOPICS, Event

Row = tuple[Any, ...]


def _statistics(*counted: str) -> str:
    """Of all bids and of each rank: how many, and how many different ones of some columns."""
    ranks = ("price < 10000", "price >= 10000 and price < 1000000", "price >= 1000000")
    made = []
    for name, count in {"bids": "*", **{f"{column}s": f"distinct {column}" for column in counted}}.items():
        made.append(f"count({count}) total_{name}")
        made += [f"count({count}) filter (where {rank}) rank{n}_{name}" for n, rank in enumerate(ranks, start=1)]
    return ", ".join(made)


JOINED = "auctions a join bids b on a.id = b.auction and b.date_time between a.date_time and a.expires"
WINNING = f"""(select b.*, item, description, initial_bid, reserve, a.date_time opened, expires, seller, category,
    a.extra auction_extra from {JOINED}
    qualify row_number() over (partition by auction order by price desc, b.date_time) = 1)"""
TUMBLED = "time_bucket(interval '10 seconds', date_time)"
HOPPED = """(select auction, count(*) num, window_start from (
    select auction, unnest(range(5)) * interval '2 seconds' + time_bucket(interval '2 seconds', date_time)
        - interval '8 seconds' window_start from bids) group by all)"""
RESTED = "coalesce(date_time - lag(date_time) over w > interval '10 seconds', true)"
SESSIONS = f"""(select bidder, date_time, sum(rested::int) over w number from
    (select bidder, date_time, {RESTED} rested from bids window w as (partition by bidder order by date_time))
    window w as (partition by bidder order by date_time))"""

ANSWERS = {
    "q0": "select auction, bidder, price, date_time, extra from bids",
    "q1": "select auction, bidder, (0.908 * price)::decimal(23, 3) price, date_time, extra from bids",
    "q2": "select auction, price from bids where auction % 123 = 0",
    "q3": """select name, city, state, a.id from auctions a join persons p on a.seller = p.id
        where category = 10 and state in ('OR', 'ID', 'CA')""",
    "q4": f"""select category, avg(final) final from
        (select category, max(price) final from {JOINED} group by a.id, category) group by category""",
    "q5": f"""select auction, num, window_start from {HOPPED}
        qualify num = max(num) over (partition by window_start)""",
    "q6": f"""select seller, avg(price) avg_price from (from {WINNING}
        qualify row_number() over (partition by seller order by date_time desc) <= 10) group by seller""",
    "q7": f"""select auction, bidder, price, date_time, extra from bids
        qualify price = max(price) over (partition by {TUMBLED})""",
    "q8": f"""select distinct id, name, window_start from (select id, name, {TUMBLED} window_start from persons)
        join (select seller, {TUMBLED} window_start from auctions) using (window_start) where id = seller""",
    "q9": f"""select auction, item, description, initial_bid, reserve, opened, expires, seller, category, auction_extra,
        bidder, price, date_time, extra from {WINNING}""",
    "q10": """select auction, bidder, price, date_time, extra, strftime(date_time, '%Y-%m-%d') dt,
        strftime(date_time, '%H:%M') hm from bids""",
    "q11": f"""select bidder, count(*) bids, min(date_time) window_start,
        max(date_time) + interval '10 seconds' window_end from {SESSIONS} group by bidder, number""",
    "q12": "select bidder, count(*) bids from bids group by bidder",
    "q13": """select auction, bidder, price, date_time, 'side-' || auction % 1000 as value
        from bids where auction % 1000 < 100""",
    "q14": """select auction, bidder, (0.908 * price)::decimal(23, 3) price, case when hour(date_time) between 8 and 18
        then 'day' when hour(date_time) <= 6 or hour(date_time) >= 20 then 'night' else 'other' end time_of_day,
        date_time, extra, length(extra) - length(replace(extra, 'c', '')) c_count
        from bids where 0.908 * price > 1000000 and 0.908 * price < 50000000""",
    "q15": f"select date_time::date as day, {_statistics('bidder', 'auction')} from bids group by all",
    "q16": f"""select channel, date_time::date as day, max(strftime(date_time, '%H:%M')) as minute,
        {_statistics("bidder", "auction")} from bids group by all""",
    "q17": f"""select auction, date_time::date as day, {_statistics()}, min(price) min_price, max(price) max_price,
        avg(price) avg_price, sum(price)::bigint sum_price from bids group by all""",
    "q18": """select auction, bidder, price, channel, url, date_time, extra from bids
        qualify row_number() over (partition by bidder, auction order by date_time desc) = 1""",
    "q19": """select auction, bidder, price, channel, url, date_time, extra, row_number() over
        (partition by auction order by price desc, date_time) as rank from bids qualify rank <= 10""",
    "q20": """select b.*, item, description, initial_bid, reserve, a.date_time opened, expires, seller, category,
        a.extra auction_extra from bids b join auctions a on b.auction = a.id where category = 10""",
    "q21": """select auction, bidder, price, channel, coalesce(map {'apple': '0', 'google': '1', 'facebook': '2',
        'baidu': '3'}[lower(channel)], nullif(regexp_extract(url, 'channel=channel-([0-9]+)', 1), '')) channel_id
        from bids where channel_id is not null""",
    "q22": """select auction, bidder, price, channel, split_part(url, '/', 4) dir1, split_part(url, '/', 5) dir2,
        split_part(url, '/', 6) dir3 from bids""",
}

# Which windows a bid is in by the clock depends on when the query ran; that each is counted once does not.
COMPARED = {
    "q12": "select bidder, sum(bids)::bigint from {} where window_end = window_start + interval '10s' group by all"
}


def summed(rows: Counter[Row]) -> dict[str, int]:
    """How many rows, and a number that differs where they do, whoever found them and in whatever order."""
    total = sum(zlib.crc32(repr(tuple(map(_plain, row))).encode()) * count for row, count in rows.items())
    return {"rows": rows.total(), "sum": total}


def _plain(value: Any) -> Any:
    """A value as every engine may tell it: decimals and floats as rounded numbers, times in milliseconds."""
    if isinstance(value, datetime):
        return round((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * 1000)
    if isinstance(value, Decimal | float):
        return f"{float(value):.4f}"
    return str(value) if isinstance(value, date) else value


class Oracle:
    """DuckDB with all events in it, and a look at results."""

    def __init__(self, made: list[Event], results: Path) -> None:
        self._db = duckdb.connect()
        self._results = results
        self._db.execute("set timezone = 'UTC'")
        for topic in TOPICS:
            rows = pa.Table.from_pylist([event.row for event in made if event.topic == topic])
            self._db.register("rows", rows)
            times = [name for name in ("date_time", "expires") if name in rows.column_names]
            cast = ", ".join(f"{name}::timestamptz as {name}" for name in times)
            self._db.execute(f"create table {topic} as select * replace ({cast}) from rows")

    def expected(self, query: str) -> Counter[Row]:
        """The answer."""
        return Counter(self._db.execute(ANSWERS[query]).fetchall())

    def columns(self, query: str) -> list[str]:
        """The columns of the answer."""
        return [column[0] for column in self._db.execute(ANSWERS[query]).description or ()]

    def found(self, query: str) -> Counter[Row]:
        """The result."""
        columns = ", ".join(self.columns(query))
        select = COMPARED.get(query, f"select {columns} from {{}}")
        files = self._results / query
        if files.is_dir():
            return Counter(self._db.execute(select.format(f"read_parquet('{files}/*/*/*/*.parquet')")).fetchall())
        self._db.execute(f"attach '{self._results / 'views.duckdb'}' as views (read_only)")
        try:
            return Counter(self._db.execute(select.format(f"views.{query}")).fetchall())
        finally:
            self._db.execute("detach views")  # for the file is one process's at a time
