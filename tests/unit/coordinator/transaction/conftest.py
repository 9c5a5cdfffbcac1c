import pytest

from tests.unit.coordinator.transaction.small_shell import SmallShell


@pytest.fixture
def shell():
    return SmallShell()
