import pytest

from headrace.retry import Backoff, spread


def test_pauses_double_up_to_the_longest_however_many_failures_there_were():
    backoff = Backoff(0.5, 3.0)
    assert [backoff.pause_s(failures) for failures in (1, 2, 3, 4, 5, 100_000)] == [0.5, 1.0, 2.0, 3.0, 3.0, 3.0]


def test_it_gives_up_after_so_many_retries_or_never():
    assert list(Backoff(1.0, 2.0, retries=3).pauses()) == [1.0, 2.0, 2.0]
    assert list(Backoff(1.0, 2.0).at_most(0).pauses()) == []
    assert [Backoff(retries=2).gives_up(failures) for failures in (1, 2, 3)] == [False, False, True]
    assert not Backoff().gives_up(1_000_000)


@pytest.mark.parametrize(("chance", "pause_s"), [(0.0, 0.8), (0.5, 1.0), (1.0, 1.2)])
def test_jitter_is_a_fifth_to_either_side(chance, pause_s):
    assert spread(1.0, chance) == pytest.approx(pause_s)
