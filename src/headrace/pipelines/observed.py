"""Names of the counts that operators leave in a query's progress, for whoever reads it."""

from typing import Final

LATE_ROWS: Final = "headrace.late"
"""How the names begin of counts `late` and `no_time`: rows that a window did not take."""
EVENT_TIMES: Final = "headrace.time"
"""How the names begin of counts of times that were too far ahead."""
PATTERNS: Final = "headrace.patterns"
"""How the names begin of what patterns say of themselves: `buckets`, a list of JSON texts."""
