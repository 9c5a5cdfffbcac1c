"""What is told of a failure, and which failures are not tried again."""

from headrace.pipelines.jobs.failures import sentence_of, will_last

LOST = "[X] Failed: Traceback\n  File ...\nheadrace.pipelines.errors.DataLoss: t-0 begins at 5 now\n SQLSTATE: 38000"
UNRESOLVED = "[UNRESOLVED] no column `x`. SQLSTATE: 42703;\n'Project"
NOT_IN_REAL_TIME = (
    "[STREAMING_REAL_TIME_MODE.OPERATOR_OR_SINK_NOT_IN_ALLOWLIST] Streaming real-time mode has the following "
    "limitation: The operator(s): org.apache.spark.sql.execution.aggregate.HashAggregateExec are not in the operator "
    "allowlist for Real-Time Mode. To bypass this check, set x to false. SQLSTATE: 0A000\n=== Streaming Query ===\n"
)
GONE = (
    "[Y] Failed\nheadrace.client.errors.NoBroker: no broker answers at 127.0.0.1:1\n"
    "=== Streaming Query ===\nSQLSTATE: 42703"
)
RAISED = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted due to stage failure: Task 0 in \
stage 1.0 failed 1 times: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/x/site-packages/pyspark/worker.py", line 3408, in main
    process()
  File "/home/me/shop.py", line 13, in priced
    raise ValueError("bad price")
ValueError: bad price

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:645)
Driver stacktrace: SQLSTATE: XXKST
=== Streaming Query ===
"""


def test_our_own_sentence_is_found_in_sparks_long_story() -> None:
    assert sentence_of(RuntimeError(LOST)) == "t-0 begins at 5 now"
    assert sentence_of(RuntimeError(UNRESOLVED)) == "[UNRESOLVED] no column `x`."
    assert sentence_of(RuntimeError()) == "RuntimeError"


def test_what_a_function_of_the_users_raised_is_named_with_its_line() -> None:
    said = sentence_of(RuntimeError(RAISED))
    assert said == "ValueError: bad price (/home/me/shop.py:13, in priced)"
    assert sentence_of(RuntimeError(RAISED.replace("/home/me/", "/x/site-packages/"))) == "ValueError: bad price"
    assert sentence_of(RuntimeError(RAISED.replace("ValueError: bad price", "KeyError"))).startswith("KeyError (/home")
    assert not will_last(RuntimeError(RAISED))


def test_real_time_mode_names_what_it_cannot_do_and_what_to_choose() -> None:
    said = sentence_of(RuntimeError(NOT_IN_REAL_TIME))
    assert said.startswith("real-time mode cannot run this query, choose a trigger such as '500 ms': The operator(s): ")
    assert said.endswith("HashAggregateExec are not in the operator allowlist for Real-Time Mode.")
    assert "org.apache" not in said


def test_changed_state_is_one_sentence_with_the_remedy_and_not_tried_again() -> None:
    spark = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: [STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE] Provided "
        "key schema does not match existing state key schema.\nExisting … SQLSTATE: XXKST\n=== Streaming Query ==="
    )
    said = sentence_of(RuntimeError(spark))
    assert said.startswith("its state was kept by other steps than the query now has (Spark's STATE_STORE_KEY_SCHEMA")
    assert "headrace pipeline reset" in said
    assert will_last(RuntimeError(spark))
    ours = "headrace.pipelines.keyed.operator.BadState: the stored state has 4 buckets and the query asks for 8"
    assert will_last(RuntimeError(f"[X] Failed\n{ours}"))


def test_only_what_could_go_well_is_tried_again() -> None:
    assert [will_last(RuntimeError(text)) for text in (LOST, UNRESOLVED, NOT_IN_REAL_TIME)] == [True, True, True]
    assert not will_last(RuntimeError(GONE))
    assert not will_last(RuntimeError("disk full"))
