"""`headrace broker`: run a broker."""

import asyncio
import gc
import os
import signal
from pathlib import Path

import click
import uvloop

from headrace.broker.config import BrokerConfig, parse_listeners, read_properties
from headrace.broker.limits import ConnectionLimits, memory_bound
from headrace.broker.server import BrokerServer, open_listeners
from headrace.broker.settings.broker import is_secret
from headrace.broker.settings.setting import InvalidSetting
from headrace.cli.output import json_option, print_json, print_table
from headrace.secret_files import check_private
from headrace.storage.filesystem import raise_open_files

_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT)

# When garbage is looked for. Clients leave none that does not go by itself, so a full collection, which walks all
# objects of the requests under way and holds everybody up for it, is for what nobody knows of: every 700,000 objects
# more, some 100 MB at most. Those of the young are more often than by default, and none takes half a millisecond.
_COLLECTED = (700, 5, 200)


@click.group()
def broker() -> None:
    """Run a broker that every Kafka client can talk to."""


def _hint_at_listen(_ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        listen = f"127.0.0.1:{value}" if value.isdecimal() else f"{value}:9092"
        raise click.UsageError(f"there is no {' or '.join(param.opts)}: write --listen {listen}")


@broker.command()
@click.option("--data-dir", required=True, type=click.Path(file_okay=False), help="Where the logs are kept.")
@click.option(
    "--listen",
    "listeners",
    multiple=True,
    default=["127.0.0.1:9092"],
    show_default=True,
    metavar="[NAME://]HOST:PORT",
    help="Where to listen; port 0 takes a free one. A name is a protocol (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL) or "
    "mapped to one by listener.security.protocol.map. May be given several times.",
)
@click.option("--port", "--host", hidden=True, expose_value=False, callback=_hint_at_listen)
@click.option(
    "--advertise",
    "advertised",
    multiple=True,
    metavar="[NAME://]HOST:PORT",
    help="The address that clients are given, if not the one they connected to; with a name, those of that listener.",
)
@click.option("--insecure", is_flag=True, help="Let anybody in who can reach a public address.")
@click.option(
    "--durability",
    type=click.Choice(["fsync", "os"]),
    help="When acks=all is answered: after fsync (default), or after the write.",
)
@click.option(
    "--config", "config_file", type=click.Path(exists=True, dir_okay=False), help="A file of name=value lines."
)
@click.option("--set", "pairs", multiple=True, metavar="NAME=VALUE", help="A broker setting under Kafka's name.")
@click.option("--check", is_flag=True, help="Only check the settings, and show the most memory that they allow.")
@click.option("--until-eof", is_flag=True, hidden=True, help="End when standard input ends, with whoever started it.")
@json_option
def start(
    data_dir: str,
    listeners: tuple[str, ...],
    advertised: tuple[str, ...],
    insecure: bool,
    durability: str | None,
    config_file: str | None,
    pairs: tuple[str, ...],
    check: bool,
    until_eof: bool,
    as_json: bool,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C; prints one line when clients can connect.

    \b
      headrace broker start --data-dir data
      headrace broker start --data-dir data --listen 127.0.0.1:0 --set num.partitions=4
    """
    settings = read_properties(Path(config_file).read_text(), config_file) if config_file else {}
    if config_file and any(map(is_secret, settings)):
        check_private(config_file, "the file of --config")
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InvalidSetting(f"--set {pair!r} is not NAME=VALUE")
        if is_secret(name):
            raise InvalidSetting(
                f"{name} is a secret, and everybody on this machine can see a command line: write it to the file that "
                "--config names"
            )
        settings[name] = value
    if durability:
        settings["durability"] = durability
    config = BrokerConfig(data_dir, parse_listeners(listeners, advertised, settings), settings, insecure)
    if check:
        ConnectionLimits(config)  # whether it can be read
        _show_bound(config, as_json=as_json)
        return
    # A port that is taken is refused before a folder is made; the broker itself opens its data first.
    for taken in open_listeners(config.listeners):
        taken.close()
    raise_open_files()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(config, until_eof=until_eof, as_json=as_json))


def _show_bound(config: BrokerConfig, *, as_json: bool) -> None:
    terms = memory_bound(config)
    total = sum(term.bytes for term in terms)
    if as_json:
        print_json({"memory_bound_bytes": total, "terms": [term._asdict() for term in terms]})
        return
    rows = [(term.what, term.formula, f"{term.bytes / 2**20:,.0f}") for term in terms]
    print_table(["what takes memory", "at most", "MiB"], [*rows, ("in all", "", f"{total / 2**20:,.0f}")])


async def _serve(config: BrokerConfig, *, until_eof: bool, as_json: bool) -> None:
    loop = asyncio.get_running_loop()
    stopping, hurrying = asyncio.Event(), asyncio.Event()

    def stop() -> None:
        """The first signal ends the broker, the second what it still waits for, a third the process."""
        if stopping.is_set():
            hurrying.set()
            for number in _ENDING_SIGNALS:
                loop.remove_signal_handler(number)
        stopping.set()

    def read_input() -> None:
        if not os.read(0, 1024):
            loop.remove_reader(0)
            stopping.set()

    for number in _ENDING_SIGNALS:
        loop.add_signal_handler(number, stop)
    if until_eof:
        loop.add_reader(0, read_input)
    server = BrokerServer(config)
    loop.add_signal_handler(signal.SIGHUP, server.reload)
    addresses = [str(address) for address in server.start()]
    # What the program itself consists of stays: looking for cycles in it held everybody up for 20 ms each time. Nor is
    # it looked at now, for the few hundred objects that would go: the first client waits.
    gc.freeze()
    gc.set_threshold(*_COLLECTED)
    url = server.monitor.url if server.monitor else None
    if as_json:
        told = {"listeners": addresses, "pid": os.getpid(), "data_dir": config.data_dir}
        print_json(told | ({"metrics": url} if url else {}))
    else:
        facts = f"data in {config.data_dir}, {f'metrics at {url}, ' if url else ''}pid {os.getpid()}"
        click.echo(f"headrace broker ready on {', '.join(addresses)} ({facts})")
    await stopping.wait()
    draining = [asyncio.ensure_future(work) for work in (server.drain(), hurrying.wait())]
    await asyncio.wait(draining, return_when=asyncio.FIRST_COMPLETED)
    server.stop()
    for work in draining:
        work.cancel()
