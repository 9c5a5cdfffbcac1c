"""What is true of the shop right now, asked on every side: the database, the log, the views, and all that is derived.

Each side is asked by itself, and one that is down says so and holds up no other.
"""

import json
import sqlite3
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.offsets import bounds
from headrace.connect.sync.settings import SECTION, from_section
from headrace.connect.sync.status import status_of
from headrace.stack import state_file
from headrace.stack.document import read_sections

_TOTALS = """
SELECT count(*), count(*) FILTER (WHERE status <> 'cancelled'),
       coalesce(sum(cents) FILTER (WHERE status <> 'cancelled'), 0)::bigint FROM orders
"""
_WINDOWS = """
SELECT window_start, sum(orders) AS orders, sum(cents) AS cents, sum(revision > 1) AS again FROM revenue
GROUP BY window_start ORDER BY window_start DESC LIMIT 18
"""
_AGAIN = """
SELECT window_start, city, orders, cents FROM revenue WHERE revision > 1 ORDER BY window_start DESC, city LIMIT 6
"""
_CORRECTED = "SELECT count(*), count(*) FILTER (WHERE revision > 1) FROM revenue"
TOPICS = ("shop.public.orders", "shop.public.customers", "shop.public.products", "shop.enriched")


@dataclass
class Shop:
    """A stack in a folder, and the database that it captures."""

    folder: Path
    database: str
    _clusters: dict[str, Cluster] = field(default_factory=dict)

    def look(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        state = state_file.read(self.folder)
        bootstrap = state.bootstrap if state else ""
        views = next((m.facts.get("url") for m in state.members if m.name == "views.serve"), None) if state else None
        found: dict[str, Any] = {
            "at": time.time(),
            "parts": [
                {"name": m.name, "phase": m.phase, "pid": m.pid, "restarts": m.restarts, "url": m.facts.get("url")}
                for m in (state.members if state else ())
            ],
            "database": _answer(self._totals),
            "log": _answer(lambda: self._log(bootstrap)) if bootstrap else None,
            "view": _answer(lambda: _view(views)) if views else None,
            "revenue": _answer(self._revenue),
            "derived": _answer(lambda: self._derived(bootstrap)) if bootstrap else None,
            "products": _answer(self._products),
            "left_out": _left_out(state.members if state else ()),
        }
        return found | {"in_step": in_step(found)}

    def _totals(self) -> dict[str, int]:
        with psycopg.connect(self.database, connect_timeout=2) as db:
            orders, standing, cents = db.execute(_TOTALS).fetchone() or (0, 0, 0)
            products = db.execute("SELECT sum(cents)::bigint FROM products").fetchone()
        return {"orders": orders, "standing": standing, "cents": cents, "products": products[0] if products else 0}

    def _cluster(self, bootstrap: str) -> Cluster:
        if bootstrap not in self._clusters:
            for old in self._clusters.values():
                old.close()
            self._clusters = {bootstrap: Cluster(parse_bootstrap(bootstrap))}
        return self._clusters[bootstrap]

    def _log(self, bootstrap: str) -> dict[str, int]:
        cluster = self._cluster(bootstrap)
        found = {}
        for topic in TOPICS:
            found[topic] = sum(bound.end for bound in bounds(cluster, cluster.partitions(topic)).values())
        return found

    def _derived(self, bootstrap: str) -> list[dict[str, Any]]:
        cluster, now_ms = self._cluster(bootstrap), int(time.time() * 1000)
        sections = read_sections(self.folder / "headrace.toml", SECTION)
        told = [status_of(cluster, from_section(name, section), now_ms) for name, section in sections.items()]
        return [
            {"name": each.name, "sink": each.sink, "state": each.state, "lag": each.lag_records, "lag_s": each.lag_s}
            for each in told
        ]

    def _revenue(self) -> dict[str, Any]:
        with _sqlite(self.folder / "revenue.sqlite") as db:
            windows = [dict(row) for row in db.execute(_WINDOWS)]
            again = [dict(row) for row in db.execute(_AGAIN)]
            total, corrected = db.execute(_CORRECTED).fetchone()
        return {"windows": windows[::-1], "again": again, "total": total, "corrected": corrected}

    def _products(self) -> dict[str, Any]:
        with _sqlite(self.folder / "cache.sqlite") as db:
            (cents,) = db.execute("SELECT sum(cents) FROM products").fetchone()
        return {"cents": cents}


def in_step(found: dict[str, Any]) -> dict[str, bool | None]:
    """Whether each derived system says just what the database says at this moment; None where it cannot be told."""
    database, view, products, derived = (found[name] for name in ("database", "view", "products", "derived"))
    lags = {each["name"]: each["lag"] for each in derived} if isinstance(derived, list) else {}
    told: dict[str, bool | None] = {"view": None, "cache": None, "search": None, "warehouse": None}
    if database and "error" not in database:
        if view and "error" not in view:
            told["view"] = (view["orders"], view["cents"]) == (database["standing"], database["cents"])
        if products and "error" not in products:
            told["cache"] = products["cents"] == database["products"]
    for name in ("search", "warehouse"):
        if lags.get(name) is not None:
            told[name] = lags[name] == 0
    return told


def _left_out(members: tuple[state_file.MemberState, ...]) -> int:
    """Orders that came later than a window is kept open for: the pipelines count them."""
    reports = [fact for member in members for fact in member.facts.values() if isinstance(fact, dict)]
    return sum(int(report.get("late_rows_total") or 0) for report in reports)


def _view(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}/views/cities?limit=100&order=-cents", timeout=2) as answer:
        told = json.load(answer)
    rows = told["rows"]
    return {
        "rows": rows,
        "freshness": told["freshness"],
        "orders": sum(row["orders"] for row in rows),
        "cents": sum(int(row["cents"]) for row in rows),
    }


def _sqlite(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=2)
    db.row_factory = sqlite3.Row
    return db


def _answer(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except Exception as error:  # noqa: BLE001  a side that is down is a fact like others
        return {"error": str(error).splitlines()[0] if str(error) else type(error).__name__}
