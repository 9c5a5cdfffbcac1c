"""What Spark's plan of a DataFrame says; Spark shows it nowhere else."""

import json
import re
from typing import TYPE_CHECKING, Any, Final

from headrace.pipelines.spark.internals import analyzed, class_of, each

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

_WATERMARK: Final = "EventTimeWatermark"
_WALL: Final = re.compile(r"TransformWithState.*, ProcessingTime,")
_STATEFUL: Final = (
    "TransformWithState",
    "FlatMapGroups",
    "Aggregate",
    "Deduplicate",
    "Distinct",
    "Join",
    "GlobalLimit",
)


def has_watermark(frame: "DataFrame") -> bool:
    return any(step.startswith(_WATERMARK) for _, step in _steps(frame))


def stateful_step(frame: "DataFrame") -> str | None:
    """A step of a stream that keeps state, and so may have held rows until the watermark passed; None without one."""
    if not frame.isStreaming:
        return None
    steps = [step for _, step in _steps(frame)]
    return next((name for name in _STATEFUL for step in steps if step.startswith(name)), None)


def lost_watermark(frame: "DataFrame") -> str | None:
    """Why no watermark comes to what stands behind a stream, and what to do instead; None if one does.

    Spark hands none on behind an operator that the wall clock wakes. And the one watermark of a query is the earliest
    of all that are set in it: one that is set behind a step that waits for it never begins.
    """
    if not frame.isStreaming:
        return None
    above: list[tuple[int, str]] = []
    for depth, step in _steps(frame):
        above = [(at, name) for at, name in above if at < depth]
        if _WALL.match(step):
            return (
                "Spark hands no watermark on behind early=… and wall_clock=…: leave them out, or write these results "
                "to a topic and go on in another job"
            )
        if step.startswith(_WATERMARK):
            outer = next((place for place, (_, name) in enumerate(above) if name.startswith(_WATERMARK)), None)
            if outer is not None and any(_is_stateful(name) for _, name in above[outer:]):
                return (
                    "a second watermark is set behind a step that waits for the first, and would never begin: leave "
                    "out the second (withWatermark), the first holds for the whole query"
                )
        above.append((depth, step))
    return None


def _is_stateful(step: str) -> bool:
    return any(step.startswith(name) for name in _STATEFUL)


def _steps(frame: "DataFrame") -> "Iterator[tuple[int, str]]":
    """The steps of the plan, each before those that it reads, with their depth."""
    for line in plan_text(frame).splitlines():
        if found := re.match(r"^(\W*)(\w.*)$", line):
            yield len(found[1]), found[2]


def plan_text(frame: "DataFrame") -> str:
    """Its text, a line a step."""
    return str(analyzed(frame).toString())


def united_metadata(frame: "DataFrame") -> dict[str, list[dict[str, Any]]]:
    """Of each column that a union brought together, its metadata in every input of the union.

    Spark gives a column of a union the metadata that it has in the first input. A column that was given metadata of its
    own behind the union is not among them.
    """
    if "Union" not in plan_text(frame):
        return {}
    plan = analyzed(frame)
    named: dict[int, int] = {}
    inputs: dict[int, list[Any]] = {}
    _read_columns(plan, named, inputs)

    def parts(column: Any, known: int, done: frozenset[int] = frozenset()) -> "Iterator[dict[str, Any]]":
        while known in named and (known not in inputs or known in done):
            known = named[known]
        if known not in inputs or known in done:
            yield json.loads(column.metadata().json())
            return
        yield from parts(column, known, done | {known})  # in the first input it has the same id
        for other in inputs[known]:
            yield from parts(other, int(other.exprId().id()), done | {known})

    columns = zip(frame.columns, each(plan.output()), strict=True)
    found = {name: list(parts(column, int(column.exprId().id()))) for name, column in columns}
    return {name: several for name, several in found.items() if len(several) > 1}


def _read_columns(plan: Any, named: dict[int, int], inputs: dict[int, list[Any]]) -> None:
    """Which columns are others under a new name, and which columns unions put below those of their first input."""
    if plan.nodeName() == "Project":
        for column in each(plan.projectList()):
            is_name = class_of(column) == "Alias" and class_of(column.child()) == "AttributeReference"
            if is_name and column.explicitMetadata().isEmpty():
                named[int(column.exprId().id())] = int(column.child().exprId().id())
    if plan.nodeName() == "Union":
        first, *others = ([*each(child.output())] for child in each(plan.children()))
        for place, column in enumerate(first):
            inputs.setdefault(int(column.exprId().id()), []).extend(other[place] for other in others)
    for child in each(plan.children()):
        _read_columns(child, named, inputs)
