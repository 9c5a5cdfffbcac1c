"""Sinks killed in the middle of a write: the target holds what its place says, and in the end what the log says.

`HEADRACE_SEED` chooses the moments; a failure prints it.
"""

import multiprocessing
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.connect.sync.registry import make_sink
from tests.integration.sync_dying import BATCHES, Table, settings, work, write
from tests.integration.table_sink_stores import PostgresServer
from tests.servers.redis import RedisServer

SEED = int(os.environ.get("HEADRACE_SEED", random.randrange(2**32)))
DEATHS = 12
NAMES = ("postgres", "redis", "sqlite", "duckdb", "tantivy")


@pytest.fixture
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """A sink's name and its options."""
    name = request.param
    if name == "postgres":
        postgres = PostgresServer()
        yield name, {"url": postgres.url, "table": "orders"}
        postgres.end()
    elif name == "redis":
        redis = RedisServer()
        yield name, {"url": redis.url, "prefix": "orders:"}
        redis.end()
    else:
        yield name, {"path": str(tmp_path / "target"), **({} if name == "tantivy" else {"table": "orders"})}


def held(name: str, options: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Which batch the target says it holds, and its rows as they are compared."""
    sink: Any = make_sink(settings(name, options), "")
    place = sink.place()
    rows = {row.key: dict(row.values) for chunk in sink.scan() for row in chunk} if place is not None else {}
    return (0 if place is None else place.offsets[0]), rows


def shown(name: str, options: dict[str, Any], table: Table) -> dict[str, Any]:
    """A table as the target would show it."""
    sink: Any = make_sink(settings(name, options), "")
    compared = [sink.comparable({"id": key}, row) for key, row in table.items()]
    return {row.key: dict(row.values) for row in compared}


@pytest.mark.parametrize("target", NAMES, indirect=True, ids=NAMES)
def test_a_target_is_whole_wherever_its_writer_dies(target: tuple[str, dict[str, Any]]) -> None:
    print(f"HEADRACE_SEED={SEED}")
    name, options = target
    chance = random.Random(SEED)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.integration.sync_dying"])
    _, tables = work()
    deaths, most = 0, 3_000
    while True:
        calls = chance.randrange(1, most) if deaths < DEATHS else 0
        writer = context.Process(target=write, args=(name, options, calls))
        writer.start()
        writer.join(240)
        assert writer.exitcode in (0, -9), f"HEADRACE_SEED={SEED}"
        done, rows = held(name, options)
        if writer.exitcode == 0:
            break
        deaths += 1
        most = int(most * 1.5)
        before = shown(name, options, tables[done])
        if name == "redis":  # its parts are seen one by one; the place comes with the last
            after = shown(name, options, tables[done + 1]) if done < BATCHES else before
            wrong = {
                key for key in rows.keys() | before.keys() | after.keys()
                if rows.get(key) not in (before.get(key), after.get(key))
            }  # fmt: skip
            assert not wrong, f"HEADRACE_SEED={SEED}"
        else:
            assert rows == before, f"HEADRACE_SEED={SEED}"
    assert done == BATCHES
    assert rows == shown(name, options, tables[-1])
    assert deaths >= 3
