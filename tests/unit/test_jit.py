"""Loops that are kept on disk: they are compiled again when what they call has changed, in whatever file that is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba")

INNER = "from headrace.jit import compiled\n\n@compiled\ndef inner(x: int) -> int:\n    return x + {}\n"
OUTER = """
from inner import inner
from headrace.jit import compiled

@compiled
def outer(x: int) -> int:
    return inner(x) * 10
"""


def run(folder: Path) -> str:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "kept"), "PYTHONDONTWRITEBYTECODE": "1"}
    code = "from outer import outer; shown = outer(1), sum(outer.dispatcher.stats.cache_hits.values()); print(*shown)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_loop_is_compiled_again_when_what_it_calls_changes(tmp_path):
    (tmp_path / "outer.py").write_text(OUTER)
    (tmp_path / "inner.py").write_text(INNER.format(1))
    assert run(tmp_path) == "20 0"
    assert run(tmp_path) == "20 1"
    (tmp_path / "inner.py").write_text(INNER.format(20))
    assert run(tmp_path) == "210 0"
