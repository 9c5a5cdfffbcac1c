"""Waiting for a condition, for as long as a busy machine may need."""

import threading
import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], why: str, *, patience_s: float = 90.0) -> None:
    """Look again and again; fail with `why` if it does not come true."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, why
        threading.Event().wait(0.01)
