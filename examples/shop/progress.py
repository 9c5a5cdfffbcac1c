"""How far the shop's stack has come since its start: six steps, each done once what it promises can be seen. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

Facts = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """One of the steps: what is there when it is done, what goes on until then, and how that is seen."""

    text: str
    meanwhile: str
    is_done: Callable[[Facts], bool]


def _runs(facts: Facts, name: str) -> bool:
    return any(part["name"] == name and part["phase"] == "running" for part in facts.get("parts", ()))


def _count(facts: Facts, side: str, name: str) -> int:
    told = facts.get(side) or {}
    return int(told.get(name) or 0)


CAPTURED: Final = "the database is captured"
STEPS: Final = (
    Step("the broker is listening", "it recovers its log", lambda facts: _runs(facts, "broker")),
    Step(
        CAPTURED,
        "first the rows of its tables, then every change",
        lambda facts: _runs(facts, "cdc.shop") and _count(facts, "log", "shop.public.orders") > 0,
    ),
    Step(
        "Spark is running",
        "a JVM starts",
        lambda facts: _runs(facts, "pipelines.shop"),
    ),
    Step(
        "orders are joined with their cities",
        "Spark plans its queries for the first time, which is most of the start",
        lambda facts: _count(facts, "log", "shop.enriched") > 0,
    ),
    Step(
        "the view is served",
        "orders are summed by city",
        lambda facts: _count(facts, "view", "orders") > 0,
    ),
    Step(
        "the first result is emitted",
        "a window ends ten seconds after its first order, and its result is emitted a few seconds later",
        lambda facts: _count(facts, "revenue", "total") > 0,
    ),
)


def reached(facts: Facts, before: Mapping[str, float], seconds: float) -> dict[str, float]:
    """The steps that are done, and after how many seconds each was; what was done once stays done."""
    return dict(before) | {step.text: seconds for step in STEPS if step.text not in before and step.is_done(facts)}


def told(done: Mapping[str, float]) -> list[dict[str, Any]]:
    """The steps as the page shows them: of those not done, the first is under way."""
    waiting = [step.text for step in STEPS if step.text not in done]
    return [
        {
            "text": step.text,
            "seconds": done.get(step.text),
            "meanwhile": step.meanwhile if waiting and step.text == waiting[0] else "",
        }
        for step in STEPS
    ]
