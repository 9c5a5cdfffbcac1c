"""A process that keeps derived systems in step, to be killed; its arguments are the file and the broker's address."""

import sys
import threading
from pathlib import Path

from headrace.cli.sync import load_settings
from headrace.connect.sync.runner import run_all

if __name__ == "__main__":
    failures = run_all(load_settings(Path(sys.argv[1])), sys.argv[2], threading.Event())
    sys.exit(f"{failures}")
