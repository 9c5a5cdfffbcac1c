"""`headrace broker`: run a broker."""

import asyncio
import os
import signal
from pathlib import Path

import click
import uvloop

from headrace.broker.config import BrokerConfig, parse_listeners, read_properties
from headrace.broker.server import BrokerServer, open_listeners
from headrace.broker.settings import InvalidSetting, is_secret
from headrace.cli.output import json_option, print_json
from headrace.secret_files import check_private
from headrace.storage.filesystem import raise_open_files


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
    # A port that is taken is refused before a folder is made; the broker itself opens its data first.
    for taken in open_listeners(config.listeners):
        taken.close()
    raise_open_files()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(config, until_eof=until_eof, as_json=as_json))


async def _serve(config: BrokerConfig, *, until_eof: bool, as_json: bool) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if until_eof:
        loop.add_reader(0, lambda: None if os.read(0, 1024) else stopping.set())
    server = BrokerServer(config)
    loop.add_signal_handler(signal.SIGHUP, server.reload)
    addresses = [str(address) for address in server.start()]
    if as_json:
        print_json({"listeners": addresses, "pid": os.getpid(), "data_dir": config.data_dir})
    else:
        click.echo(f"headrace broker ready on {', '.join(addresses)} (data in {config.data_dir}, pid {os.getpid()})")
    await stopping.wait()
    server.stop()
