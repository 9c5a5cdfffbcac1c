"""The tables of `explanation/delivery.md`, from `delivery.toml` beside it: what each cell says, and the test for it."""

import re
import tomllib
from pathlib import Path
from typing import Any, Final

DATA = Path(__file__).parent / "explanation" / "delivery.toml"
_MARKS: Final = ("<!-- {}: made by docs/generate.py from delivery.toml -->", "<!-- {} end -->")
_THROUGH_A_GATEWAY: Final = {
    "slow": "too slow",
    "other": "the other program is killed",
    "gateway": "the gateway is killed",
    "broker": "the broker is killed",
    "bad": "bad input",
}
COLUMNS: Final = {
    "into": _THROUGH_A_GATEWAY,
    "out": _THROUGH_A_GATEWAY,
    "direct": {
        "slow": "the receiver is too slow",
        "sender": "the sender is killed",
        "receiver": "the receiver is killed",
        "bad": "bad input",
    },
}


def read_tables() -> dict[str, list[dict[str, Any]]]:
    """Rows by table; a cell is what it says and its test."""
    with DATA.open("rb") as file:
        return tomllib.load(file)


def page(text: str) -> str:
    """The page with the tables between their marks."""
    for table, rows in read_tables().items():
        begin, end = (mark.format(table) for mark in _MARKS)
        columns = COLUMNS[table]
        lines = [f"| | {' | '.join(columns.values())} |", f"|---|{'---|' * len(columns)}"]
        lines += [f"| {row['name']} | {' | '.join(row[column][0] for column in columns)} |" for row in rows]
        block = "\n".join([begin, "", *lines, "", end])
        text = re.sub(f"{re.escape(begin)}.*?{re.escape(end)}", lambda _, block=block: block, text, flags=re.DOTALL)
    return text
