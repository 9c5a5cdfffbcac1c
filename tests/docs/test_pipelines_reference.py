"""Every option and parameter of pipelines is on its page, and a default that is told is the one in force."""

import inspect
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.pipelines import sink
from headrace.pipelines.sink.topic import options as sink_options
from headrace.pipelines.source import options as source_options

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "reference" / "pipelines.md").read_text()
GENERATE = runpy.run_path(str(ROOT / "docs" / "generate.py"))
PARAMETERS: dict[Callable[..., Any], dict[str, str]] = GENERATE["PARAMETERS"]
SOURCE = {"bootstrap": "127.0.0.1:9092", "subscribe": "orders"}
SINK = {"bootstrap": "127.0.0.1:9092", "topic": "orders"}
OPTIONS = [(source_options, SOURCE, name) for name in source_options.KNOWN]
OPTIONS += [(sink_options, SINK, name) for name in sink_options.KNOWN]


@pytest.mark.parametrize(("module", "given", "name"), OPTIONS)
def test_every_option_has_a_meaning_and_its_real_default(module: Any, given: dict[str, str], name: str) -> None:
    default, meaning = module.KNOWN[name]
    assert meaning.endswith(".")
    assert f"| `{name}` | {f'`{default}`' if default else ''} | {meaning} |" in PAGE
    if default and name not in source_options.DECODER_OPTIONS:
        assert module.read_options(given | {name: default}) == module.read_options(given)


@pytest.mark.parametrize("function", PARAMETERS, ids=lambda function: function.__name__)
def test_every_parameter_has_a_meaning(function: Callable[..., Any]) -> None:
    missing = set(GENERATE["spelled_out"](function)) - set(PARAMETERS[function])
    assert not missing, f"say in docs/generate.py what {', '.join(sorted(missing))} of {function.__name__} means"


def test_every_sink_is_on_the_page() -> None:
    made = {name for name in sink.__all__ if inspect.isfunction(getattr(sink, name))} - {"read_parquet_sink"}
    assert made <= {function.__name__ for function in PARAMETERS}
