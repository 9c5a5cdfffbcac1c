"""What a user writes: `@job` over a function from DataFrames to a DataFrame, and `topic` for what it reads and writes.

    from headrace.pipelines import job, topic

    @job(inputs={"orders": topic("orders", format="json", schema="user string, amount double")},
         outputs=topic("large-orders"))
    def large(orders):
        return orders.where("amount > 100").selectExpr("user AS key", "to_json(struct(*)) AS value")

The function stays what it was: it can be called with any DataFrame, in a test or a notebook.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from headrace.client.cluster import Cluster
from headrace.pipelines.clusters import cluster_at
from headrace.pipelines.errors import PipelineError
from headrace.pipelines.options import connection_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AVAILABLE_NOW, REAL_TIME = "available-now", "real-time"
DRAIN_NEEDS = f"choose the trigger {AVAILABLE_NOW!r}, or leave out drain"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_INTERVAL = re.compile(r"\d+ *(ms|milliseconds?|s|seconds?|min|minutes?|h|hours?)")
_MODES = ("append", "update", "complete")
# What can stand as an output besides a topic: a sink for `foreachBatch`.
BatchSink = Callable[["DataFrame", int], None]


@runtime_checkable
class FittingSink(Protocol):
    """A sink that chooses, once it sees the rows of a job, in which form it takes them."""

    output_mode: str

    def fit(self, frame: "DataFrame") -> "tuple[DataFrame, BatchSink]":
        """The rows in the form it takes, and the sink that takes them."""
        ...


class BadJob(PipelineError):
    """A declaration that cannot work, and where it is."""


@dataclass(frozen=True)
class TopicInput:
    """A topic to read; `options` are those of the source `format("headrace")`."""

    name: str
    schema: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # they may hold passwords
    bootstrap: str | None = None
    watermark: tuple[str, str] | None = None  # the column of event time, and how late a row may be

    def __str__(self) -> str:
        return f"topic {self.name}"


@dataclass(frozen=True)
class TopicOutput:
    """A topic to write; `options` are those of the sink `format("headrace")`."""

    name: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    bootstrap: str | None = None
    mode: str = "append"

    def __str__(self) -> str:
        return f"topic {self.name}"


def topic(
    name: str,
    *,
    schema: str | None = None,
    bootstrap: str | None = None,
    watermark: tuple[str, str] | None = None,
    mode: str = "append",
    **options: object,
) -> "Topic":
    """A topic, as an input or as an output of a job; further words are options of `format("headrace")`."""
    given = {word: str(value).lower() if isinstance(value, bool) else str(value) for word, value in options.items()}
    return Topic(name, schema, MappingProxyType(given), bootstrap, watermark, mode)


@dataclass(frozen=True)
class Topic:
    """A topic of which it is not said yet whether it is read or written."""

    name: str
    schema: str | None
    options: Mapping[str, str] = field(repr=False)  # they may hold passwords
    bootstrap: str | None
    watermark: tuple[str, str] | None
    mode: str

    def as_input(self) -> TopicInput:
        return TopicInput(self.name, self.schema, self.options, self.bootstrap, self.watermark)

    def as_output(self) -> TopicOutput:
        return TopicOutput(self.name, self.options, self.bootstrap, self.mode)


Output = TopicOutput | BatchSink


def cluster_of(item: TopicInput | TopicOutput, bootstrap: str) -> Cluster:
    """The cluster that holds a topic, reached as its options say (`kafka.security.protocol` and the like)."""
    return cluster_at(item.bootstrap or bootstrap, connection_in(item.options))


@dataclass(frozen=True)
class Job:
    """A function, what it reads, what it writes, and how often."""

    name: str
    function: Callable[..., Any]
    inputs: Mapping[str, TopicInput]
    outputs: Mapping[str, Output]
    trigger: str
    checkpoint: str | None
    mode: str
    conf: Mapping[str, str]
    file: str
    line: int
    drain: bool = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function itself, for a test or a notebook."""
        return self.function(*args, **kwargs)

    def home(self, bootstrap: str) -> Cluster:
        """The cluster of its first input, where its progress is published and its lag is asked for."""
        return cluster_of(next(iter(self.inputs.values())), bootstrap)

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"

    def _repr_html_(self) -> str:
        from headrace.pipelines.jobs.status import job_html

        return job_html(self)


