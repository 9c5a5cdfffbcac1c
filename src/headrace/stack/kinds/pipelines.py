"""`[pipelines.NAME]`: a file of jobs, run on Spark, with the keys of `headrace pipeline run`; and `[spark]`, where.

`[spark]` has no process of its own: each pipeline starts its session.
"""

import ast
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from headrace import extras
from headrace.errors import nearest
from headrace.pipelines.errors import PipelineError
from headrace.pipelines.jobs.declare import AVAILABLE_NOW
from headrace.pipelines.spark.settings import CONF_VARIABLE, is_local, merge_settings
from headrace.section_keys import Complaint, Key, port
from headrace.stack.kind import COMMAND, Command, Kind, Member, Section, Sections, Stack
from headrace.stack.kinds.topics import needs
from headrace.stack.lines import Said, json_object, read_line


def _check_spark(section: Section) -> Iterable[Complaint]:
    for name, value in section.values.get("conf", {}).items():
        if isinstance(value, (dict, list)):
            yield ("conf", name), f"[{section.where}] conf: {name} is a table or a list: write it in quotes"
            continue
        try:
            merge_settings({}, {name: value})
        except PipelineError as error:
            yield ("conf", name), f"[{section.where}] {error}"


SPARK = Kind(
    "spark",
    "Where pipelines run.",
    """
[spark]
master = "local[*]"   # or a cluster: spark://host:7077
# conf = { "spark.driver.memory" = "2g" }
""",
    (
        Key("master", str, "Where Spark runs: local[*], spark://HOST:PORT, k8s://….", "local[*]", check=is_local),
        Key("state_dir", str, "Where pipelines keep their checkpoints.", ".headrace"),
        Key("conf", dict, "Settings of Spark's by their names; what a job sets itself goes before them."),
    ),
    check=_check_spark,
)


def spark_of(stack: Stack) -> Mapping[str, Any]:
    """What the section says, or the defaults."""
    return stack.one("spark") or {key.name: key.default for key in SPARK.keys if key.default is not None}


def spark_environment(stack: Stack) -> dict[str, str]:
    """What a process that starts a session is told where nobody else can see it: settings may be secrets."""
    conf = spark_of(stack).get("conf")
    return {CONF_VARIABLE: json.dumps(conf)} if conf else {}


NAME: Final = "pipelines"
_PATIENCE_S: Final = 120
_TOPIC_PATIENCE_S: Final = 30
# Spark's Python workers tell of every batch that they begin and end.
_CHATTER: Final = "Streaming TransformWithStateInPandas Python worker"
_STANDING: Final = ("state", "waiting")
_SHOWN: Final = ("batch", "rows", "lag_records", "lag_ms", "late_rows_total", "watermark")


def check_file(section: Section) -> Iterable[Complaint]:
    """What can be seen without running the file."""
    if missing := extras.look_for("pyspark", f"[{section.where}]"):
        yield (), f"{missing}, or remove the section"
    file = section.folder / section.values["file"]
    if not file.is_file():
        yield ("file",), f"[{section.where}] file: {section.values['file']} is not there (looked in {section.folder})"
        return
    try:
        ast.parse(file.read_bytes(), str(section.values["file"]))
    except SyntaxError as error:
        yield ("file",), f"[{section.where}] file: {error.filename}:{error.lineno}: {error.msg}"


def explore(section: Section, _others: Sections) -> Iterable[Complaint]:
    """The jobs that the file declares: it is run for that, in a process of its own."""
    try:
        known = [job["job"] for job in list_jobs(section.folder, section.values["file"])]
    except _Unlisted as error:
        yield ("file",), f"[{section.where}] file: {error}"
        return
    for number, name in enumerate(section.values.get("jobs", ())):
        if name not in known:
            yield ("jobs", str(number)), f"[{section.where}] jobs: there is no job {name!r}: {nearest(name, known)}"


class _Unlisted(Exception):
    """A file whose jobs cannot be told."""


