"""Which steps of a query keep state, and whether a checkpoint's state was kept by the same ones.

Spark compares types alone, and only once there is a batch to run: a window of another length or a sum of another column
goes on with the old numbers. So the steps are written to `stateful-steps.json` in the checkpoint and compared before a
query starts. Operators on keyed state compare their own parameters (`keyed/settings.py`); here only their place counts.

A step is known by what its state means: the keys, with how they are computed (a window's length is there), the
aggregates by function and column, and the columns of the rows that a join keeps. Spark keeps all of them by their
places, so their order has to be the same. What is computed before an aggregate may change, and so may the names of
results.
Plans that another version of Headrace or of Spark has made are not compared, and neither is a checkpoint from before
steps were written down: Spark's own comparison is left for them.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headrace import __version__
from headrace.pipelines.errors import PipelineError
from headrace.pipelines.jobs.failures import CHANGED_STATE
from headrace.pipelines.spark.checkpoint import last_batch
from headrace.pipelines.spark.internals import analyzed
from headrace.stores.folders import replace_text
from headrace.telemetry.logs import get_logger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILE: Final = "stateful-steps.json"
_KEYED: Final = ("TransformWithState", "FlatMapGroups")
_DEDUPLICATIONS: Final = ("Deduplicate", "DeduplicateWithinWatermark")
# Fields of an expression that say nothing about state; those that differ from run to run have an id in them.
_PASSING: Final = ("class", "name", "nullable", "timeZoneId")
_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-|#\d|@[0-9a-f]{4}")
_log = get_logger(__name__)
Json = Mapping[str, Any]


class ChangedState(PipelineError):
    """A query whose stateful steps are not those that its checkpoint was made with."""


@dataclass(frozen=True)
class Step:
    """`shown` is for people; `meaning` is what has to be the same."""

    shown: str
    meaning: str


def check_steps(frame: "DataFrame", checkpoint: Path) -> None:
    """Raise `ChangedState` if a checkpoint's state was kept by other steps than the query's; a new one gets them."""
    found = steps_of(frame)
    if found is None:
        return
    file, made_by = checkpoint / FILE, {"headrace": __version__, "spark": frame.sparkSession.version}
    kept = json.loads(file.read_text()) if file.exists() and last_batch(checkpoint, "offsets") is not None else {}
    if {name: kept.get(name) for name in made_by} == made_by:
        if said := difference([Step(**each) for each in kept["steps"]], found):
            raise ChangedState(f"its state was kept by {said}: {CHANGED_STATE}")
        return
    replace_text(file, json.dumps(made_by | {"steps": [asdict(step) for step in found]}, indent=1))


def difference(kept: Sequence[Step], now: Sequence[Step]) -> str | None:
    """In words; None if state and query fit."""
    if [step.meaning for step in kept] == [step.meaning for step in now]:
        return None
    was, present = (", then ".join(step.shown for step in reversed(steps)) or "no step" for steps in (kept, now))
    if was == present:
        return (
            f"{was}, and the query now computes a window or a key of it in another way, or has columns in another order"
        )
    return f"{was}, and the query now has {present}"


def steps_of(frame: "DataFrame") -> list[Step] | None:
    """The steps of a stream that keep state, from the last to the first; None where its plan cannot be read."""
    try:
        return read_steps(json.loads(analyzed(frame).toJSON()))
    except Exception as error:  # noqa: BLE001 - Spark turns any object of a plan into JSON here
        _log.warning("stateful steps not compared", error=f"{type(error).__name__}: {error}"[:200])
        return None


def read_steps(plan: Sequence[Json]) -> list[Step]:
    """From a plan as Spark writes it in JSON: its nodes, each before its children, and so its expressions."""
    definitions = dict(_definitions(plan))
    steps = (_step(plan, place, definitions) for place in range(len(plan)))
    return [step for step in steps if step is not None]


def _definitions(plan: Sequence[Json]) -> Iterator[tuple[int, Sequence[Json]]]:
    for node in plan:
        for each in node.get("projectList") or ():
            if _kind(each[0]) == "Alias":
                yield each[0]["exprId"]["id"], each[1:]
        if _kind(node) == "Expand":  # a row is in several windows: where the first of them lies tells all
            for column, each in zip(node["output"], node["projections"][0], strict=True):
                if _kind(each[0]) != "AttributeReference":
                    yield column[0]["exprId"]["id"], each


def _step(plan: Sequence[Json], place: int, definitions: Mapping[int, Sequence[Json]]) -> Step | None:
    node, kind = plan[place], _kind(plan[place])
    if not all(map(_streams, _children(plan, place))):
        return None
    if kind == "Aggregate":
        keys = node["groupingExpressions"]
        functions = list(dict.fromkeys(found for each in node["aggregateExpressions"] for found in _functions(each)))
        shown = f"groupBy({', '.join(map(_name, keys))}) with {', '.join(functions) or 'no aggregate'}"
        return Step(shown, f"{kind} {[_text(iter(key), definitions) for key in keys]} {functions}")
    if kind in _DEDUPLICATIONS:
        names = [_name(each) for each in node["keys"]]
        return Step(f"dropDuplicates({', '.join(names)})", f"{kind} {names}")
    if kind == "Join":
        how = str(node["joinType"].get("object", "")).rsplit(".", 1)[-1].rstrip("$")
        condition = _text(iter(node["condition"]), {}) if node.get("condition") else ""
        used = {*_columns(plan[:place]), *_columns(node.get("condition"))} if any(map(_chooses, plan[:place])) else None
        sides = [_kept(child, used) for child in _children(plan, place)]
        return Step(f"a join of streams ({how}: {condition})", f"{kind} {how} {condition} {sides}")
    if kind in ("Distinct", "GlobalLimit"):
        return Step(kind.lower(), kind)
    return Step("keyed state", kind) if kind.startswith(_KEYED) else None


def _kept(side: Sequence[Json], used: Collection[int] | None) -> list[str]:
    """The columns of a join's side that are looked at behind it, in their order; nothing where no step names them."""
    for node in side:
        if _kind(node) == "Project":
            named = [each for each in node["projectList"] if used is None or each[0]["exprId"]["id"] in used]
            return [_text(iter(each), {}) for each in named]
        if node["num-children"] != 1:
            break
    return []


