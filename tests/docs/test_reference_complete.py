"""Nothing that a user can write is undocumented: commands, settings, operators, APIs, keys of `headrace.toml`."""

import inspect
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest

import headrace
from headrace import pipelines
from headrace.broker.client_metrics import CLIENT_METRICS_SETTINGS
from headrace.broker.registry import HANDLERS
from headrace.broker.settings.broker import BROKER_SETTINGS
from headrace.broker.settings.groups import GROUP_SETTINGS
from headrace.broker.settings.topics import TOPIC_SETTINGS
from headrace.cli.main import cli
from headrace.gateways.section import KINDS as GATEWAYS
from headrace.gateways.section import kind_of
from headrace.pipelines import operators
from headrace.pipelines.jobs.publish import METRICS
from headrace.protocol.api import APIS
from headrace.stack.registry import KINDS

ROOT = Path(__file__).parent.parent.parent
REFERENCE = ROOT / "docs" / "reference"
GENERATE = runpy.run_path(str(ROOT / "docs" / "generate.py"))
OPERATORS, TOML = sys.modules["reference_operators"], sys.modules["reference_toml"]
PYTHON = sys.modules["reference_python"]


def page(name: str) -> str:
    return (REFERENCE / name).read_text()


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            if not child.hidden:
                yield from commands(child, f"{path} {name}")


COMMANDS = dict(commands(cli, "headrace"))


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_and_option_says_what_it_does(path: str) -> None:
    command = COMMANDS[path]
    assert f"## {path}\n" in page("cli.md")
    assert command.help, f"{path} has no help"
    for option in command.params:
        # click takes the help of --version from its context
        if isinstance(option, click.Option) and not option.hidden and "--version" not in option.opts:
            assert option.help, f"{path} {option.opts[-1]} has no help"


def test_every_setting_is_on_its_page() -> None:
    tables = (TOPIC_SETTINGS, BROKER_SETTINGS, GROUP_SETTINGS, CLIENT_METRICS_SETTINGS)
    for setting in (setting for table in tables for setting in table.values()):
        assert f"| `{setting.name}` |" in page("settings.md")
        assert setting.meaning.endswith("."), f"say what {setting.name} means"


def test_every_api_is_on_its_page() -> None:
    assert {key for key in HANDLERS if key not in APIS} == set()
    for key, api in APIS.items():
        assert f"| {api.request.__name__.removesuffix('Request')} | {int(key)} |" in page("protocol.md")


@pytest.mark.parametrize("name", operators.__all__)
def test_every_operator_is_on_its_page_and_every_parameter_has_a_meaning(name: str) -> None:
    thing = getattr(operators, name)
    assert f"\n## `{name}`\n" in page("operators.md")
    assert inspect.getdoc(thing), f"{name} has no docstring"
    if isinstance(thing, ModuleType):
        for word in thing.__all__:
            assert not inspect.isfunction(getattr(thing, word)) or f"| `{word}(" in page("operators.md")
        return
    for parameter in OPERATORS.parameters(thing):
        meaning = OPERATORS.meaning_of(name, thing, parameter)
        assert meaning, f"say in the docstring of {name} or in docs/reference_operators.py what `{parameter}` means"


def test_every_section_and_key_of_the_file_is_on_its_page() -> None:
    text = page("headrace-toml.md")
    for kind in KINDS:
        assert f"\n## `[{kind.name}{'.NAME' if kind.is_named else ''}]`\n" in text
        for key in kind.keys:
            assert f"| `{key.name}` |" in text
            assert key.meaning.endswith("."), f"say what {key.name} in [{kind.name}] means"
    for gateway in map(kind_of, GATEWAYS):
        section = text.partition(f'\n### `kind = "{gateway.name}"`\n')[2].partition("\n##")[0]
        assert gateway.summary in section
        assert gateway.summary.endswith(".")
        for key in gateway.keys:
            assert f"| `{key.name}` |" in section
            assert key.meaning.endswith("."), f"say what {key.name} of a gateway of kind {gateway.name} means"


@pytest.mark.parametrize(
    ("read", "meanings"),
    [
        (TOML.capture_keys, TOML.CAPTURE),
        (lambda: {key for keys in TOML.source_keys().values() for key in keys}, TOML.SOURCE),
        (TOML.follow_keys, TOML.FOLLOW),
        (lambda: {key for keys in TOML.sink_keys().values() for key in keys}, TOML.SINK),
    ],
    ids=["capture", "database", "derived system", "target"],
)
def test_every_key_of_captures_and_derived_systems_has_a_meaning(read: object, meanings: dict[str, str]) -> None:
    keys = set(read())  # type: ignore[operator]
    assert keys - set(meanings) == set(), "say in docs/reference_toml.py what these mean"
    assert set(meanings) - keys == set(), "these are no keys any more: take them out of docs/reference_toml.py"
    assert all(said.endswith(".") for said in meanings.values())


def test_every_parameter_of_the_broker_and_every_field_of_progress_has_a_meaning() -> None:
    report = PYTHON.sample().as_json()
    assert set(PYTHON.BROKER) == set(inspect.signature(headrace.Broker).parameters)
    assert set(PYTHON.PROGRESS) == set(report)
    assert set(PYTHON.SOURCES) == set(report["sources"][0])
    assert set(METRICS) <= set(report)


@pytest.mark.parametrize("module", [headrace, pipelines], ids=lambda module: module.__name__)
def test_every_public_name_is_shown_somewhere(module: ModuleType) -> None:
    texts = "\n".join(each.read_text() for each in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
    for name in module.__all__:
        if name in ("__version__", "Job"):
            continue
        is_shown = f"{name}." if inspect.ismodule(getattr(module, name)) else f"{name}("
        assert is_shown in texts, f"{module.__name__}.{name} is in no page"


def test_every_explanation_is_in_the_order_of_reading_and_has_an_example() -> None:
    folder = ROOT / "docs" / "explanation"
    order = (folder / "index.md").read_text()
    # These tell of what the pages they link to show at work.
    without = {"index.md", "comparisons.md", "delivery.md", "time.md", "exactly-once-on-spark.md"}
    for each in folder.glob("*.md"):
        assert each.name == "index.md" or f"({each.name})" in order, f"{each.name} is missing in index.md"
        assert each.name in without or "```python" in each.read_text(), f"{each.name} has no example that runs"


def test_every_figure_of_the_comparison_was_measured() -> None:
    text = GENERATE["COMPARISONS"].read_text()
    assert text == GENERATE["comparisons"](), "run `make docs` and commit what it changes"
    said = re.sub(r"<!-- compared with .*?<!-- compared end -->", "", text, flags=re.DOTALL)
    assert said.count("\n|") == 0
    assert not re.search(r"\d×|\d (ms|MB|k )", said), "a figure of the page that no benchmark kept"
