"""What the documentation says is true: its examples run, its links lead somewhere, its reference is the code's."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

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
    return (pytest.mark.java,) if page.name == "README.md" else (pytest.mark.java, pytest.mark.long)


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


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_runs(example: str, tmp_path: Path) -> None:
    is_test = "\ndef test_" in f"\n{example}"
    file = tmp_path / ("test_example.py" if is_test else "example.py")
    file.write_text(example)
    command = [
        sys.executable,
        *(["-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)] if is_test else [str(file)]),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        assert str(page.relative_to(ROOT / "docs")) in navigation, f"{page} is missing in mkdocs.yml"


def test_every_decision_is_listed() -> None:
    listing = (ROOT / "docs" / "decisions" / "README.md").read_text()
    for page in (ROOT / "docs" / "decisions").glob("0*.md"):
        assert page.name in listing


def test_every_make_target_explains_itself() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (line,) = [line for line in makefile.splitlines() if line.startswith(".PHONY:")]
    for target in line.removeprefix(".PHONY:").split():
        assert re.search(rf"^{re.escape(target)}:.*##", makefile, re.MULTILINE), f"make {target} has no ## text"
