"""The bank's story runs as a newcomer runs it, and tells what happened."""

import subprocess
import sys
from pathlib import Path

STORY = Path(__file__).parents[3] / "examples" / "bank" / "story.py"


def test_the_books_balance_and_a_customer_is_forgotten(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/bank.db"
    told = subprocess.run([sys.executable, str(STORY), store], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    words = " ".join(told.stdout.split())
    assert "t0: done back: failed large: done" in words
    assert "customer c1 is now Customer(name='(forgotten)', email='(forgotten)', address='(forgotten)'" in words
    assert "the books balance: 11,500.00 €" in words
    assert b"Ada" not in (tmp_path / "bank.db").read_bytes()
    assert b"Mill Lane" not in (tmp_path / "bank.db").read_bytes()
