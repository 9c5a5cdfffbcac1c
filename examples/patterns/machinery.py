"""Machinery: the temperature rises three times in a row, and then the machine is not heard of for half a minute.

python examples/patterns/machinery.py > machines.jsonl        # two hours of twelve machines, always the same
headrace pattern test examples/patterns/machinery.py:OVERHEATED machines.jsonl --key machine --time at
"""

import json
import random
from collections.abc import Iterator
from heapq import merge

from headrace.cep import Pattern


def rising(times: int) -> Pattern:
    """So many readings, each higher than the one before it, with no other reading in between."""
    pattern = Pattern.begin("reading0", "kind = 'temperature'")
    for number in range(1, times + 1):
        last = f"reading{number - 1}.value"
        pattern = pattern.not_followed_by("pause", f"kind = 'temperature' AND value <= {last}").followed_by(
            f"reading{number}", f"kind = 'temperature' AND value > {last} + 1"
        )
    return pattern


# A pattern is a value, so functions make it, and it can go on from there.
OVERHEATED = (
    rising(3)
    .not_followed_by("heartbeat", "kind = 'heartbeat'", within="30 seconds")
    .within("10 minutes")
    .skip_past_last()
)

_SECOND_MS = 1_000


def reading(machine: str, second: float, value: float) -> dict[str, object]:
    return {"machine": machine, "at": round(second * _SECOND_MS), "kind": "temperature", "value": round(value, 1)}


def heartbeat(machine: str, second: float) -> dict[str, object]:
    return {"machine": machine, "at": round(second * _SECOND_MS), "kind": "heartbeat", "value": None}


def life(machine: str, chance: random.Random) -> Iterator[dict[str, object]]:
    """Two hours of a machine: a heartbeat every ten seconds, a temperature that swings about every minute."""
    for second in range(0, 7200, 10):
        # m03 overheats from minute 60 on and dies; m05 overheats and lives; m08 dies cold.
        if (machine == "m03" and second > 3780) or (machine == "m08" and second > 5000):
            return
        yield heartbeat(machine, second + chance.random())
        if second % 60 == 0:
            minute = second // 60
            level = 60 + 4 * (minute % 2) + chance.uniform(-0.4, 0.4)
            if machine in ("m03", "m05") and 60 <= minute <= 63:
                level = 66 + 5 * (minute - 60)
            yield reading(machine, second + 5, level)


def events(seed: int = 3) -> Iterator[dict[str, object]]:
    """All that the machines send, in the order of time."""
    chance = random.Random(seed)
    lives = [list(life(f"m{number:02d}", chance)) for number in range(12)]
    return merge(*(sorted(one, key=_time) for one in lives), key=_time)


def _time(event: dict[str, object]) -> int:
    return event["at"]  # type: ignore[return-value]


if __name__ == "__main__":
    for event in events():
        print(json.dumps(event))
