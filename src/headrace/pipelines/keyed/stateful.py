"""What Spark is given: no more than its driver needs to see.

For every run of a query Spark starts a Python process beside the driver, asks what state there is, and ends it. The
query waits for that, and most of the time goes into imports. So all that serves rows is packed here, and is opened only
where there are some.
"""

import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark import cloudpickle
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorHandleState
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.pipelines.keyed.operator import Operator, Plan

# The only variable, because each costs every task of every micro-batch some milliseconds to set up.
VARIABLE: Final = "keyed"
# Types and not their names, which Spark's Python side would have the JVM parse in every task.
_ID = StructType([StructField("id", StringType())])
_DATA = StructType([StructField("data", BinaryType())])
# The way to the state of the task before, in a worker of Spark's: see `close`.
_before: list[Any] = []


class KeyedProcessor(StatefulProcessor):
    """Hands on to `processor.Serving`."""

    def __init__(
        self, operator: "Operator", plan: "Plan", keys: "pa.Schema", buckets: int, *, is_bounded: bool = False
    ) -> None:
        packed = (operator, plan, keys, buckets, is_bounded)
        self._packed: bytes = cloudpickle.dumps(packed)  # type: ignore[no-untyped-call]

    def init(self, handle: Any) -> None:
        """Called for each partition in each micro-batch, also for those without rows; and once beside the driver."""
        state = handle.getMapState(VARIABLE, _ID, _DATA)
        client = handle._statefulProcessorApiClient  # noqa: SLF001 - the way to a key of our own
        if client.handle_state is StatefulProcessorHandleState.PRE_INIT:
            return
        from headrace.pipelines.keyed.processor import Serving

        self._client = client
        self._serving = Serving(handle, state, *pickle.loads(self._packed))  # noqa: S301 - packed by ourselves
        self._serving.begin(client)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        """New rows of a bucket."""
        return self._serving.rows(int(key[0]), rows, timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:  # noqa: N802, N803
        """The bucket's alarm."""
        return self._serving.alarm(int(key[0]), timerValues, expiredTimerInfo.getExpiryTimeInMs())

    def close(self) -> None:
        """Leave it to Spark to end the way to the state, when the task is over.

        Told now that it is over, Spark's side would only stop reading, and its end of the socket would be open for as
        long as the JVM runs: one more with every task. It is closed if Spark's side is still reading then.
        """
        if client := getattr(self, "_client", None):
            client.set_handle_state = lambda _state: None
            _before[:] = [client]  # alive until then, too
