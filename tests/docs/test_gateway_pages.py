"""What the pages of gateways show is what there is."""

import tomllib
from pathlib import Path

import pytest

from headrace.gateways.section import check_section, keys_of
from headrace.section_keys import check_keys, with_defaults

DOCS = Path(__file__).parents[2] / "docs" / "how-to"


def test_the_page_of_grpc_shows_the_proto() -> None:
    proto = (Path(__file__).parents[2] / "src/headrace/gateways/grpc/headrace.proto").read_text()
    assert f"```proto\n{proto}```" in (DOCS / "grpc.md").read_text()


@pytest.mark.parametrize("page", ["syslog-and-lines.md", "opentelemetry.md", "grpc.md", "multicast.md"])
def test_sections_that_are_shown_can_be_used(page: str) -> None:
    shown = [block.split("```")[0] for block in (DOCS / page).read_text().split("```toml\n")[1:]]
    assert shown
    for block in shown:
        for name, section in tomllib.loads(block)["gateways"].items():
            kind = section.pop("kind")
            keys = keys_of({"kind": kind})
            assert check_keys(keys, section, name) == []
            check_section(name, {"kind": kind, **with_defaults(keys, section)})
