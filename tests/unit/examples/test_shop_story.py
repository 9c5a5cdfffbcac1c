"""The demo's own reasoning: how far its start has come, and whether a kill cost anything."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

SHOP = Path(__file__).parents[3] / "examples" / "shop"
SAME = {"view": True, "cache": True, "search": True, "warehouse": True}


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"shop_{name}", SHOP / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


progress, proof = loaded("progress"), loaded("proof")


def facts(pid: int, in_step: dict[str, bool | None], phase: str = "running") -> dict[str, Any]:
    return {
        "parts": [{"name": "broker", "phase": phase, "pid": pid}, {"name": "topics", "phase": "done", "pid": None}],
        "database": {"standing": 1200, "cents": 123450},
        "in_step": in_step,
    }


def test_steps_are_done_as_their_effects_are_seen_and_stay_done() -> None:
    assert [step["meanwhile"] != "" for step in progress.told({})] == [True] + [False] * 5
    running = [{"name": name, "phase": "running"} for name in ("broker", "cdc.shop", "pipelines.shop")]
    done = progress.reached({"parts": running, "log": {"shop.public.orders": 3}}, {}, 7.0)
    assert list(done.values()) == [7.0, 7.0, 7.0]
    under_way = [step["text"] for step in progress.told(done) if step["meanwhile"]]
    assert under_way == ["orders are joined with their cities"]
    away = {"parts": [], "log": {"error": "away"}, "view": {"orders": 3}, "revenue": None}
    done = progress.reached(away, done, 9.0)
    assert done["the broker is listening"] == 7.0
    assert done["the view is served"] == 9.0
    whole = progress.reached({"log": {"shop.enriched": 1}, "revenue": {"total": 2}}, done, 20.0)
    assert [step["seconds"] for step in progress.told(whole)] == [7.0, 7.0, 7.0, 20.0, 9.0, 20.0]


def test_all_sides_are_compared_once_what_was_killed_is_back_and_nobody_buys() -> None:
    one = proof.killed(None, "broker", 11, 100.0)
    one, lines = proof.looked(one, facts(11, SAME), 101.0)  # the kill is not seen yet: equal figures prove nothing
    assert (lines, one.wants_rest) == ([], False)
    one, lines = proof.looked(one, facts(12, SAME, "starting"), 102.0)
    assert lines == []
    one, lines = proof.looked(one, facts(12, SAME), 103.5)
    assert lines[0].text == "broker is back after 3.5 s"
    assert one.wants_rest
    one, lines = proof.looked(one, facts(12, SAME | {"view": False}), 104.5)
    assert lines == []
    over, lines = proof.looked(one, facts(12, SAME), 105.5)
    assert over is None
    assert lines[0].kind == "proof"
    assert lines[0].text.endswith("kill of broker: all copies hold 1,200 orders worth 1,234.50 €")


def test_a_side_that_cannot_be_asked_is_not_the_same() -> None:
    assert not proof.is_same(facts(12, SAME | {"cache": None}))
    assert not proof.is_same({"parts": [], "in_step": SAME})


def test_a_second_kill_is_waited_for_and_patience_ends() -> None:
    one = proof.killed(proof.killed(None, "broker", 11, 1.0), "topics", 5, 2.0)
    one, _ = proof.looked(one, facts(12, SAME), 3.0)
    assert not one.wants_rest
    one = proof.killed(None, "broker", 11, 1.0)
    one, _ = proof.looked(one, facts(12, SAME | {"view": False}), 3.0)
    over, lines = proof.looked(one, facts(12, SAME | {"view": False}), 3.0 + proof.PATIENCE_S + 1)
    assert over is None
    assert lines[0].kind == "bad"
