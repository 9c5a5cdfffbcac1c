"""The sealed form, and the keyring over a key store in memory."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import HeadraceError
from headrace.forgetting import FORGOTTEN, Keyring, SubjectForgotten, open_keys
from headrace.forgetting.errors import InvalidKeyStore, InvalidMasterKey, InvalidSubject, Tampered
from headrace.forgetting.key_store import MemoryKeyStore
from headrace.forgetting.master_key import VARIABLE, MasterKey, create_master_key, read_master_key
from headrace.forgetting.sealed import key_ids_in, parse
from headrace.secret_files import ExposedSecret

MASTER = MasterKey(bytes(range(32)))


def keyring() -> Keyring:
    return Keyring(MemoryKeyStore(), MASTER)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(
    value=JSON,
    field=st.text(alphabet=st.characters(codec="utf-8")),
    subject=st.text(alphabet=st.characters(codec="utf-8"), min_size=1),
)
def test_what_is_sealed_opens_as_it_was(value, field, subject):
    keys = keyring()
    text = keys.seal_value(value, subject=subject, field=field)
    assert keys.open_value(text, field=field, subject=subject) == value
    assert text.isascii()
    assert json.dumps(text) == f'"{text}"', "it needs no escape"
    assert key_ids_in(f"before {text}after".encode()) == {parse(text).key_id} == {*keys.key_ids(subject)}
    keys.forget(subject)
    assert keys.open_value(text, field=field) is FORGOTTEN


def test_the_plaintext_and_the_subject_are_nowhere_in_it():
    text = keyring().seal_value("ada@example.org", subject="customer 4711", field="email")
    assert "ada" not in text
    assert "4711" not in text


def test_equal_values_are_sealed_equally_and_others_are_not():
    keys = keyring()
    once, again = (keys.seal_value("Ada", subject="7", field="name") for _ in range(2))
    assert once == again
    assert keys.seal_value("Ada", subject="7", field="nick") != once
    assert keys.seal_value("Ada", subject="8", field="name") != once
    nonces = {keys.seal_value(number, subject="7", field="name").split(":")[3][:16] for number in range(1000)}
    assert len(nonces) == 1000


def test_a_value_does_not_open_in_another_field_or_for_another_subject():
    keys = keyring()
    text = keys.seal_value("Ada", subject="7", field="name")
    with pytest.raises(Tampered, match="another field"):
        keys.open_value(text, field="nick")
    with pytest.raises(Tampered, match="another subject"):
        keys.open_value(text, field="name", subject="8")
    other = keys.seal_value("Bob", subject="8", field="name")
    swapped = f"{text.rpartition(':')[0]}:{other.rpartition(':')[2]}"
    with pytest.raises(Tampered):
        keys.open_value(swapped, field="name")


@given(st.data())
def test_an_altered_text_is_refused_or_not_sealed_at_all(data):
    keys = keyring()
    text = keys.seal_value("Ada", subject="7", field="name")
    start = len("sealed:1:") + 23
    place = data.draw(st.integers(start, len(text) - 2))  # the last letter has bits that mean nothing
    letter = data.draw(st.sampled_from("ABab01-_").filter(lambda letter: letter != text[place]))
    with pytest.raises(Tampered):
        keys.open_value(text[:place] + letter + text[place + 1 :], field="name")


@pytest.mark.parametrize("value", ["sealed:1:", "sealed:1:short:abc", "sealed:2:x", "sealed", 7, None, "", "Ada"])
def test_what_is_not_sealed_stays_as_it_is(value):
    assert keyring().open_value(value, field="f") == value


def test_documents():
    keys = keyring()
    document = {"customer": "7", "email": "ada@example.org", "phones": ["1", "2"], "note": None}
    sealed = keys.seal(document, subject="7", fields=["email", "phones", "note", "absent"])
    assert sealed["customer"] == "7"
    assert sealed["note"] is None
    assert "ada" not in json.dumps(sealed)
    assert keys.open_sealed(sealed) == document
    assert keys.open_sealed(sealed, fields=["email"])["phones"] == sealed["phones"]
    keys.forget("7")
    assert keys.open_sealed(sealed, stand_in="?") == {"customer": "7", "email": "?", "phones": "?", "note": None}
    with pytest.raises(SubjectForgotten, match=r"Keyring\.renew"):
        keys.seal(document, subject="7", fields=["email"])
    with pytest.raises(HeadraceError, match="give a list"):
        keys.seal(document, subject="7", fields="email")


def test_a_subject_is_the_same_in_every_form_of_unicode():
    keys = keyring()
    composed, decomposed = "Ren\u00e9", "Rene\u0301"
    text = keys.seal_value(1, subject=composed, field="f")
    keys.forget(decomposed)
    assert keys.open_value(text, field="f") is FORGOTTEN


def test_long_odd_and_impossible_subjects():
    keys = keyring()
    for subject in ("x" * 249, "日本 \n\0", "' OR 1=1"):
        assert keys.open_value(keys.seal_value(1, subject=subject, field="f"), field="f", subject=subject) == 1
    for subject in ("", "\ud800"):
        with pytest.raises(InvalidSubject):
            keys.seal_value(1, subject=subject, field="f")


def test_state_of_several_subjects_closes_with_the_first_that_is_forgotten():
    keys = keyring()
    ids = [parse(keys.seal_value(1, subject=subject, field="f")).key_id for subject in "ab"]
    sealed = keys.seal_state(b'{"name":"Ada"}', ids)
    assert b"Ada" not in sealed
    assert keys.open_state(sealed) == (b'{"name":"Ada"}', frozenset(ids))
    keys.forget("b")
    assert keys.open_state(sealed) is None
    assert keys.seal_state(b"{}", ids) is None, "it may hold what was forgotten"
    assert keys.open_state(keys.seal_state(b"{}", [])) == (b"{}", frozenset())


def test_master_keys_come_from_private_files_or_the_environment(tmp_path: Path):
    file = tmp_path / "master.key"
    create_master_key(file)
    assert file.stat().st_mode & 0o777 == 0o600
    made = read_master_key(file, {})
    assert read_master_key(None, {VARIABLE: file.read_text()}).check == made.check
    with pytest.raises(InvalidMasterKey, match="is there already"):
        create_master_key(file)
    with pytest.raises(InvalidMasterKey, match="headrace keys create"):
        read_master_key(None, {})
    secret = file.read_text().strip()
    file.write_text(secret[:-5])
    with pytest.raises(InvalidMasterKey, match="holds no master key") as refused:
        read_master_key(file, {})
    assert secret[:10] not in str(refused.value)
    os.chmod(file, 0o644)
    with pytest.raises(ExposedSecret, match="chmod 600"):
        read_master_key(file, {})
    with pytest.raises(ExposedSecret, match="check the path"):
        read_master_key(tmp_path / "lost", {})


def test_keys_by_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    create_master_key(tmp_path / "master.key")
    keys = open_keys("sqlite:///inside/keys.db", master_key_file="master.key", folder=tmp_path)
    assert (tmp_path / "inside" / "keys.db").stat().st_mode & 0o077 == 0
    keys.close()
    for url in ("redis://user:secret@host", "keys.db", "sqlite://host/x", "sqlite:///"):
        with pytest.raises(InvalidKeyStore) as refused:
            open_keys(url, master_key_file=tmp_path / "master.key")
        assert "secret" not in str(refused.value)
    with pytest.raises(ExposedSecret):
        open_keys("sqlite:///other.db", master_key_file="lost.key", folder=tmp_path)
    assert not (tmp_path / "other.db").exists(), "nothing is written without a master key"


def test_keys_never_show_themselves():
    keys = keyring()
    keys.seal_value(1, subject="7", field="f")
    (key,) = keys._by_id.values()
    assert key._material.hex() not in repr(key)
    assert repr(MASTER) == "MasterKey(…)"
