"""Operators over time and over tables, each a function `DataFrame -> DataFrame` for `df.transform(…)`.

    from headrace.pipelines.operators import aggregates as agg
    from headrace.pipelines.operators import correct, event_time, tumbling

    orders.transform(event_time("created_at", delay="10 minutes", ahead="1 minute")).transform(
        tumbling("1 minute", by="shop", total=agg.sum("amount"), stragglers=correct("1 hour"))
    )

Events of a store: `read_events`; lines of logs: `parse_logs`, `level_in`. What happens in which order:
`match_pattern`, `match_patterns`. Stored queries that rows are held against: `percolate`. Behind windows:
`per_window`, `top_rows`, `compare`, `burn_rate`. One row behind the other, in `ordered/`: `rolling`, `batches`,
`first_rows`, `flag_anomalies`. Joins and tables: `join_streams` and `join_windows` (events with events), `enrich`
(events with a table's row), and over tables as changes `table_changes`, `appended`, `join_tables`, `group_changes`,
`distinct_changes`, in `tables/`; `latest` and `top_rows` are groups of a row or several.

What rows add up to is in `aggregates`, and how that is computed in `aggregation/`; windows are in `windows/`, joins of
streams in `joins/`. An operator over keyed state is pure, stands beside its function, and runs in tests without Spark.
What Spark does well by itself is left to it: tumbling windows and sessions whose late rows are dropped.
"""

# All at once: a function has its module's name, and whoever is imported last has it here.
from headrace.pipelines.operators.aggregation.top_n import top_n
from headrace.pipelines.operators.burn_rate import burn_rate
from headrace.pipelines.operators.compare import compare
from headrace.pipelines.operators.correct_clock import correct_clock
from headrace.pipelines.operators.deduplicate import deduplicate
from headrace.pipelines.operators.event_time import event_time
from headrace.pipelines.operators.events import read_events
from headrace.pipelines.operators.joins.streams import join_streams
from headrace.pipelines.operators.joins.windows import join_windows
from headrace.pipelines.operators.logs import level_in, parse_logs
from headrace.pipelines.operators.ordered.anomalies.ewma import ewma
from headrace.pipelines.operators.ordered.anomalies.flags import flag_anomalies
from headrace.pipelines.operators.ordered.anomalies.robust import robust
from headrace.pipelines.operators.ordered.anomalies.seasonal import seasonal
from headrace.pipelines.operators.ordered.batches import batches
from headrace.pipelines.operators.ordered.first_rows import first_rows
from headrace.pipelines.operators.ordered.rolling import rolling
from headrace.pipelines.operators.patterns.match import match_pattern, match_patterns, patterns_from
from headrace.pipelines.operators.percolation.percolate import percolate, queries_from
from headrace.pipelines.operators.ranking import latest, ranked, top_rows
from headrace.pipelines.operators.stragglers import correct, drop, late_rows, on_time, routed, side_output
from headrace.pipelines.operators.tables.appended import appended
from headrace.pipelines.operators.tables.changes import row_versions, table_changes
from headrace.pipelines.operators.tables.changes_reading import envelope_schema, row_schema
from headrace.pipelines.operators.tables.enrichment.enrich import enrich
from headrace.pipelines.operators.tables.groups.changes import distinct_changes, group_changes
from headrace.pipelines.operators.tables.joins.join import join_tables
from headrace.pipelines.operators.windows.fixed import hopping, per_window, tumbling
from headrace.pipelines.operators.windows.sessions import sessions
from headrace.pipelines.operators.windows.sliding import sliding

__all__ = [
    "aggregates",
    "appended",
    "batches",
    "burn_rate",
    "compare",
    "correct",
    "correct_clock",
    "deduplicate",
    "distinct_changes",
    "drop",
    "enrich",
    "envelope_schema",
    "event_time",
    "ewma",
    "first_rows",
    "flag_anomalies",
    "group_changes",
    "hopping",
    "join_streams",
    "join_tables",
    "join_windows",
    "late_rows",
    "latest",
    "level_in",
    "match_pattern",
    "match_patterns",
    "on_time",
    "parse_logs",
    "patterns_from",
    "per_window",
    "percolate",
    "queries_from",
    "ranked",
    "read_events",
    "robust",
    "rolling",
    "routed",
    "row_schema",
    "row_versions",
    "seasonal",
    "sessions",
    "side_output",
    "sliding",
    "table_changes",
    "top_n",
    "top_rows",
    "tumbling",
]
