"""The tutorial's commands, as they stand there, one after the other."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import headrace
from tests.reading import wait_for_markers

TUTORIAL = (Path(__file__).parent.parent.parent / "docs" / "tutorial" / "first-pipeline.md").read_text()
SHELL = re.findall(r"^```shell\n(.*?)^```", TUTORIAL, re.MULTILINE | re.DOTALL)


def block(beginning: str) -> str:
    (found,) = [each for each in SHELL if each.startswith(beginning)]
    return found


@pytest.mark.java
def test_the_pipeline_of_the_tutorial_does_what_is_told(tmp_path: Path) -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```", TUTORIAL, re.MULTILINE | re.DOTALL)
    (tmp_path / "drinks.py").write_text(program)
    with headrace.Broker(tmp_path / "data", durability="os") as broker:
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HEADRACE_BOOTSTRAP": broker.bootstrap_servers,
        }

        def run(commands: str) -> str:
            done = subprocess.run(
                ["bash", "-ec", commands], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240
            )
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        run(block("headrace topic create"))
        (shown,) = re.findall(r"^```text\n(job .*?)^```", TUTORIAL, re.MULTILINE | re.DOTALL)
        listed = run(block("headrace pipeline list"))
        assert [line.split() for line in listed.splitlines()] == [line.split() for line in shown.splitlines()]
        run(block("headrace pipeline run drinks.py --trigger available-now"))
        wait_for_markers(broker.bootstrap_servers, "large-orders")
        results = run(block("headrace tail large-orders")).splitlines()
        customers = [line for line in results if line.startswith("('c")]
        assert len(customers) == 7
        assert sum(int(line.rstrip(")").split(", ")[2]) for line in customers) == 1000
        large = [line for line in results if '"order"' in line]
        assert len(large) == sum(number % 900 > 600 for number in range(1, 1001))
        assert any("large-orders" in line for line in results), "status tells of both jobs"
