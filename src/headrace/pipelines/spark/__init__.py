"""Spark from below: the session and its JVM, and the one door to Spark's private parts.

`session` starts Spark (`settings`, `java`, `launch`), and what its Python processes are forked from (`forkserver`,
`forked_python`, `daemon`). `internals` reaches into the JVM and into PySpark where no public interface does;
nothing outside this package does so (`tests/unit/pipelines/test_spark_door.py`); each reach has a test in
`tests/integration/test_spark_internals.py`. On it stand `plan` and `stateful_steps`, which read a query's plan;
`checkpoint`, the files of a query; `watermarks`, each input's watermark kept over a restart; `draining`, the end of a
bounded input; `wall_clock`, the end of an available-now run that the wall clock wakes.
"""
