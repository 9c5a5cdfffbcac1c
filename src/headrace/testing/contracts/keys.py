"""What every key store must do; see `headrace.forgetting.key_store`.

    class TestMyKeys(KeyStoreContract):
        @pytest.fixture
        def open_store(self, tmp_path):
            return lambda: my_keys(tmp_path / "keys")

`open_store` opens one and the same store, empty at first, each time as another program would.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.forgetting.errors import SubjectForgotten, UnknownKey, WrongMasterKey
from headrace.forgetting.key_store import KeyStore, StoredKey
from headrace.forgetting.keyring import FORGOTTEN, Keyring
from headrace.forgetting.master_key import MasterKey

MASTER = MasterKey(bytes(range(32)))
OpenStore = Callable[[], KeyStore]


def made(number: int, subject: str = "s", wrapped: bytes | None = b"wrapped") -> StoredKey:
    """A key."""
    return StoredKey(f"{number:022d}", subject, wrapped, number)


class KeyStoreContract:
    """Keys, and who was forgotten."""

    def test_one_key_for_each_subject(self, open_store: OpenStore) -> None:
        one, other = open_store(), open_store()
        assert one.add(made(1)) == made(1)
        assert other.add(made(2)) == made(1), "of two the first counts"
        assert other.add(made(3, "t")) == made(3, "t")
        assert [one.find("s"), one.find("t"), one.find("u")] == [[made(1)], [made(3, "t")], []]
        assert sorted(one.read([made(3).key_id, made(1).key_id, "unknown"])) == [made(1), made(3, "t")]

    def test_many_who_ask_at_once_get_the_same_key(self, open_store: OpenStore) -> None:
        stores = [open_store() for _ in range(4)]
        with ThreadPoolExecutor(8) as pool:
            found = set(pool.map(lambda number: stores[number % 4].add(made(number)), range(40)))
        assert len(found) == 1
        assert stores[0].find("s") == [*found]

    def test_a_destroyed_key_stays_known(self, open_store: OpenStore) -> None:
        one, other = open_store(), open_store()
        one.add(made(1))
        one.add(made(2, "t"))
        done = one.destroy("s", "spare", 77)
        assert (done.forgotten, done.is_repeat) == ((1, "s", 77, (made(1).key_id,)), False)
        assert other.find("s") == [made(1, wrapped=None)]
        assert other.read([made(1).key_id]) == [made(1, wrapped=None)]
        assert other.find("t") == [made(2, "t")]
        assert other.add(made(3)) == made(1, wrapped=None), "no key is made again silently"

    def test_forgetting_twice_is_forgetting_once(self, open_store: OpenStore) -> None:
        store = open_store()
        store.add(made(1))
        first = store.destroy("s", "spare", 77)
        again = open_store().destroy("s", "another", 99)
        assert again.forgotten == first.forgotten
        assert again.is_repeat
        assert store.last_forgotten() == 1

    def test_a_subject_without_a_key_is_forgotten_too(self, open_store: OpenStore) -> None:
        store = open_store()
        assert store.destroy("nobody", "spare", 77).forgotten.key_ids == ("spare",)
        assert store.find("nobody") == [("spare", "nobody", None, 77)]

    def test_a_new_key_on_purpose(self, open_store: OpenStore) -> None:
        store = open_store()
        store.add(made(1))
        assert store.add(made(2), renew=True) == made(1), "it is not forgotten"
        store.destroy("s", "spare", 77)
        assert store.add(made(2), renew=True) == made(2)
        assert store.find("s") == [made(1, wrapped=None), made(2)]
        assert store.destroy("s", "spare", 78).forgotten == (2, "s", 78, (made(2).key_id,))

    def test_who_was_forgotten_in_order(self, open_store: OpenStore) -> None:
        stores = [open_store() for _ in range(3)]
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(lambda number: stores[number % 3].destroy(f"s{number}", f"spare{number}", number), range(12)))
        acts = stores[0].forgotten()
        assert [act.number for act in acts] == list(range(1, 13))
        assert {act.subject for act in acts} == {f"s{number}" for number in range(12)}
        assert stores[1].forgotten(after=9) == acts[9:]

    def test_the_master_key_is_known_again(self, open_store: OpenStore) -> None:
        Keyring(open_store(), MASTER)
        Keyring(open_store(), MASTER)
        with pytest.raises(WrongMasterKey, match="is not the one"):
            Keyring(open_store(), MasterKey(bytes(32)))

    def test_sealed_by_one_opened_and_forgotten_by_another(self, open_store: OpenStore) -> None:
        one, other = (Keyring(open_store(), MASTER, recheck_s=0) for _ in range(2))
        text = one.seal_value("Ada Łovelace", subject="7", field="name")
        assert other.open_value(text, field="name") == "Ada Łovelace"
        other.forget("7")
        assert one.open_value(text, field="name") is FORGOTTEN
        with pytest.raises(SubjectForgotten):
            one.seal_value("Ada", subject="7", field="name")
        late = one.seal_late("Ada", subject="7", field="name")
        assert one.open_value(late, field="name") is FORGOTTEN
        one.renew("7")
        assert other.open_value(one.seal_value("Grace", subject="7", field="name"), field="name") == "Grace"
        assert other.open_value(text, field="name") is FORGOTTEN

    def test_a_key_of_another_store_is_unknown(self, open_store: OpenStore) -> None:
        from headrace.forgetting.key_store import MemoryKeyStore

        text = Keyring(MemoryKeyStore(), MASTER).seal_value(1, subject="7", field="f")
        with pytest.raises(UnknownKey, match="use the key store"):
            Keyring(open_store(), MASTER).open_value(text, field="f")
