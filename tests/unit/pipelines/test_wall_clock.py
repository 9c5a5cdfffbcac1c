"""When an available-now run that the wall clock wakes is at its end."""

from headrace.pipelines.spark.wall_clock import Ends


def test_a_batch_without_data_is_the_end_unless_it_was_planned_by_the_run_before() -> None:
    ends = Ends()
    assert not ends.is_over("one", [("5", "5")])
    assert not ends.is_over("one", [("5", "9"), ("2", "2")])
    assert ends.is_over("one", [("9", "9"), ("2", "2")])
    assert not ends.is_over("two", [("9", "9")])
    assert ends.is_over("two", [("9", "9")])


def test_runs_that_have_ended_are_forgotten() -> None:
    ends = Ends()
    ends.is_over("one", [("5", "5")])
    ends.forget("one")
    assert not ends.is_over("one", [("5", "5")])
