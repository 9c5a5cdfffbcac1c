"""What is read out of a web server's log: rates by class of status, the busiest paths, latency, the error budget.

headrace produce access --follow /var/log/nginx/access.log
headrace pipeline run examples/weblog/access_jobs.py
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from headrace.pipelines import job, topic
from headrace.pipelines.operators import aggregates as agg
from headrace.pipelines.operators import burn_rate, event_time, tumbling

ACCESS = topic("access", format="combined")
EVERY = "1 second"  # of a quiet server it would be a minute


def requests(access: DataFrame) -> DataFrame:
    """Each request with its time, its class of status and how long it took."""
    return access.selectExpr(
        "time", "path", "status", "concat(status div 100, 'xx') AS class", "cast(rest AS double) AS seconds",
        "'shop' AS service",
    ).transform(event_time("time", delay="10 seconds"))  # fmt: skip


def _written(found: DataFrame, key: str) -> DataFrame:
    return found.select(fn.col(key).alias("key"), fn.to_json(fn.struct("*")).alias("value"))


def rates_by_class(access: DataFrame) -> DataFrame:
    return requests(access).transform(tumbling(EVERY, by="class", requests=agg.count()))


def busy_paths(access: DataFrame) -> DataFrame:
    return requests(access).transform(
        tumbling(EVERY, by="path", requests=agg.count(), p95=agg.approx_percentile("seconds", 0.95))
    )


def budget_burn(access: DataFrame) -> DataFrame:
    """Short windows, because the story is short: a server's would be five minutes and an hour."""
    counted = tumbling(EVERY, by="service", good=agg.count(where="status < 500"), total=agg.count())
    return (
        requests(access)
        .transform(counted)
        .transform(
            burn_rate(by="service", good="good", total="total", objective=0.99, windows=[("1 second", "3 seconds", 10)])
        )
    )


@job(inputs={"access": ACCESS}, outputs=topic("rates"))
def rates(access: DataFrame) -> DataFrame:
    """Requests by class of status."""
    return _written(rates_by_class(access), "class")


@job(inputs={"access": ACCESS}, outputs=topic("paths"))
def paths(access: DataFrame) -> DataFrame:
    """Requests and the 95th percentile of their time, by path."""
    return _written(busy_paths(access), "path")


@job(inputs={"access": ACCESS}, outputs=topic("budget"))
def budget(access: DataFrame) -> DataFrame:
    """How fast the error budget burns, and whether that is an alert."""
    return _written(budget_burn(access), "service")
