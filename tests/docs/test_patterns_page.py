"""The commands at the beginning of the guide to patterns, and what they print; the examples that it tells of."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "patterns.md").read_text()
BLOCKS = re.findall(r"^```(shell|text)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_commands_print_what_the_page_shows(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    said = ""
    shown = 0
    for kind, text in BLOCKS:
        if kind == "shell":
            done = subprocess.run(
                ["bash", "-ec", text], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
            )
            assert done.returncode == 0, done.stdout + done.stderr
            said = done.stdout
        else:
            shown += 1
            assert [line.rstrip() for line in said.splitlines()] == text.splitlines()
    assert shown == 2


def test_the_patterns_told_are_those_of_the_examples() -> None:
    told = PAGE[PAGE.index("### Card fraud") : PAGE.index("### As jobs")]
    examples = "".join(file.read_text() for file in (ROOT / "examples" / "patterns").glob("*.py"))
    quoted = re.findall(r"^```\n(.*?)^```", told, re.MULTILINE | re.DOTALL)
    assert len(quoted) == 5
    assert [one for one in quoted if one not in examples] == []
