"""`[spark]`: where pipelines run. It has no process of its own: each pipeline starts its session."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from headrace.pipelines.errors import PipelineError
from headrace.pipelines.settings import CONF_VARIABLE, is_local, merged
from headrace.stack.keys import Complaint, Key
from headrace.stack.kind import Kind, Section, Stack


def _check(section: Section) -> Iterable[Complaint]:
    for name, value in section.values.get("conf", {}).items():
        if isinstance(value, (dict, list)):
            yield ("conf", name), f"[{section.where}] conf: {name} is a table or a list: write it in quotes"
            continue
        try:
            merged({}, {name: value})
        except PipelineError as error:
            yield ("conf", name), f"[{section.where}] {error}"


KIND = Kind(
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
    check=_check,
)


def spark_of(stack: Stack) -> Mapping[str, Any]:
    """What the section says, or the defaults."""
    return stack.one("spark") or {key.name: key.default for key in KIND.keys if key.default is not None}


def spark_environment(stack: Stack) -> dict[str, str]:
    """What a process that starts a session is told where nobody else can see it: settings may be secrets."""
    conf = spark_of(stack).get("conf")
    return {CONF_VARIABLE: json.dumps(conf)} if conf else {}
