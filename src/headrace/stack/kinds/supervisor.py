"""`[supervisor]`: how processes are started again, and how long they may take to end."""

from headrace.section_keys import Key
from headrace.stack.kind import Kind, Stack
from headrace.stack.machine import Rules

_DEFAULTS = Rules()

KIND = Kind(
    "supervisor",
    "How processes are started again, and how long they may take to end.",
    """
# [supervisor]
# restarts = 8        # so often in a row a process is started again before it is given up
# drain_s = 60        # so long each may take to end, before it is killed
""",
    (
        Key(
            "restarts",
            int,
            "How often in a row a process that failed is started again before it is given up.",
            _DEFAULTS.restarts,
            least=0,
        ),
        Key(
            "first_pause_s",
            float,
            "How long to wait before the first restart; each further one waits twice as long.",
            _DEFAULTS.first_pause_s,
            least=0,
        ),
        Key("longest_pause_s", float, "The longest wait before a restart.", _DEFAULTS.longest_pause_s, least=0),
        Key("steady_s", float, "Who has run for so long has not failed in a row.", _DEFAULTS.steady_s, least=0),
        Key("drain_s", float, "How long each process may take to end before it is killed.", _DEFAULTS.drain_s, least=0),
    ),
)


def rules_of(stack: Stack) -> Rules:
    return Rules(**(stack.one("supervisor") or {}))
