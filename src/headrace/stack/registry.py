"""Every kind of section, in the order in which their processes start; they are drained in the reverse order.

What comes (queues, patterns, search, gateways) is a file in `kinds/` and a line here: what checks, starts, watches and
documents a stack goes by this list alone.
"""

from typing import Final

from headrace.stack.kind import Kind
from headrace.stack.kinds import broker, cdc, dashboard, pipelines, spark, supervisor, sync, topics, views

KINDS: Final[tuple[Kind, ...]] = (
    broker.KIND,
    topics.KIND,
    cdc.KIND,
    spark.KIND,
    pipelines.KIND,
    sync.KIND,
    views.KIND,
    dashboard.KIND,
    supervisor.KIND,
)