def job(
    *,
    inputs: Mapping[str, Topic],
    outputs: "Topic | BatchSink | Mapping[str, Topic | BatchSink]",
    name: str | None = None,
    trigger: str = "500 ms",
    checkpoint: str | None = None,
    mode: str = "append",
    conf: Mapping[str, object] = MappingProxyType({}),
    drain: bool = False,
) -> Callable[[Callable[..., Any]], Job]:
    """Make a job of a function that takes a DataFrame for each input, by name, and returns one for each output.

    `trigger` is an interval such as "1 second", or "available-now" (what is there, then end), or "real-time". `mode` is
    Spark's output mode for sinks other than topics: append, update or complete. With `drain` an available-now run ends
    with the final watermark: the last windows are emitted, and the job is over (see docs/how-to/run-pipelines.md).
    """

    def declared(function: Callable[..., Any]) -> Job:
        code = inspect.unwrap(function).__code__
        file, line = code.co_filename, code.co_firstlineno
        chosen = name or function.__name__.replace("_", "-")
        where = f"{file}:{line}: job {chosen!r}"
        if not _NAME.fullmatch(chosen):
            raise BadJob(f"{where}: a name is letters, digits, dots, dashes and underscores")
        if trigger not in (AVAILABLE_NOW, REAL_TIME) and not _INTERVAL.fullmatch(trigger):
            raise BadJob(f"{where}: trigger is {trigger!r}: write an interval such as '1 second', or {AVAILABLE_NOW!r}")
        if drain and trigger != AVAILABLE_NOW:
            raise BadJob(f"{where}: drain=True is for runs that end, and trigger is {trigger!r}: {DRAIN_NEEDS}")
        if mode not in _MODES:
            raise BadJob(f"{where}: mode is {mode!r}: choose one of {', '.join(_MODES)}")
        several = outputs if isinstance(outputs, Mapping) else {"out": outputs}
        return Job(
            chosen,
            function,
            _checked_inputs(where, function, inputs),
            {word: _output(where, word, output) for word, output in several.items()},
            trigger,
            checkpoint,
            mode,
            {word: str(value) for word, value in conf.items()},
            file,
            line,
            drain,
        )

    return declared


def _checked_inputs(where: str, function: Callable[..., Any], inputs: Mapping[str, Topic]) -> dict[str, TopicInput]:
    if not inputs:
        raise BadJob(f"{where} has no inputs: write inputs={{'orders': topic('orders')}}")
    wanted = list(inspect.signature(function).parameters)
    if sorted(wanted) != sorted(inputs):
        raise BadJob(
            f"{where}: the function takes {', '.join(wanted) or 'nothing'} and inputs names {', '.join(inputs)}: "
            "give both the same names"
        )
    for word, given in inputs.items():
        if not isinstance(given, Topic):
            raise BadJob(f"{where}: input {word!r} is {type(given).__name__}: write topic('…')")
    return {word: given.as_input() for word, given in inputs.items()}


def _output(where: str, word: str, output: Any) -> Output:
    if isinstance(output, Topic):
        return output.as_output()
    if callable(output):
        return output  # type: ignore[no-any-return]  # a sink for foreachBatch
    raise BadJob(f"{where}: output {word!r} is {type(output).__name__}: write topic('…') or a sink such as postgres(…)")


# --- how a cluster is reached, where jobs do not say it themselves

T = TypeVar("T", TopicInput, TopicOutput)


def connect_job(job: Job, settings: Mapping[str, str]) -> Job:
    """A job whose topics are reached by these settings, under Kafka's names.

    They go along as options, because a task on another machine has none of our environment. A topic that names a
    cluster or settings of its own keeps to them: what is meant for one cluster is not shown to another.
    """
    options = {f"kafka.{name}": value for name, value in settings.items()}
    if not options:
        return job
    outputs = {
        word: _with_options(output, options) if isinstance(output, TopicOutput) else output
        for word, output in job.outputs.items()
    }
    return replace(
        job, inputs={word: _with_options(given, options) for word, given in job.inputs.items()}, outputs=outputs
    )


def _with_options(item: T, options: Mapping[str, str]) -> T:
    return item if item.bootstrap or connection_in(item.options) else replace(item, options={**options, **item.options})
