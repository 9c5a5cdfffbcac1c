"""What the documentation says is true: its examples run, its links lead somewhere, its reference is the code's."""

import ast
import importlib.util
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
GENERATE = runpy.run_path(str(ROOT / "docs" / "generate.py"))
EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|#)([^)#\s]+)")
STARTS_SPARK = re.compile(r"\bsession\(")


def _marks(page: Path, example: str) -> tuple[pytest.MarkDecorator, ...]:
    """Starting Spark takes its time: of the examples that do, only what is read first runs always."""
    if not STARTS_SPARK.search(example):
        return ()
    return (pytest.mark.java,) if page.parent == ROOT / "docs" else (pytest.mark.java, pytest.mark.long)


EXAMPLES = [
    pytest.param(
        block,
        id=f"{page.relative_to(ROOT)}:{index}",
        marks=_marks(page, block),
    )
    for page in PAGES
    for index, block in enumerate(EXAMPLE.findall(page.read_text()))
]


@pytest.mark.parametrize("name", GENERATE["PAGES"])
def test_the_reference_is_the_codes(name: str) -> None:
    page = ROOT / "docs" / "reference" / name
    assert page.read_text() == GENERATE["PAGES"][name](), "run `make docs` and commit what it changes"


def test_the_figures_are_what_the_benchmarks_kept() -> None:
    assert (ROOT / "docs" / "figures.md").read_text() == GENERATE["figures"](), "run `make docs` and commit"
    text = (ROOT / "README.md").read_text()
    assert text == GENERATE["readme"](), "run `make docs` and commit what it changes"
    assert len(text.splitlines()) <= 120
    block = text.partition("<!-- figures:")[2].partition("<!-- figures end -->")[0]
    rows = [line for line in block.splitlines() if re.search(r"\d×", line)]
    assert len(rows) == 10
    assert not re.search(r"\d×|MB/s", text.replace(block, "")), "a figure of README that no benchmark kept"


def test_what_the_benchmarks_kept_says_when_where_and_how_often() -> None:
    made = set(re.findall(r"^bench-(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    kept = {path.stem: json.loads(path.read_text()) for path in (ROOT / "benchmarks" / "results").glob("*.json")}
    assert kept.keys() <= made
    for name, figures in kept.items():
        assert len({(each["name"], each["unit"]) for each in figures}) == len(figures), name
        for each in figures:
            assert each["values"] or each["ratios"], each
            assert re.fullmatch(r"\d{4}-\d\d-\d\d", each["date"]), each
            assert each["machine"], each
            # What was carried over was printed without its rounds' range; of what may be below zero there is no ratio.
            if each.get("carried"):
                assert not each["spreads"], each
            else:
                assert each["ratios"].keys() <= each["spreads"].keys(), each


def test_the_page_about_polling_has_what_was_measured() -> None:
    page = ROOT / "docs" / "explanation" / "polling.md"
    assert page.read_text() == GENERATE["polling"](), "run `make docs` and commit"
    plot, image = GENERATE["reference_polling"].plot(), ROOT / "docs" / "images" / "polling.svg"
    assert (image.read_text() if image.exists() else "") == plot, "run `make docs` and commit"


def test_a_run_replaces_its_figures_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    harness = runpy.run_path(str(ROOT / "benchmarks" / "harness.py"))
    keep, figure = harness["keep"], harness["Figure"]
    monkeypatch.setitem(keep.__globals__, "RESULTS", tmp_path)
    old = {"values": {"Headrace": 1}, "ratios": {}, "spreads": {}, "date": "2026-11-15", "machine": "m", "rounds": 2}
    before = [{"name": name, "unit": "MB/s", **old, "carried": True} for name in ("append", "append 1 KiB", "read")]
    (tmp_path / "log.json").write_text(json.dumps(before))
    keep("log", [figure.of("append 1 KiB", "MB/s", {"Headrace": [30, 10, 20], "plain": [10, 10, 10]})], 3)
    read, made = json.loads((tmp_path / "log.json").read_text())
    assert (read["name"], read["carried"], read["date"]) == ("read", True, "2026-11-15")
    assert (made["name"], made["values"], made["rounds"]) == ("append 1 KiB", {"Headrace": 20, "plain": 10}, 3)
    assert (made["ratios"], made["spreads"]) == ({"plain": 2}, {"plain": [1, 3]})
    assert "carried" not in made


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_runs(example: str) -> None:
    # Not in pytest's own folder, which every pytest that starts closes to others, such as those that examples start
    # here: a PostgreSQL runs as its own user.
    with TemporaryDirectory(prefix="headrace-example-") as folder:
        run_example(example, Path(folder))


def run_example(example: str, folder: Path) -> None:
    is_test = "\ndef test_" in f"\n{example}"
    file = folder / ("test_example.py" if is_test else "example.py")
    file.write_text(example)
    command = [
        sys.executable,
        *(["-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)] if is_test else [str(file)]),
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"


def test_what_pages_examples_and_benchmarks_import_is_there() -> None:
    """Also of those that are run rarely, or by nobody but a user."""
    texts = [(page, block) for page in PAGES for block in EXAMPLE.findall(page.read_text())]
    texts += [
        (file, file.read_text()) for folder in ("examples", "benchmarks") for file in (ROOT / folder).rglob("*.py")
    ]
    missing = []
    for place, text in texts:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and not node.level and str(node.module).startswith("headrace"):
                missing += [
                    f"{place.relative_to(ROOT)}: {node.module}.{alias.name}"
                    for alias in node.names
                    if not _can_import(str(node.module), alias.name)
                ]
    assert missing == []


def _can_import(module: str, name: str) -> bool:
    try:
        return hasattr(importlib.import_module(module), name) or bool(importlib.util.find_spec(f"{module}.{name}"))
    except ModuleNotFoundError:
        return False


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        assert str(page.relative_to(ROOT / "docs")) in navigation, f"{page} is missing in mkdocs.yml"


def test_every_test_that_the_threat_model_names_is_there() -> None:
    page = (ROOT / "docs" / "explanation" / "threat-model.md").read_text()
    named = re.findall(r"`(tests/[^`]+)`", page)
    assert len(named) > 10
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_every_decision_is_listed() -> None:
    listing = (ROOT / "docs" / "decisions" / "README.md").read_text()
    for page in (ROOT / "docs" / "decisions").glob("0*.md"):
        assert page.name in listing


def test_every_make_target_explains_itself() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (line,) = [line for line in makefile.splitlines() if line.startswith(".PHONY:")]
    for target in line.removeprefix(".PHONY:").split():
        assert re.search(rf"^{re.escape(target)}:.*##", makefile, re.MULTILINE), f"make {target} has no ## text"