def _chooses(node: Json) -> bool:
    """Whether columns that a step does not name are gone behind it."""
    return "projectList" in node or "aggregateExpressions" in node


def _columns(part: object) -> Iterator[int]:
    """The ids of all columns that are looked at anywhere in a part of a plan."""
    if isinstance(part, Mapping):
        if str(part.get("class")).endswith(".AttributeReference"):
            yield part["exprId"]["id"]
        for value in part.values():
            yield from _columns(value)
    elif isinstance(part, list):
        for each in part:
            yield from _columns(each)


def _streams(subtree: Sequence[Json]) -> bool:
    return any(_kind(node).startswith("Streaming") for node in subtree)


def _children(nodes: Sequence[Json], place: int) -> Iterator[Sequence[Json]]:
    """The subtrees below a node, in a list with each node before its children."""
    start = place + 1
    for _ in range(nodes[place]["num-children"]):
        end, missing = start, 1
        while missing:
            missing += nodes[end]["num-children"] - 1
            end += 1
        yield nodes[start:end]
        start = end


def _functions(expression: Sequence[Json]) -> Iterator[str]:
    """The aggregate functions in an expression, each with the columns that it is of."""
    for place, node in enumerate(expression):
        if _kind(node) == "AggregateExpression":
            first, *others = _children(expression, place)
            where = f" where {_text(iter(others[0]), {})}" if others else ""
            yield f"{'distinct ' if node.get('isDistinct') else ''}{_text(iter(first), {})}{where}"


def _name(expression: Sequence[Json]) -> str:
    head = expression[0]
    return str(head["name"]) if isinstance(head.get("name"), str) else _text(iter(expression), {})


def _text(nodes: Iterator[Json], definitions: Mapping[int, Sequence[Json]]) -> str:
    """An expression as text that is the same in every run; columns as they are computed, or by their names."""
    node = next(nodes)
    kind = _kind(node)
    if kind == "AttributeReference":
        computed = definitions.get(node["exprId"]["id"])
        return _text(iter(computed), definitions) if computed else str(node["name"])
    if kind == "Literal":
        return str(node.get("value"))
    children = [_text(nodes, definitions) for _ in range(node["num-children"])]
    if kind == "Alias":
        return children[0]
    named = [str(node["name"])] if isinstance(node.get("name"), str) else []
    about = [str(value) for name, value in sorted(node.items()) if _tells(name, value)]
    return f"{kind.lower()}({', '.join([*named, *children, *about])})"


def _tells(name: str, value: object) -> bool:
    """Whether a field of an expression says what it computes; whole numbers are places of its children."""
    if isinstance(value, str):
        return name not in _PASSING and _ID.search(value) is None
    return value is True and name not in _PASSING


def _kind(node: Json) -> str:
    return str(node["class"]).rsplit(".", 1)[-1]
