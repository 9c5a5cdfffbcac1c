"""`headrace pipeline`: run the jobs of a file, see how they fare, begin anew, build a new version beside the old."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from headrace.cli.output import human_count, human_duration, human_time, json_option, print_json, print_table
from headrace.cli.parameters import PAIR, START, as_text, bootstrap_option
from headrace.cli.pipeline_view import View
from headrace.cli.quiet_errors import digested_errors
from headrace.client.address import Address
from headrace.client.offsets import Start, StartKind
from headrace.dead_letters import in_words
from headrace.pipelines.jobs.declare import Job
from headrace.pipelines.jobs.load import load, load_files

_SLOW_S = 1.5
LOGS = "logs"  # within the state folder: all that Spark writes, a file for each pipeline file
file_argument = click.argument("file", type=click.Path(path_type=Path))
job_argument = click.argument("name", metavar="JOB")
state_option = click.option(
    "--state-dir", type=click.Path(path_type=Path), default=".headrace", show_default=True,
    envvar="HEADRACE_STATE_DIR", help="Where jobs keep their checkpoints.",
)  # fmt: skip
master_option = click.option(
    "--master", default="local[*]", show_default=True, envvar="HEADRACE_SPARK_MASTER",
    help="Where Spark runs: local[*], spark://HOST:PORT, k8s://…",
)  # fmt: skip
conf_option = click.option(
    "--conf", type=PAIR, multiple=True, metavar="NAME=VALUE",
    help="A setting of Spark's; what a job sets itself goes before it. Secrets go into HEADRACE_SPARK_CONF, as JSON.",
)  # fmt: skip
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


@click.group()
def pipeline() -> None:
    """Run pipelines: Python files of jobs that read topics, transform them with PySpark, and write the results."""


@pipeline.command("list")
@file_argument
@json_option
def list_jobs(file: Path, as_json: bool) -> None:
    """List the jobs of FILE, without starting Spark."""
    from headrace.pipelines.jobs.status import describe_output

    def shown(job: Job) -> dict[str, Any]:
        return {
            "job": job.name,
            "inputs": {word: given.name for word, given in job.inputs.items()},
            "outputs": {word: describe_output(output) for word, output in job.outputs.items()},
            "trigger": job.trigger,
            "line": job.line,
        }

    jobs = [shown(job) for job in load(file)]
    if as_json:
        print_json(jobs)
        return
    print_table(
        ["job", "reads", "writes", "trigger", ">line"],
        [
            (
                job["job"],
                ", ".join(job["inputs"].values()),
                ", ".join(job["outputs"].values()),
                job["trigger"],
                job["line"],
            )
            for job in jobs
        ],
    )


@pipeline.command()
@click.argument("files", metavar="FILE…", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--job", "names", multiple=True, help="Only this job of the files. May be given several times.")
@bootstrap_option
@state_option
@master_option
@conf_option
@click.option("--trigger", help="For all jobs, instead of their own: an interval such as '1 second', or available-now.")
@click.option(
    "--drain", is_flag=True,
    help="End an available-now run with the final watermark: the last windows are emitted, and the jobs are over.",
)  # fmt: skip
@click.option(
    "--restarts", type=click.IntRange(min=0), default=10, show_default=True,
    help="How often a job that failed is started again before the run gives up.",
)  # fmt: skip
@click.option(
    "--wait-for-topics", "wait_s", type=click.FloatRange(min=0), default=0, metavar="SECONDS",
    help="How long to wait for topics that are not there yet, while Spark starts.",
)  # fmt: skip
@click.option(
    "--metrics-port", type=click.IntRange(0, 65535), help="Serve /metrics for Prometheus at this loopback port."
)
@json_option
def run(
    files: tuple[Path, ...],
    names: tuple[str, ...],
    bootstrap: tuple[Address, ...],
    state_dir: Path,
    master: str,
    conf: tuple[tuple[str, str], ...],
    trigger: str | None,
    drain: bool,
    restarts: int,
    wait_s: float,
    metrics_port: int | None,
    as_json: bool,
) -> None:
    """Run the jobs of FILE until they are done, or until Ctrl-C, which lets each finish the batch it is in.

    \b
      headrace pipeline run jobs.py
      headrace pipeline run jobs.py views.py --conf spark.driver.memory=2g
      headrace pipeline run jobs.py --trigger available-now --drain

    The jobs of several files share one Spark session, which saves a start and memory. Everything is checked before
    the first job starts: the files, their topics, columns and checkpoints. Progress is shown here and written to the
    topic __headrace_progress.
    """
    from headrace.client.surroundings import settings_around
    from headrace.pipelines.jobs.declare import connect_job
    from headrace.pipelines.jobs.service import RunSettings, run_jobs
    from headrace.pipelines.spark.settings import conf_around

    around = settings_around(bootstrap)
    chosen = {**conf_around(), **dict(conf)}
    settings = RunSettings(
        as_text(bootstrap), state_dir, master, trigger, restarts, metrics_port, chosen, drain, wait_s
    )
    with _view(state_dir, files[0], as_json=as_json) as view:
        with _step_if_slow(view, f"loading {', '.join(map(str, files))}"):
            jobs = [connect_job(job, around) for job in load_files(files, names)]
        run_jobs(jobs, settings, view)


@pipeline.command()
@file_argument
@bootstrap_option
@state_option
@json_option
def status(file: Path, bootstrap: tuple[Address, ...], state_dir: Path, as_json: bool) -> None:
    """Show how the jobs of FILE stand: last batch, lag in records and time, version, dead letters.

    Spark is not started for it. Ends with 1 if a job has dead letters: records that it could not decode.
    """
    from headrace.pipelines.jobs.status import status_of

    now_ms = int(time.time() * 1000)
    found = [status_of(job, state_dir, as_text(bootstrap), now_ms) for job in load(file)]
    if as_json:
        print_json([job.as_json() for job in found])
        sys.exit(1 if any(job.letters.total for job in found) else 0)
    print_table(
        ["job", "writes", "runs", ">version", ">batch", "finished", ">lag", ">waits", ">dead letters"],
        [
            (
                job.name,
                output.target,
                "yes" if job.is_running else "drained" if output.is_drained else "no",
                job.version,
                "–" if output.done.batch is None else output.done.batch,
                human_time(output.done.finished_s and output.done.finished_s * 1000),
                human_count(output.lag and output.lag.records),
                human_duration(output.lag and output.lag.time_ms),
                human_count(job.letters.total),
            )
            for job in found
            for output in job.outputs
        ],
    )
    for job in found:
        if job.letters.total:
            click.echo(f"{job.name}: {in_words(*job.letters)}")
    sys.exit(1 if any(job.letters.total for job in found) else 0)


@pipeline.command()
@file_argument
@job_argument
@click.option("--to", type=START, default="earliest", show_default=True,
              help="Where the next run begins: earliest, latest, or a time.")  # fmt: skip
@bootstrap_option
@state_option
@yes_option
def reset(file: Path, name: str, to: Start, bootstrap: tuple[Address, ...], state_dir: Path, yes: bool) -> None:
    """Forget the checkpoint and the state of JOB, so that its next run begins at another place.

    \b
      headrace pipeline reset jobs.py revenue --to 2h

    What the job has written stays where it is. To write it anew without a gap, use rebuild.
    """
    from headrace.pipelines.jobs.versions import reset as reset_job
    from headrace.pipelines.source.options import OffsetSpec

    places: dict[StartKind, Callable[[], OffsetSpec]] = {
        StartKind.EARLIEST: lambda: OffsetSpec(word="earliest"),
        StartKind.LATEST: lambda: OffsetSpec(word="latest"),
        StartKind.TIME: lambda: OffsetSpec(timestamp_ms=to.number),
    }
    if to.kind not in places:
        raise click.BadParameter("a job begins at earliest, latest or a time", param_hint="--to")
    job = load(file, [name])[0]
    if not yes:
        click.confirm(f"forget the checkpoint and the state of job {name!r}?", abort=True)
    starts = reset_job(job, state_dir, as_text(bootstrap), places[to.kind]())
    for topic, offsets in starts.items():
        shown = ", ".join(f"{partition} at {offset}" for partition, offset in offsets.items())
        click.echo(f"job {name} begins in {topic}: partition {shown}")


@pipeline.command()
@file_argument
@job_argument
@bootstrap_option
@state_option
@master_option
@click.option("--switch/--no-switch", default=True, help="Go over to the new version once it is built.")
@json_option
def rebuild(
    file: Path, name: str, bootstrap: tuple[Address, ...], state_dir: Path, master: str, switch: bool, as_json: bool
) -> None:
    """Build the output of JOB anew from the start of its input, beside the old one, and switch over.

    \b
      headrace pipeline rebuild jobs.py revenue

    A table is built as NAME__v2 and takes over the name at the switch; a topic becomes NAME.v2. The old version may run
    meanwhile; for the switch it has to be stopped. A rebuild that was broken off goes on where it was.
    """
    from headrace.pipelines.jobs.versions import build_beside, next_version
    from headrace.pipelines.jobs.versions import switch as switch_over
    from headrace.pipelines.spark.session import session

    job = load(file, [name])[0]
    server = as_text(bootstrap)
    with _view(state_dir, file, as_json=as_json) as view:
        view.say(name, f"version {next_version(job, state_dir)} is built beside the one in use")
        spark = session(name, master=master, conf=job.conf, report=lambda step: view.step("spark", step))
        view.step("spark", "")
        try:
            version = build_beside(job, spark, state_dir, server, watch=view.show, say=view.say)
        finally:
            spark.stop()
        if switch:
            switch_over(job, state_dir, version)
            view.say(name, f"is at version {version} now")
        else:
            view.say(name, f"version {version} is built; run rebuild again with --switch to go over to it")


@contextmanager
def _step_if_slow(view: View, step: str) -> Iterator[None]:
    """Mostly it is done at once; but a file may import whatever it likes."""
    timer = threading.Timer(_SLOW_S, view.step, ("pipeline", step))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        view.step("pipeline", "")


@contextmanager
def _view(state_dir: Path, file: Path, *, as_json: bool) -> Iterator[View]:
    with (
        digested_errors(state_dir / LOGS, file.stem) as console,
        View(as_json=as_json, console=console) as view,
    ):
        yield view
