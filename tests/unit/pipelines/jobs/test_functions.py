"""Functions of a pipeline's folder as a worker gets them: pickled, and loaded where nothing of the folder is known."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from pickle import PicklingError
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from pyspark import SparkContext, SparkFiles, cloudpickle
from pyspark.serializers import CPickleSerializer

from headrace.pipelines.jobs import functions
from headrace.pipelines.jobs.functions import explain, find_imports, pickle_by_value, send
from headrace.pipelines.jobs.load import BadFile, load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
            functions._helpers.pop(name, None)
            functions._files.pop(name, None)
    functions._sent.clear()


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


def test_a_function_carries_all_that_it_is_made_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)  # another test's may be there
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


CACHED = """
from functools import lru_cache
from pyspark.sql import functions as F
from headrace.pipelines import job, topic
import locked_helper
from locked_helper import locked
import bare.inner

@lru_cache
def cached(n):
    return n + 1

@lru_cache(maxsize=50)
def recursive(n):
    return recursive(n - 1) + 1 if n else 1

@F.udf("long")  # a worker that imported this file would have no session to declare it
def declared(n):
    return recursive(n)

def recursively(n):
    assert recursive.cache_parameters() == {"maxsize": 50, "typed": False}
    return recursive(n)

def by_name(n):
    return cached(n)

def by_module(n):
    return locked_helper.locked(n)

def directly(n):
    return locked(n)

def in_folder(n):
    return bare.inner.plus(n)

@job(inputs={"a": topic("a")}, outputs=topic("b"))
def copied(a):
    return a
"""


class Context:
    """Puts files where a worker finds them, as Spark's context does."""

    applicationId = "here"  # noqa: N815 - Spark's name

    def __init__(self) -> None:
        self.path: list[str] = []

    def addPyFile(self, path: str) -> None:  # noqa: N802
        self.path.append(path if path.endswith(".zip") else self._alone(Path(path)))

    def _alone(self, file: Path) -> str:
        folder = file.parent / f"sent-{file.stem}"
        folder.mkdir()
        shutil.copy(file, folder)
        return str(folder)


def test_what_cannot_be_pickled_is_imported_by_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    (tmp_path / "sparks-own").mkdir()
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(tmp_path / "sparks-own"))
    (tmp_path / "cached.py").write_text(CACHED)
    (tmp_path / "locked_helper.py").write_text(
        "import threading\n\nlock = threading.Lock()\n\ndef locked(n):\n    with lock:\n        return n + 1\n"
    )
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "inner.py").write_text("def plus(n):\n    return n + 1\n")
    (job,) = load(tmp_path / "cached.py")
    context = Context()
    send(cast("SparkSession", SimpleNamespace(sparkContext=context)))
    module = sys.modules[job.function.__module__]
    for name in ("by_name", "recursively", "by_module", "directly", "in_folder"):
        packed = cloudpickle.dumps(getattr(module, name))
        program = f"import pickle, sys; sys.path += {context.path}; print(pickle.loads({packed!r})(5))"
        ran = subprocess.run([sys.executable, "-c", program], cwd="/", capture_output=True, text=True, check=False)
        assert (ran.stdout, ran.stderr) == ("6\n", ""), name


FIXED = """
import sqlite3
import threading
from pyspark.sql import functions as F
from headrace.pipelines import job, topic

FREE = [1]
LOCK = threading.Lock()
OPEN = sqlite3.connect(":memory:")

def locked(n):
    return [m for m in range(n) if LOCK.locked()]

def locked_too(n):
    return LOCK

@F.udf("long")
def asked(n):
    return OPEN.execute("select 1").fetchone()[0]

def free(n):
    return n + 1

def around():
    lock = threading.Lock()
    return lambda n: lock.locked()

@job(inputs={"a": topic("a")}, outputs=topic("b"))
def copied(a):
    with LOCK:  # on the driver, where it belongs
        return a
"""


def test_what_cannot_be_sent_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)  # another test's may be there
    (tmp_path / "fixed.py").write_text(FIXED)
    (job,) = load(tmp_path / "fixed.py")
    pickle_by_value()
    module = sys.modules[job.function.__module__]
    said = []
    for function in (module.locked, module.asked.func, module.around()):
        with pytest.raises(PicklingError) as raised:
            CPickleSerializer().dumps(function)
        said.append(explain(raised.value))
    assert capsys.readouterr().err == "", "it is said once"
    mend = "make it inside the function, or in a module beside this file, which each worker imports for itself"
    held = f"cannot be sent to Spark's workers: {mend}"
    assert said[0] == f"LOCK, a _thread.lock, which locked and locked_too use, {held}"
    assert said[1] == f"OPEN, a sqlite3.Connection, which asked uses, {held}"
    assert CPickleSerializer().dumps(module.free)
    assert explain(ValueError("another")) is None
    del module.LOCK
    assert explain(raised.value) == (
        "a function holds something that cannot be sent to Spark's workers (TypeError: cannot pickle '_thread.lock' "
        f"object): {mend}"
    )


@pytest.mark.parametrize("line", ['F.col("cents") > 1', 'F.expr("cents > 1")', 'Window.partitionBy("a")', "F.lit(1)"])
def test_what_needs_a_session_while_a_file_is_read_is_one_sentence(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    text = "from pyspark.sql import Window\nfrom pyspark.sql import functions as F\n\nLARGE = " + line + "\n"
    (tmp_path / "columns.py").write_text(text)
    with pytest.raises(
        BadFile, match=r"columns.py:4: this needs Spark, which starts after .*inside the job's function"
    ):
        load(tmp_path / "columns.py")


def test_a_relative_import_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "pricing.py").touch()
    (tmp_path / "relative.py").write_text("from . import pricing\n")
    with pytest.raises(BadFile, match=r"relative.py:1: a pipeline file is not part of a package: write 'import"):
        load(tmp_path / "relative.py")


def test_helpers_are_what_the_folder_has_of_what_is_imported(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "seen")
    found = find_imports(folder / "seen.py")
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
