"""What a new user does first: install the wheel, exactly as a page says, and run what stands below.

Each environment is made from a wheel built here, with the versions of `requirements/`, and nothing else in it.
"""

import os
import re
import shlex
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pytest

from headrace.extras import EXTRA_OF

ROOT = Path(__file__).parent.parent.parent
BIN = ROOT / ".venv" / "bin"
PAGES = ("README.md", "docs/tutorial/first-broker.md", "docs/tutorial/first-pipeline.md")
_INSTALL = re.compile(r"pip install ([^`\n&)]+)")
_SNIPPET = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def snippets() -> list[object]:
    """Every Python snippet of the first pages, with what the nearest sentence before it says to install."""
    found = []
    for page in PAGES:
        text = (ROOT / page).read_text()
        for index, match in enumerate(_SNIPPET.finditer(text)):
            installs = _INSTALL.findall(text, 0, match.start())
            wanted = tuple(shlex.split(installs[-1])) if installs else ()
            needs_spark = any("spark" in package for package in wanted)
            marks = (pytest.mark.java, pytest.mark.long) if needs_spark else ()
            found.append(pytest.param(wanted, match.group(1), id=f"{page}:{index}", marks=marks))
    return found


class Installs:
    """Fresh environments, one for each list of packages."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        _run(BIN / "uv", "build", "--quiet", "--wheel", "--no-build-isolation", "--python", BIN / "python",
             "--out-dir", folder / "dist", ROOT)  # fmt: skip
        (self._wheel,) = (folder / "dist").glob("*.whl")
        self.having = cache(self._having)

    def _having(self, packages: tuple[str, ...]) -> Path:
        home = self._folder / f"environment-{len(list(self._folder.iterdir()))}"
        _run(BIN / "uv", "venv", "--quiet", "--python", BIN / "python", home)
        named = [re.sub(r"^headrace(\[.*\])?$", rf"headrace\1 @ {self._wheel.as_uri()}", name) for name in packages]
        _run(BIN / "uv", "pip", "install", "--quiet", "--python", home / "bin" / "python",
             "--constraint", ROOT / "requirements" / "dev.txt", *named)  # fmt: skip
        return home / "bin"


def _run(*command: object) -> None:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def installs(tmp_path_factory: pytest.TempPathFactory) -> Installs:
    return Installs(tmp_path_factory.mktemp("fresh"))


def run_in(bin_folder: Path, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HEADRACE_", "PYTHON"))}
    environment["PATH"] = f"{bin_folder}:{environment['PATH']}"
    return subprocess.run(
        [str(bin_folder / command[0]), *command[1:]],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=240,
    )  # fmt: skip


@pytest.mark.parametrize(("wanted", "snippet"), snippets())
def test_a_snippet_runs_with_what_its_page_says_to_install(
    installs: Installs, tmp_path: Path, wanted: tuple[str, ...], snippet: str
) -> None:
    assert wanted, "no `pip install …` stands before it"
    (tmp_path / "snippet.py").write_text(snippet)
    done = run_in(installs.having(wanted), tmp_path, "python", "snippet.py")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("cdc start shop --url postgresql://me@127.0.0.1:1/shop", "postgres"),
        ("cdc start shop --url mysql://me@127.0.0.1:1/shop", "mysql"),
        ("cdc start shop --url mariadb://me@127.0.0.1:1/shop", "mysql"),
        ("view list", "spark"),
        ("view serve", "dashboard"),
        ("pipeline list jobs.py", "spark"),
        ("pipeline run jobs.py", "spark"),
        ("dashboard start", "dashboard"),
        ("up --check --config warehouse.toml", "warehouse"),
    ],
)
def test_a_missing_extra_is_one_sentence(installs: Installs, tmp_path: Path, command: str, extra: str) -> None:
    (tmp_path / "jobs.py").write_text("from pyspark.sql import DataFrame\n")
    (tmp_path / "views.py").write_text("from headrace.pipelines.views import view\n")
    (tmp_path / "warehouse.toml").write_text(
        '[broker]\n[sync.copy]\ntopic = "orders"\nsink = "duckdb"\npath = "w.duckdb"\ntable = "orders"\n'
    )
    done = run_in(installs.having(("headrace",)), tmp_path, "headrace", *command.split())
    assert done.returncode == 1, done.stdout + done.stderr
    (sentence,) = [line for line in done.stderr.splitlines() if line.strip()]
    assert f"pip install 'headrace[{extra}]'" in sentence


def test_the_first_file_names_the_extra_that_it_needs(installs: Installs, tmp_path: Path) -> None:
    bare = installs.having(("headrace",))
    done = run_in(bare, tmp_path, "headrace", "init")
    assert done.returncode == 0
    assert "pip install 'headrace[dashboard]'" in done.stdout
    names = run_in(bare, tmp_path, "python", "-c", "import headrace; print(dir(headrace))").stdout
    assert all(name in names for name in ("Broker", "changes", "look"))


def test_every_package_of_an_extra_is_known() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    everything = extras.pop("all")
    assert everything == [f"headrace[{','.join(extras)}]"]
    assert set(EXTRA_OF.values()) == set(extras) - {"statsd"}  # without which nothing is missing, and all is slower
    assert (ROOT / "LICENSE").read_text().lstrip().startswith("Apache License")
