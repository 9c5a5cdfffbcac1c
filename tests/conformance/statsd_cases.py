"""Packets that the reference daemon of StatsD and our gateway are given alike, and how the two differ on purpose.

A case is a list of intervals, an interval a list of packets.
"""

from __future__ import annotations

import random
from typing import Final

PERCENTILES: Final = (90, 50, 99.9, -10, 0.1)
BUCKETS: Final = (10, 100.5, 1000)


def _many(kind: str, count: int, seed: int) -> list[bytes]:
    chosen = random.Random(seed)
    values = [f"{chosen.choice((chosen.randrange(1000), round(chosen.uniform(0, 2000), 3)))}" for _ in range(count)]
    return [f"many.{kind}:{value}|{kind}".encode() for value in values]


CASES: Final[dict[str, list[list[bytes]]]] = {
    "counters": [[b"a:1|c", b"a:2.5|c", b"a:-1|c", b"b:1e2|c", b"b:.5|c"], [b"a:1|c"]],
    "rates": [[b"a:1|c|@0.1", b"a:3|c|@0.5", b"t:5|ms|@0.1", b"t:6|ms", b"t:7|ms|@0.25"]],
    "gauges": [[b"g:5|g", b"g:+2|g", b"g:-3.5|g", b"h:-4|g", b"i:+1|g"], [b"g:+1|g", b"h:7|g"]],
    "timers": [[b"t:3|ms", b"t:1|ms", b"t:2|ms"], [b"t:9|ms"], _many("ms", 137, 1), _many("ms", 10, 2)],
    "sets": [[b"s:1|s", b"s:2|s", b"s:1|s", b"s:word|s", b"u:|s"], [b"s:1|s"]],
    "several lines": [[b"a:1|c\nb:2|g\n\nt:3|ms\ns:x|s\n", b"\na:1|c"]],
    "several values": [[b"a:1|c:2|c:3|c|@0.5", b"t:1|ms:2|ms:3|ms"]],
    "names": [[b"a b:1|c", b"a/b:1|c", b"a$%b:1|c", "é.x:1|c".encode(), b"a  b\tc:1|c", b"A-B_c.9:1|c"]],
    "tags": [[b"a:1|c|#env:prod,zone:x", b"a:1|c|#env:prod", b"a:2|c|@0.5|#env:prod", b"g:1|g|#bare", b"t:4|ms|#a:1"]],
    "graphite tags": [[b"a;env=prod;zone=x:1|c", b"a;env=prod:2|c"]],
    "bad lines": [[b"a", b"a:1", b"a:x|c", b"a:|c", b"t:-1|ms", b"a:1|c|0.5", b"a:1|c|@x", b"good:1|c"]],
    "one name, several types": [[b"x:1|c\nx:2|g\nx:3|ms\nx:4|s"]],
}

DIFFERENT: Final = (
    "Types that the reference daemon does not know are counters to it, `h` and `d` among them.",
    "Numbers as JavaScript has them, in hexadecimal, infinite or empty, are numbers to it.",
    "Series whose tags stand in another order are others to it.",
    'Tags are sanitised by it as names are; here with `sanitise = "all"`.',
    "A value of a set with a colon in it is several lines to it, of which only the last has a type.",
    "A sampling rate of 0 or above 1 is one to it.",
    "Names of which no letter is left are one series to it.",
)
