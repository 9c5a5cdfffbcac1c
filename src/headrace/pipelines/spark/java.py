"""What Spark needs and pip does not bring: a Java, and for `format("kafka")` four jars, fetched once per user.

`JAVA_HOME` comes before `PATH`, as in Spark's own scripts. The jars are fetched by Ivy, which is among Spark's own, so
that nothing but Java is needed; it looks where Ivy looks by default, or where a settings file says. Each jar is named
without what it depends on: the connector's other dependencies are in pyspark already, and one that it names was never
published in its version. Their folder appears whole or not at all.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.sax.saxutils import quoteattr

from headrace.pipelines.errors import PipelineError

OLDEST: Final = 17
_FETCHED_WITHIN_S: Final = 600
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
        raise JavaUnfit(f"Spark needs Java, and {program} ({origin}) does not print its version ({first})")
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


def cache_folder(environment: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """The user's folder for what can be made again (jars, archives); it need not exist yet.

    Never the working folder: two projects share what both need, and nothing of it is ever committed by mistake.
    """
    if named := environment.get("XDG_CACHE_HOME"):
        return Path(named) / "headrace"
    home = Path(environment.get("HOME") or Path.home())
    return home / "Library" / "Caches" / "headrace" if platform == "darwin" else home / ".cache" / "headrace"


# --- the jars of Spark's Kafka connector


class JarsMissing(PipelineError):
    """The connector's jars are not here and could not be fetched."""


@dataclass(frozen=True, slots=True)
class Jar:
    group: str
    name: str
    version: str

    @property
    def file(self) -> str:
        return f"{self.name}-{self.version}.jar"


KAFKA_CONNECTOR: Final = (
    Jar("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    # 4.2.0 of it is not everywhere; 4.0.0 has the same interface.
    Jar("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    Jar("org.apache.kafka", "kafka-clients", "3.9.2"),
    Jar("org.apache.commons", "commons-pool2", "2.13.1"),
)


def ivy_module(jars: Sequence[Jar]) -> str:
    """What Ivy is to fetch: these jars, each alone."""
    lines = [
        f"    <dependency org={quoteattr(jar.group)} name={quoteattr(jar.name)} rev={quoteattr(jar.version)}"
        ' transitive="false" conf="default-&gt;default"/>'
        for jar in jars
    ]
    return "\n".join(
        [
            '<ivy-module version="2.0">',
            '  <info organisation="headrace" module="kafka-connector" revision="1"/>',
            '  <configurations><conf name="default"/></configurations>',
            "  <dependencies>",
            *lines,
            "  </dependencies>",
            "</ivy-module>\n",
        ]
    )


def folder_of(jars: Sequence[Jar] = KAFKA_CONNECTOR, cache: Path | None = None) -> Path:
    return (cache or cache_folder()) / "jars" / f"{jars[0].name}-{jars[0].version}"


def jars_here(jars: Sequence[Jar] = KAFKA_CONNECTOR, cache: Path | None = None) -> list[Path] | None:
    files = [folder_of(jars, cache) / jar.file for jar in jars]
    return files if all(file.is_file() for file in files) else None


def fetch_jars(
    jars: Sequence[Jar] = KAFKA_CONNECTOR, *, cache: Path | None = None, ivy_settings: str | None = None
) -> list[Path]:
    """The files, fetched if need be; `JarsMissing` with Ivy's own words if it cannot be done."""
    if found := jars_here(jars, cache):
        return found
    java = find_java()
    target = folder_of(jars, cache)
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=".fetching-", dir=target.parent))
    try:
        (staging / "ivy.xml").write_text(ivy_module(jars))
        command = [
            *(str(java.program), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{_spark_jars()}/*"),
            *("org.apache.ivy.Main", "-error", "-ivy", str(staging / "ivy.xml"), "-cache", str(staging / "cache")),
            *("-types", "jar", "bundle", "-retrieve", str(staging / "lib" / "[artifact]-[revision].[ext]")),
            *(("-settings", ivy_settings) if ivy_settings else ()),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_FETCHED_WITHIN_S)
        missing = [jar.file for jar in jars if not (staging / "lib" / jar.file).is_file()]
        if missing:
            raise JarsMissing(_sentence(missing, target, done.stdout + done.stderr))
        try:
            (staging / "lib").rename(target)
        except OSError:
            if jars_here(jars, cache) is None:  # not another process that was faster, but a folder that is not whole
                shutil.rmtree(target)
                (staging / "lib").rename(target)
    except subprocess.TimeoutExpired:
        said = f"no answer in {_FETCHED_WITHIN_S} s"
        raise JarsMissing(_sentence([jar.file for jar in jars], target, said)) from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return [target / jar.file for jar in jars]


def _spark_jars() -> Path:
    import pyspark

    return Path(pyspark.__path__[0]) / "jars"


def _sentence(missing: Sequence[str], target: Path, said: str) -> str:
    words = [line.strip() for line in said.splitlines() if "::" in line or "xception" in line or "no answer" in line]
    return (
        f"Spark's Kafka connector could not be fetched ({', '.join(missing)}): let this machine reach a Maven "
        f"repository, name one in an Ivy settings file with spark.jars.ivySettings, or put the jars into {target} "
        f"(Ivy said: {'; '.join(words[:3]) or 'nothing'})"
    )
