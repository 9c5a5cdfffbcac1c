"""Whether a kill cost anything: once what was killed is back, nobody buys for a moment, and all sides are compared.

While customers buy, every side is a second behind the next one, and equal figures would be luck. So the orders that
were under way at the kill are let through, and only then is compared; afterwards customers go on. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

PATIENCE_S: Final = 120.0
Facts = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Proof:
    """What was killed and has not been shown to be whole again."""

    killed: Mapping[str, tuple[int, float]]  # by name: the process that was killed, and when
    back: tuple[str, ...] = ()
    resting_since_s: float | None = None

    @property
    def wants_rest(self) -> bool:
        """Whether customers have to wait for the comparison."""
        return self.resting_since_s is not None


@dataclass(frozen=True, slots=True)
class Line:
    """Something to tell."""

    text: str
    kind: str


def killed(proof: Proof | None, name: str, pid: int, now_s: float) -> Proof:
    """One more was killed; what is compared has to wait for it too."""
    before = proof or Proof({})
    back = tuple(one for one in before.back if one != name)
    return Proof({**before.killed, name: (pid, now_s)}, back)


def looked(proof: Proof, facts: Facts, now_s: float) -> tuple[Proof | None, list[Line]]:
    """What a look at the stack means for it, and what there is to tell; None once it is over."""
    lines = []
    for part in facts["parts"]:
        pid, at_s = proof.killed.get(part["name"], (part["pid"], 0.0))
        if part["phase"] == "running" and part["pid"] != pid and part["name"] not in proof.back:
            proof = replace(proof, back=(*proof.back, part["name"]))
            lines.append(Line(f"{part['name']} is back after {now_s - at_s:.1f} s", "good"))
    if len(proof.back) < len(proof.killed):
        return proof, lines
    if proof.resting_since_s is None:
        lines.append(Line("customers pause for a moment, so that all copies can be compared", "note"))
        return replace(proof, resting_since_s=now_s), lines
    if is_same(facts):
        database = facts["database"]
        names = " and ".join(proof.killed)
        text = (
            f"nothing was lost and nothing counts twice after the kill of {names}: "
            f"all copies hold {database['standing']:,} orders worth {database['cents'] / 100:,.2f} €"
        )
        return None, [*lines, Line(text, "proof")]
    if now_s - proof.resting_since_s > PATIENCE_S:
        return None, [*lines, Line(f"the copies still differ after {PATIENCE_S:.0f} s: see the table", "bad")]
    return proof, lines


def is_same(facts: Facts) -> bool:
    """Whether every part runs and every side says what the database says."""
    running = all(part["phase"] in ("running", "done") for part in facts["parts"])
    return bool(running and facts["parts"] and all(facts["in_step"].values()))
