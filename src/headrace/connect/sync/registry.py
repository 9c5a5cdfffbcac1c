"""Which sinks there are, by the word that chooses one. A sink's driver is imported when it is chosen."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from headrace.connect.errors import InvalidConnectSetting
from headrace.connect.sync.settings import SyncSettings
from headrace.stores.derived import Sink

# Each of these is a function of the sink's name, its topic and its options.
SINKS: Final[Mapping[str, str]] = {
    "delta": "headrace.stores.delta.derived:delta",
    "duckdb": "headrace.stores.duckdb.derived:duckdb",
    "mariadb": "headrace.stores.mariadb.derived:mariadb",
    "opensearch": "headrace.stores.opensearch.derived:opensearch",
    "parquet": "headrace.stores.parquet.derived:parquet",
    "postgres": "headrace.stores.postgres.derived:postgres",
    "redis": "headrace.stores.redis.derived:redis",
    "sqlite": "headrace.stores.sqlite.derived:sqlite",
    "tantivy": "headrace.stores.tantivy.derived:tantivy",
    "webhook": "headrace.stores.webhook.derived:webhook",
}

# They find rows by a key that means something, or keep their place beside what they wrote and not with it, so that a
# batch may run twice: equal rows of a table without a key would be counted twice.
NEED_KEYS: Final = frozenset({"opensearch", "redis"})


def make_sink(settings: SyncSettings, bootstrap: str) -> Sink:
    """The sink that the settings describe; nothing is opened yet."""
    if settings.sink not in SINKS:
        raise InvalidConnectSetting(
            f"sync.{settings.name}.sink", settings.sink, f"choose among {', '.join(sorted(SINKS))}"
        )
    module, _, function = SINKS[settings.sink].partition(":")
    make = cast(Callable[..., Sink], getattr(importlib.import_module(module), function))
    options: dict[str, Any] = dict(settings.options)
    if settings.sink == "webhook":
        options["bootstrap"] = bootstrap  # it has no store of its own to keep its place in
    return make(settings.name, settings.topic, **_known(settings, make, options))


def _known(settings: SyncSettings, make: Callable[..., Sink], options: dict[str, Any]) -> dict[str, Any]:
    code = make.__code__
    allowed = code.co_varnames[2 : code.co_argcount + code.co_kwonlyargcount]
    needed = code.co_varnames[2 : code.co_argcount]
    for name in options:
        if name not in allowed:
            raise InvalidConnectSetting(
                f"sync.{settings.name}", name, f"sink {settings.sink!r} takes {', '.join(sorted(allowed))}"
            )
    for name in needed:
        if name not in options:
            raise InvalidConnectSetting(f"sync.{settings.name}.{name}", None, f"sink {settings.sink!r} needs it")
    return options
