"""Each cell of the page about what may be lost has a test, and it is one that runs."""

import importlib
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
GENERATE = runpy.run_path(str(ROOT / "docs" / "generate.py"))
DELIVERY = GENERATE["reference_delivery"]
NOTHING_COMES_IN = "nothing comes in"
CELLS = [
    pytest.param(row[column], id=f"{row['name']} {column}")
    for table, rows in DELIVERY.read_tables().items()
    for row in rows
    for column in DELIVERY.COLUMNS[table]
]


def test_the_page_has_the_tables() -> None:
    assert GENERATE["DELIVERY"].read_text() == GENERATE["delivery"](), "run `make docs` and commit what it changes"


def test_every_kind_of_gateway_is_in_it() -> None:
    from headrace.gateways.section import KINDS

    told = " ".join(row["name"] for table in ("into", "out") for row in DELIVERY.read_tables()[table])
    for kind in KINDS:
        assert f"`{kind}`" in told


@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_has_a_test_that_runs(cell: list[str]) -> None:
    says, test = cell
    if says == NOTHING_COMES_IN:
        assert not test
        return
    name, *parts = test.split("::")
    found = [each for module in modules(name) if (each := function(module, parts)) is not None]
    assert len(found) == 1, f"{test} names {len(found)} tests"
    assert parts[-1].startswith("test_")
    marks = {mark.name for mark in getattr(found[0], "pytestmark", ())}
    assert not marks & {"skip", "long"}, "it does not run by itself"


def modules(name: str) -> Iterator[ModuleType]:
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))
    for path in (*ROOT.glob(f"tests/**/{name}"), *ROOT.glob(f"src/headrace/testing/contracts/{name}")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield importlib.import_module(".".join(parts[1:] if parts[0] == "src" else parts))


def function(inside: object, parts: list[str]) -> object:
    for part in parts:
        inside = getattr(inside, part, None)
    return inside
