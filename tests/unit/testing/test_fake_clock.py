from headrace.clock import Clock
from headrace.testing import FakeClock


def test_stands_still_until_it_is_moved() -> None:
    clock: Clock = FakeClock(1_000)
    assert [clock.now_ms(), clock.now_ms()] == [1_000, 1_000]


def test_advances_by_hand_and_can_be_set_back() -> None:
    clock = FakeClock(1_000)
    clock.advance(250)
    assert clock.now_ms() == 1_250
    clock.advance(-500)
    assert clock.now_ms() == 750
