"""What Flink and Esper find: cases in, matches out, in one start of each; the programs say what a case is.

Esper's runs as a source file. Flink hands the classes of a job to threads of its own, which find them only in files, so
its program is compiled first.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peers.java import QUICK_START, PeerError, jars_of, java, java_compiler, packages_of

if TYPE_CHECKING:
    from collections.abc import Sequence

_HERE = Path(__file__).parent
_TIMEOUT_S = 300
Answers = dict[str, dict[str, Any]]


def matches_of_esper(cases: Sequence[dict[str, Any]]) -> Answers:
    """By the name of the case what Esper finds; a case has `epl`."""
    command = [java(), *QUICK_START, "-cp", f"{jars_of('esper')}/*", str(_HERE / "esper" / "Matches.java")]
    return _run(command, cases)


def matches_of_flink(cases: Sequence[dict[str, Any]], folder: Path) -> Answers:
    """By the name of the case what Flink finds; a case has `steps` or `sql`. Classes are compiled into `folder`."""
    jars = f"{flink_jars()}/*"
    compile_java(_HERE / "flink" / "Matches.java", folder, jars)
    return _run([java(), *QUICK_START, "-Xmx1500m", "-cp", f"{folder}:{jars}", "Matches"], cases)


def flink_jars() -> Path:
    """The jars of Flink that its Python package holds."""
    return packages_of("flink") / "pyflink" / "lib"


def compile_java(source: Path, folder: Path, classpath: str) -> None:
    """Compile one of our programs into a folder."""
    done = subprocess.run(
        [java_compiler(), "-nowarn", "-d", str(folder), "-cp", classpath, str(source)],
        check=False, capture_output=True, text=True, timeout=_TIMEOUT_S,
    )  # fmt: skip
    if done.returncode:
        raise PeerError(f"{source.name} could not be compiled: {done.stderr[-2000:]}")


def _run(command: Sequence[str], cases: Sequence[dict[str, Any]]) -> Answers:
    done = subprocess.run(
        command, input=json.dumps(cases, default=str), check=False, capture_output=True, text=True, timeout=_TIMEOUT_S
    )
    if done.returncode:
        raise PeerError(f"{' '.join(command[-2:])} failed: {done.stderr[-3000:]}")
    answers: Answers = json.loads(done.stdout)
    return answers
