"""`make demo`: the whole stack at work, its broker killed, and every side says the same in the end."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "examples" / "shop" / "demo.py"


@pytest.mark.java
@pytest.mark.timeout(720)
def test_the_shop_goes_through_kills_and_every_side_says_the_same() -> None:
    # Not under pytest's own folder: PostgreSQL wants one that nobody else changes.
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(DEMO), "--story", "--seconds", "8", "--kill", "broker"]
        command += ["--port", "0", "--folder", folder]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=700, check=False, env=os.environ | {"COLUMNS": "200"}
        )
        log = (Path(folder) / "up.log").read_text(errors="replace")[-4000:]
    assert done.returncode == 0, done.stdout + done.stderr + log
    assert "killed broker" in done.stdout
    assert "broker is back" in done.stdout
    assert "every side says the same" in done.stdout
