"""Functions of a pipeline's folder as a worker gets them: pickled, and loaded where nothing of the folder is known."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import cloudpickle

from headrace.pipelines.jobs.functions import imports_of, pickle_by_value
from headrace.pipelines.jobs.load import BadFile, load

FILE = """
from dataclasses import dataclass
import json
import pandas as pd
from pyspark.sql import functions as F
from headrace.pipelines import job, topic
import price_of_{0} as pricing
from shapes_{0}.round import SIDES

RATE = 3

@dataclass
class Rate:
    times: int

def priced(n):
    return pricing.twice(n) * Rate(RATE).times + SIDES

def lazily(n):
    import later_{0}
    return later_{0}.one() + n

@F.udf("array<long>")
def listed(n):
    return [priced(n)]

@F.pandas_udf("long")
def many(ns: pd.Series) -> pd.Series:
    return ns + RATE

@job(inputs={{"a": topic("a")}}, outputs=topic("b"))
def copied(a):
    return a
"""


@pytest.fixture(autouse=True)
def _as_before(tmp_path: Path) -> Iterator[None]:
    path = list(sys.path)
    yield
    sys.path[:] = path
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


def folder_of(tmp_path: Path, name: str) -> Path:
    folder = tmp_path / name
    (folder / f"shapes_{name}").mkdir(parents=True)
    (folder / f"shapes_{name}" / "__init__.py").touch()
    (folder / f"shapes_{name}" / "round.py").write_text("SIDES = 1\n")
    (folder / f"price_of_{name}.py").write_text(
        f"from deeper_{name} import two\n\ndef twice(n):\n    return two() * n\n"
    )
    (folder / f"deeper_{name}.py").write_text("def two():\n    return 2\n")
    (folder / f"later_{name}.py").write_text("def one():\n    return 1\n")
    (folder / "json.py").write_text("raise RuntimeError('not meant')\n")
    (folder / f"{name}.py").write_text(FILE.format(name))
    return folder


def test_a_function_carries_all_that_it_is_made_of(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "carried")
    (job,) = load(folder / "carried.py")
    pickle_by_value()
    module = sys.modules[job.function.__module__]
    for name, arguments in (("priced", "(5)"), ("Rate", "(31).times")):
        packed = cloudpickle.dumps(getattr(module, name))
        program = f"import pickle; print(pickle.loads({packed!r}){arguments})"
        ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (ran.stdout, ran.stderr) == ("31\n", ""), name
    assert module.listed.func(5) == [31]
    assert module.listed.returnType == "array<long>", "no JVM was asked for it yet"
    assert module.lazily(1) == 2, "the folder is known in this process from now on"


def test_helpers_are_what_the_folder_has_of_what_is_imported(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "seen")
    found = imports_of(folder / "seen.py")
    names = ["price_of_seen.py", "shapes_seen", "deeper_seen.py", "later_seen.py"]
    assert sorted(found.helpers.values()) == sorted(folder / name for name in names)
    assert {"json", "pandas", "pyspark", "headrace", "dataclasses"} == found.others


def test_two_helpers_of_one_name_are_not_mixed_up(tmp_path: Path) -> None:
    one, two = folder_of(tmp_path, "one"), folder_of(tmp_path, "two")
    load(one / "one.py")
    (two / "price_of_one.py").write_text("def twice(n):\n    return 'wrong'\n")
    (two / "two.py").write_text((two / "two.py").read_text().replace("price_of_two", "price_of_one"))
    with pytest.raises(BadFile, match=r"two.py imports 'price_of_one', and .*one/price_of_one.py is loaded"):
        load(two / "two.py")
