"""The Java that Spark will run on: which one, which version, and one sentence when it will not do.

`JAVA_HOME` comes before `PATH`, as in Spark's own scripts. Reading a version is pure; `find_java` asks the machine.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.pipelines.errors import PipelineError

OLDEST: Final = 17
_VERSION: Final = re.compile(r'version "(?P<whole>(?:1\.)?(?P<major>\d+)[^"]*)"')
_ADVICE: Final = (
    f"install a Java {OLDEST} or newer (Debian: apt install default-jre-headless, macOS: brew install openjdk) "
    "or point JAVA_HOME at one"
)


class JavaUnfit(PipelineError):
    """There is no Java that Spark can run on; `problem` and `mend` are the two halves of the sentence."""

    def __init__(self, problem: str, mend: str = _ADVICE) -> None:
        super().__init__(f"{problem}: {mend}")
        self.problem = problem
        self.mend = mend


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that answered."""

    program: Path
    version: str
    major: int


def parse_version(text: str) -> tuple[str, int] | None:
    """The version and its major number from what `java -version` prints, None if there is none; 1.8 is Java 8."""
    match = _VERSION.search(text)
    return (match["whole"], int(match["major"])) if match else None


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """The Java that will be used; `JavaUnfit` if there is none, or it does not start, or it is too old."""
    program, origin = _program(environment)
    try:
        done = subprocess.run(
            [str(program), "-version"], capture_output=True, text=True, check=False, timeout=60, env=dict(environment)
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaUnfit(f"Spark needs Java, and {program} ({origin}) does not start ({error})") from None
    said = done.stderr + done.stdout
    found = parse_version(said)
    if done.returncode or found is None:
        first = next(iter(said.splitlines()), "it said nothing")
        raise JavaUnfit(f"Spark needs Java, and {program} ({origin}) does not tell its version ({first})")
    version, major = found
    if major < OLDEST:
        raise JavaUnfit(f"Spark needs Java {OLDEST} or newer, and {program} ({origin}) is Java {version}")
    return Java(program, version, major)


def _program(environment: Mapping[str, str]) -> tuple[Path, str]:
    if home := environment.get("JAVA_HOME"):
        program = Path(home) / "bin" / "java"
        if not program.is_file():
            raise JavaUnfit(f"Spark needs Java, and JAVA_HOME is {home}, where there is no bin/java")
        return program, "from JAVA_HOME"
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path is None:
        raise JavaUnfit("Spark needs Java, and there is none: JAVA_HOME is not set and PATH has no java")
    return Path(on_path), "found on PATH"
