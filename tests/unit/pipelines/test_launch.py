"""Starting the JVM: what happens to Ctrl-C meanwhile."""

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from headrace.pipelines.spark.launch import _noted_interrupts


@pytest.fixture
def _obeyed_interrupts() -> Iterator[None]:
    """Whoever starts the tests in the background has them ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_obeyed_interrupts")
def test_an_interrupt_while_a_process_is_started_is_noted_and_raised_afterwards() -> None:
    with _noted_interrupts() as noted:
        # As by a thread that does not block it, in what Python calls around a fork: raised there it would be swallowed.
        subprocess.run(["true"], preexec_fn=lambda: os.kill(os.getppid(), signal.SIGINT), check=True)
    assert noted == [signal.SIGINT]
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
