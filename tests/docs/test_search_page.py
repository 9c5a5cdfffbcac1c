"""The commands at the beginning of the guide to search on streams, and what they print."""

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "search-on-streams.md").read_text()
BLOCKS = re.findall(r"^```(shell|text)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
ROWS = re.findall(
    r"^\| `(.*?) \|", PAGE.partition("## The language")[2].partition("What a query costs")[0], re.MULTILINE
)


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


def test_every_query_of_the_language_table_is_read() -> None:
    from headrace.percolation.reading import read_query

    queries = [query for row in ROWS for query in re.findall(r"`([^`]+)`", f"`{row}")]
    assert len(queries) > 30
    for query in queries:
        read_query({"\\(": "a\\(", "\\:": "a\\:", "\\u003a": "a\\u003a", "`, `": "a"}.get(query, query))