@lru_cache
def list_jobs(folder: Path, file: str) -> list[dict[str, Any]]:
    """What `headrace pipeline list` says of a file."""
    command = [sys.executable, "-P", "-m", "headrace.cli.main", "pipeline", "list", file, "--json"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    except subprocess.TimeoutExpired:
        raise _Unlisted(f"{file} does not end when it is read: what runs long belongs into its jobs") from None
    if done.returncode:
        words = done.stderr.strip().splitlines() or ["it ended without a word"]
        raise _Unlisted(words[-1].removeprefix("headrace: "))
    jobs: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return jobs


def run_arguments(stack: Stack, files: Sequence[str], bootstrap: str) -> list[str]:
    """Run what files declare, as soon as a capture or somebody else has made the topics that are read."""
    spark = spark_of(stack)
    arguments = ["pipeline", "run", *files, "--json", "--bootstrap", bootstrap]
    arguments += ["--master", spark["master"], "--state-dir", spark["state_dir"]]
    return [*arguments, "--wait-for-topics", str(_TOPIC_PATIENCE_S)]


def topics_read(folder: Path, values: Any) -> tuple[str, ...]:
    """The topics that the jobs of a section read."""
    chosen = values.get("jobs")
    jobs = [job for job in list_jobs(folder, values["file"]) if not chosen or job["job"] in chosen]
    return tuple(sorted({topic for job in jobs for topic in job["inputs"].values()}))


def guests_of(stack: Stack, name: str) -> str | None:
    """The file of views that this pipeline's session keeps too, if there is one."""
    views = stack.one("views")
    return str(views["file"]) if views is not None and views.get("kept_by") == name else None


def _members(stack: Stack) -> Iterable[Member]:
    environment = spark_environment(stack)
    for name, values in stack.several(NAME).items():
        guests = guests_of(stack, name)
        files = (values["file"], *([guests] if guests else []))
        chosen = values.get("jobs", ())
        if chosen and guests:
            chosen = (*chosen, *(job["job"] for job in list_jobs(stack.folder, guests)))

        def command(
            bootstrap: str, values: Any = values, files: Sequence[str] = files, chosen: Sequence[str] = chosen
        ) -> Command:
            arguments = [*run_arguments(stack, files, bootstrap), "--restarts", str(values["restarts"])]
            arguments += [part for job in chosen for part in ("--job", job)]
            arguments += ["--trigger", values["trigger"]] if "trigger" in values else []
            arguments += ["--metrics-port", str(values["metrics_port"])] if "metrics_port" in values else []
            return Command((*COMMAND, *arguments), environment=environment)

        topics = topics_read(stack.folder, values)
        topics += topics_read(stack.folder, {"file": guests}) if guests else ()
        yield Member(f"{NAME}.{name}", NAME, command, needs(stack), topics, may_end=True, read=read)


def read(text: str) -> Said:
    """A pipeline tells events in words, and a report for each batch."""
    if _CHATTER in text:
        return Said()
    found = json_object(text)
    if found is None or "job" not in found or "level" in found:
        return read_line(text)
    if "event" in found:
        is_ready = found["job"] == "spark" and str(found["event"]).startswith("is ready")
        standing: dict[str, Any] = {name: found[name] for name in _STANDING if name in found}
        return Said(f"{found['job']} {found['event']}", facts=standing, is_ready=is_ready)
    facts = {name: found[name] for name in _SHOWN if found.get(name) is not None}
    report = facts | {"per_s": found.get("input_rate", 0)}
    return Said(facts={f"job {found['job']}.{found.get('output', 'out')}": report}, is_ready=True)


KIND = Kind(
    NAME,
    "A file of jobs, run on Spark.",
    """
# [pipelines.revenue]
# file = "revenue.py"             # headrace pipeline list revenue.py shows its jobs
# trigger = "1 second"
""",
    (
        Key("file", str, "The Python file that declares the jobs.", is_needed=True),
        Key("jobs", list, "Only these jobs of the file."),
        Key("trigger", str, f"For all jobs, instead of their own: an interval, or {AVAILABLE_NOW}."),
        Key("restarts", int, "How often a job that failed is started again within the process.", 10, least=0),
        port("metrics_port", "Serve numbers for Prometheus here."),
    ),
    is_named=True,
    check=check_file,
    members=_members,
    explore=explore,
)
