"""An adversary's moves: passwords are tried, one fits from a place where its owner never is, rights are taken and the
audit is stopped, in whichever order, and much is downloaded, without anybody having approved it.

    python examples/patterns/intrusion.py > audit.jsonl        # an office's day, always the same
    headrace pattern test examples/patterns/intrusion.py:INTRUSION audit.jsonl --key account --time at
"""

import json
import random
from collections.abc import Iterator
from heapq import merge

from headrace.cep import Pattern

PREPARATION = Pattern.permutation(
    Pattern.begin("rights", "action = 'role granted' AND detail = 'admin'"),
    Pattern.begin("blindness", "action = 'audit stopped'"),
)
INTRUSION = (
    Pattern.begin("failure", "action = 'login failed'")
    .times_or_more(3)
    .followed_by("entry", "action = 'login' AND country <> home AND country = LAST(failure.country)")
    .followed_by(PREPARATION)
    .not_followed_by("approval", "action = 'change approved'")
    .followed_by("theft", "action = 'download' AND megabytes > 500")
    .within("1 hour")
    .skip_past_last()
)

ACCOUNTS = {f"u{number:02d}": home for number, home in enumerate(["PT", "NO", "AT"] * 10)}
_MINUTE_MS = 60_000


def entry(
    account: str, minute: float, action: str, country: str | None = None, detail: str | None = None, megabytes: int = 0
) -> dict[str, object]:
    home = ACCOUNTS[account]
    return {
        "account": account,
        "at": round(minute * _MINUTE_MS),
        "action": action,
        "home": home,
        "country": country or home,
        "detail": detail,
        "megabytes": megabytes,
    }


def office(seed: int = 5) -> Iterator[dict[str, object]]:
    """A day at work: people mistype passwords, log in, download a little, and are given rights."""
    chance = random.Random(seed)
    minute = 480.0
    while (minute := minute + chance.expovariate(3.0)) < 1080:
        account = chance.choice(sorted(ACCOUNTS))
        action = chance.choices(["login failed", "login", "download", "role granted"], [3, 5, 10, 1])[0]
        detail = chance.choice(["reader", "admin"]) if action == "role granted" else None
        size = chance.randrange(1, 400) if action == "download" else 0
        yield entry(account, minute, action, detail=detail, megabytes=size)


def attack(account: str, minute: float, *moves: tuple[str, str | None, int]) -> list[dict[str, object]]:
    """Four tried passwords and a fitting one from abroad, then some moves, a minute each."""
    tried = [entry(account, minute + number / 4, "login failed", "KP") for number in range(4)]
    tried.append(entry(account, minute + 1, "login", "KP"))
    done = [
        entry(account, minute + 2 + number, action, "KP", detail, megabytes)
        for number, (action, detail, megabytes) in enumerate(moves)
    ]
    return tried + done


RIGHTS, BLINDNESS, THEFT = ("role granted", "admin", 0), ("audit stopped", None, 0), ("download", None, 900)
PLANTED = [
    *attack("u04", 600, RIGHTS, BLINDNESS, THEFT),  # an intrusion
    *attack("u09", 700, BLINDNESS, RIGHTS, THEFT),  # another, in the other order
    *attack("u11", 800, RIGHTS, BLINDNESS, ("change approved", None, 0), THEFT),  # an exercise that was approved
    *attack("u15", 900, RIGHTS, THEFT),  # the audit saw it
]


def events() -> Iterator[dict[str, object]]:
    """All entries of the audit log in the order of time."""
    return merge(office(), sorted(PLANTED, key=_time), key=_time)


def _time(event: dict[str, object]) -> int:
    return event["at"]  # type: ignore[return-value]


if __name__ == "__main__":
    for event in events():
        print(json.dumps(event))
