"""The example that follows a real nginx's log, through a rotation and a fault."""

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.java
EXAMPLE = Path(__file__).parents[2] / "examples/weblog/weblog_story.py"


def test_the_log_tells_all_of_it(spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec = importlib.util.spec_from_file_location("weblog_story", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    story = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(story)
    found: dict[str, Any] = story.tell(spark, tmp_path, per_s=120.0)
    assert sum(found["classes"].values()) == found["sent"] == sum(found["paths"].values()), "each request once"
    assert {"2xx", "4xx", "5xx"} == set(found["classes"])
    assert {"/", "/api/orders", "/api/users", "/missing", "/ready"} == set(found["paths"])
    assert found["slowest_p95_s"] < 5
    alerts = [alert for _, _, alert in found["burn"]]
    assert any(alerts), found["burn"]
    assert (alerts[0], alerts[-1]) == (False, False), "before the fault, and once the short window has seen its end"
    assert found["burn"][-1][0] == 0.0
