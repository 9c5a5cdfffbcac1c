"""`[spark]`: where pipelines run. It has no process of its own: each pipeline starts its session."""

from collections.abc import Mapping
from typing import Any

from headrace.pipelines.settings import is_local
from headrace.stack.keys import Key
from headrace.stack.kind import Kind, Stack

KIND = Kind(
    "spark",
    "Where pipelines run.",
    """
[spark]
master = "local[*]"   # or a cluster: spark://host:7077
""",
    (
        Key("master", str, "Where Spark runs: local[*], spark://HOST:PORT, k8s://….", "local[*]", check=is_local),
        Key("state_dir", str, "Where pipelines keep their checkpoints.", ".headrace"),
    ),
)


def spark_of(stack: Stack) -> Mapping[str, Any]:
    """What the section says, or the defaults."""
    return stack.one("spark") or {key.name: key.default for key in KIND.keys}
