"""Every kind of section, in the order in which their processes start; they are drained in the reverse order.

What comes is a file in `kinds/` and a line here: what checks, starts, watches and
documents a stack goes by this list alone.
"""

from typing import Final

from headrace.stack.kind import Kind
from headrace.stack.kinds import (
    broker,
    cdc,
    dashboard,
    events,
    forgetting,
    gateways,
    mail,
    pipelines,
    queues,
    search,
    search_server,
    supervisor,
    sync,
    topics,
    views,
)

KINDS: Final[tuple[Kind, ...]] = (
    broker.KIND,
    topics.KIND,
    forgetting.KIND,
    cdc.KIND,
    gateways.KIND,
    events.KIND,
    pipelines.SPARK,
    pipelines.KIND,
    search.KIND,
    search_server.KIND,
    mail.KIND,
    sync.KIND,
    queues.KIND,
    views.KIND,
    dashboard.KIND,
    supervisor.KIND,
)


_HEAD: Final = """\
# A stack of Headrace, run by: headrace up
#
#   headrace up --check    says what is wrong with this file, and starts nothing
#   headrace status        how each part stands, from another terminal
#   headrace top           the same, live, with rates and lags
#
# Paths are relative to this file. ${VARIABLE} in a value is taken from the environment, and any key can be overridden
# there: HEADRACE__BROKER__PORT=9192 is port of [broker].
#
# The same stack on a real Kafka and a Spark cluster differs in two keys: bootstrap of [broker], master of [spark].
"""


def sample() -> str:
    """A file that can be run as it is."""
    return "".join([_HEAD, *(f"\n# {kind.summary}{kind.sample}" for kind in KINDS)])
