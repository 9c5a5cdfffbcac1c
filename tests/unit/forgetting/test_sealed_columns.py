"""Columns of Arrow, sealed and opened."""

import pyarrow as pa
import pytest

from headrace.errors import PipelineError
from headrace.forgetting.key_store import MemoryKeyStore, StoredKey
from headrace.forgetting.keyring import Keyring
from headrace.pipelines.sealed import open_array, seal_array
from headrace.testing.contracts.keys import MASTER


class CountingStore(MemoryKeyStore):
    reads = 0

    def read(self, key_ids: object) -> list[StoredKey]:
        self.reads += 1
        return super().read(key_ids)  # type: ignore[arg-type]


def test_columns_are_sealed_opened_and_forgotten():
    store = CountingStore()
    keys = Keyring(store, MASTER)
    names = pa.array(["Ada", "Grace", None, "Ada", ""] * 100)
    subjects = pa.array([7, 8, None, 7, 9] * 100)
    sealed = seal_array(keys, names, subjects, "name")
    assert "Ada" not in str(sealed.to_pylist())
    assert len(sealed.unique()) == 4
    fresh = Keyring(store, MASTER)
    assert open_array(fresh, sealed, "name") == names
    assert store.reads == 1, "all keys of a batch are read together"
    keys.forget("7")
    fresh.refresh()
    assert open_array(fresh, sealed, "name").to_pylist()[:5] == [None, "Grace", None, None, ""]
    assert open_array(fresh, pa.array(["plain", None]), "name").to_pylist() == ["plain", None]
    late = seal_array(fresh, pa.array(["Ada"]), pa.array(["7"]), "name")
    assert open_array(fresh, late, "name").to_pylist() == [None]
    number = keys.seal_value({"a": 1}, subject="8", field="name")
    assert open_array(fresh, pa.array([number]), "name").to_pylist() == ['{"a": 1}']


def test_a_value_of_nobody_is_refused():
    with pytest.raises(PipelineError, match="nobody whose it is"):
        seal_array(Keyring(MemoryKeyStore(), MASTER), pa.array(["Ada"]), pa.array([None], pa.string()), "name")
