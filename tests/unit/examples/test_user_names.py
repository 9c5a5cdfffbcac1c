"""The example of names that are taken once, in every store that needs no server."""

import importlib.util
import sys
from pathlib import Path

from headrace.eventsourcing import MemoryStore, sqlite

EXAMPLE = Path(__file__).parents[3] / "examples" / "user_names.py"


def test_a_name_is_taken_once_and_can_be_given_up(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("user_names", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = example  # dataclasses look their module up
    spec.loader.exec_module(example)
    for store in (MemoryStore(), sqlite(tmp_path / "users.db")):
        holders = example.run(store)
        assert holders["ann"] != holders["anna"]
        registered = [each.stream for each in store.read() if each.type == "user-registered"]
        assert sorted(registered) == sorted(f"user-{user}" for user in holders.values())
        assert example.run_by_tag(store) == 1
        assert len([each for each in store.read() if each.tags == ("name:bob",)]) == 1
        store.close()
