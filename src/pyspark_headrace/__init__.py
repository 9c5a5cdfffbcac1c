"""Makes `format("headrace")` known to every Spark session: it looks for modules named `pyspark_…`."""

from headrace.pipelines.source.datasource import HeadraceDataSource as DefaultSource

__all__ = ["DefaultSource"]
