"""Values from the environment: names, places, kinds."""

from pathlib import Path

import pytest

from headrace.stack.document import Override, apply_overrides, environment_name, read_overrides, read_sections
from headrace.stack.errors import InvalidStack
from headrace.stack.registry import KINDS

DOCUMENT = {
    "broker": {"port": 9092},
    "topics": {"orders-raw": {"partitions": 1, "configs": {"retention.ms": 5}}},
    "cdc": {"shop": {"url": "x"}},
}


@pytest.mark.parametrize(
    ("variable", "text", "path", "value"),
    [
        ("HEADRACE__BROKER__PORT", "9192", ("broker", "port"), 9192),
        ("HEADRACE__BROKER__DATA_DIR", "123", ("broker", "data_dir"), "123"),
        ("HEADRACE__TOPICS__ORDERS_RAW__PARTITIONS", "4", ("topics", "orders-raw", "partitions"), 4),
        (
            "HEADRACE__TOPICS__ORDERS_RAW__CONFIGS__RETENTION_MS",
            "9",
            ("topics", "orders-raw", "configs", "retention.ms"),
            9,
        ),
        (
            "HEADRACE__TOPICS__ORDERS_RAW__CONFIGS__CLEANUP_POLICY",
            "compact",
            ("topics", "orders-raw", "configs", "cleanup.policy"),
            "compact",
        ),
        ("HEADRACE__CDC__SHOP__TABLES", '["a", "b"]', ("cdc", "shop", "tables"), ["a", "b"]),
        ("HEADRACE__CDC__SHOP__SLOT", "mine", ("cdc", "shop", "slot"), "mine"),
        ("HEADRACE__DASHBOARD__ALLOW_WRITES", "true", ("dashboard", "allow_writes"), True),
    ],
)
def test_a_variable_names_a_key(variable: str, text: str, path: tuple[str, ...], value: object) -> None:
    assert read_overrides(KINDS, DOCUMENT, {variable: text, "HEADRACE_BOOTSTRAP": "x"}) == (
        [Override(variable, path, value)],
        [],
    )
    assert environment_name(path) == variable


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        ("HEADRACE__BROKR__PORT", "did you mean 'broker'?"),
        ("HEADRACE__TOPICS__ORDER_RAW__PARTITIONS", "did you mean 'orders_raw'?"),
        ("HEADRACE__SYNC__CACHE__URL", "the file has none of this kind"),
        ("HEADRACE__BROKER", "it names no key: write HEADRACE__BROKER__KEY"),
    ],
)
def test_a_variable_that_leads_nowhere_is_told(variable: str, words: str) -> None:
    found, ((named, sentence),) = read_overrides(KINDS, DOCUMENT, {variable: "1"})
    assert not found
    assert named == variable
    assert words in sentence


def test_the_document_stays_as_it_was() -> None:
    changed = apply_overrides(
        DOCUMENT, [Override("V", ("topics", "orders-raw", "partitions"), 9), Override("W", ("a", "b"), 1)]
    )
    assert changed["topics"]["orders-raw"]["partitions"] == 9
    assert changed["a"] == {"b": 1}
    assert DOCUMENT["topics"]["orders-raw"]["partitions"] == 1


def test_a_command_that_runs_one_kind_sees_the_same_values(tmp_path: Path) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text('[cdc.shop]\nurl = "x"\n[cdc.two-shops]\nurl = "y"\n[broker]\nport = 1\n')
    environment = {
        "HEADRACE__CDC__SHOP__URL": "123",
        "HEADRACE__CDC__TWO_SHOPS__PARTITIONS": "4",
        "HEADRACE__SYNC__CACHE__URL": "of another kind",
        "HEADRACE__BROKER__PROT": "of another kind",
    }
    shop, two = {"url": "123"}, {"url": "y", "partitions": 4}
    assert read_sections(file, "cdc", (), environment) == {"shop": shop, "two-shops": two}
    assert read_sections(file, "cdc", ("two-shops",), environment) == {"two-shops": two}
    assert read_sections(file, "cdc", ("shop",), {}) == {"shop": {"url": "x"}}
    wrong = environment | {"HEADRACE__CDC__SHPO__URL": "z"}
    with pytest.raises(InvalidStack, match=r"HEADRACE__CDC__SHPO__URL: .*did you mean 'shop'\?"):
        read_sections(file, "cdc", (), wrong)
    # Whoever runs one section alone, as a stack's member does, is not told of others.
    assert read_sections(file, "cdc", ("shop",), wrong) == {"shop": shop}
    with pytest.raises(InvalidStack, match=r"has no section \[cdc\.market\]"):
        read_sections(file, "cdc", ("market",), environment)
