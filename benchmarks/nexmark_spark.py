"""The Spark sides: the example's queries as they are, and those without state on Spark as it comes."""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from harness import ROOT
from pipelines_spark import Headrace, TwoPartitionSpark

FOLDER = ROOT / "examples" / "nexmark"
VERIFIED = 5_000
sys.path.insert(0, str(FOLDER))


class Nothing:
    """In place of a sink: the rows come in the form that it takes, and go nowhere."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink
        self.output_mode = getattr(sink, "output_mode", "append")

    def fit(self, frame: DataFrame) -> tuple[DataFrame, "Nothing"]:
        found, sink = self._sink.fit(frame) if hasattr(self._sink, "fit") else (frame, self._sink)
        return found, Nothing(sink)

    def __call__(self, frame: DataFrame, _: int) -> None:
        frame.write.format("noop").mode("overwrite").save()


class _Verified:
    """Results beside DuckDB's, for which the queries are run with their own sinks."""

    def __init__(self, folder: Path) -> None:
        os.environ["NEXMARK_RESULTS"] = str(folder / "results")
        super().__init__(folder)


class Ours(_Verified, Headrace):
    """`headrace pipeline run` of one query after the other."""

    def query(self, query: str, bootstrap: str, prefix: str) -> dict[str, Any]:  # type: ignore[override]
        def nowhere(job: Any) -> Any:
            return replace(job, outputs={word: Nothing(output) for word, output in job.outputs.items()})

        return self._run(query, bootstrap, prefix, nowhere)

    def verify(self, query: str, bootstrap: str, prefix: str) -> dict[str, Any]:  # type: ignore[override]
        from answers import Oracle, summed
        from events import events

        self._run(query, bootstrap, prefix, lambda job: job)
        return summed(Oracle(events(VERIFIED), self._folder / "results").found(query))

    def _run(self, query: str, bootstrap: str, prefix: str, changed: Callable[[Any], Any]) -> dict[str, Any]:
        import run

        (job,) = run.load(run.QUERIES, [query])
        inputs = {word: replace(given, name=prefix + given.name) for word, given in job.inputs.items()}
        started = time.perf_counter()
        run.run_job(
            self.spark, self._folder / f"run-{next(self._numbers)}", changed(replace(job, inputs=inputs)), bootstrap
        )
        return {"seconds": time.perf_counter() - started}


class Plain(_Verified, TwoPartitionSpark):
    """Spark's own connector and `from_json`, told to shuffle into two partitions."""

    def session(self) -> SparkSession:
        spark = super().session()
        spark.sparkContext.addPyFile(str(FOLDER / "queries.py"))  # whose function q14's workers call
        return spark

    def query(self, query: str, bootstrap: str, prefix: str) -> dict[str, Any]:  # type: ignore[override]
        made = self._made_of(query, bootstrap, prefix)
        started = time.perf_counter()
        self._to_the_end(made.writeStream.format("noop"))
        return {"seconds": time.perf_counter() - started}

    def verify(self, query: str, bootstrap: str, prefix: str) -> dict[str, Any]:  # type: ignore[override]
        from collections import Counter

        from answers import Oracle, summed
        from events import events

        columns = Oracle(events(VERIFIED), self._folder).columns(query)
        rows = self._collected(self._made_of(query, bootstrap, prefix).select(*columns), "stream", "append")
        return summed(Counter(map(tuple, rows)))

    def _made_of(self, query: str, bootstrap: str, prefix: str) -> DataFrame:
        import queries

        value = fn.from_json(fn.col("value").cast("string"), f"{queries.BID}, {queries.REST}")
        bids = self.raw(True, bootstrap, prefix + "bids").select(value.alias("v")).select("v.*")
        made: DataFrame = getattr(queries, query)(bids)
        return made
