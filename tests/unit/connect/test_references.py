"""References in settings: to variables, to files, and texts that only look like one."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connect.sections import Unresolved, all_resolved, escaped, resolved
from headrace.stack.document import read_sections

HERE = Path()


def test_variables_and_files_are_put_in(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("p${B}w\r\n")
    text = "a${B}c ${file:secret}"
    assert resolved("url", text, {"B": "x"}, tmp_path) == "axc p${B}w", "what was put in is not looked at again"


def test_what_is_not_there_is_told_without_a_value(tmp_path: Path) -> None:
    with pytest.raises(Unresolved, match=r"cdc\.shop\.url names the environment variable B, which is not set: set it"):
        resolved("cdc.shop.url", "secret${B}", {}, HERE)
    with pytest.raises(Unresolved, match=r"url names the file gone, which cannot be read \(No such file"):
        resolved("url", "secret${file:gone}", {}, tmp_path)
    (tmp_path / "bytes").write_bytes(b"\xff")
    with pytest.raises(Unresolved, match="it is not UTF-8 text"):
        resolved("url", "${file:bytes}", {}, tmp_path)


values = st.recursive(
    st.integers() | st.booleans() | st.text("${}aB_:file") | st.sampled_from(["${B}", "$${B}", "$$${", "${file:x}"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(values)
def test_what_is_escaped_stays_as_it_is(value: object) -> None:
    assert all_resolved("x", escaped(value), {"B": "wrong"}, HERE) == value


@pytest.mark.parametrize("kind", ["cdc", "sync"])
def test_a_section_read_by_itself_is_complete(tmp_path: Path, kind: str) -> None:
    (tmp_path / "password").write_text("s3cret\n")
    section = {"url": "x://${USER_NAME}:${file:password}@h", "tables": ["${USER_NAME}.t"], "n": 1}
    lines = [f"{key} = {json.dumps(value)}" for key, value in section.items()]
    file = tmp_path / "headrace.toml"
    file.write_text("\n".join([f"[{kind}.shop]", *lines]))
    found = read_sections(file, kind, (), {"USER_NAME": "ann"})
    assert found == {"shop": {"url": "x://ann:s3cret@h", "tables": ["ann.t"], "n": 1}}
