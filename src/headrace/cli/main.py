"""`headrace`: the entry point, and what every command shares.

A group of commands is imported when it is called for: a shell that completes a word, or a script that calls us in a
loop, does not wait for the broker's code to load.
"""

import errno
import gc
import importlib
import os
import sys
from collections import UserDict
from typing import Any, Final

import click

import headrace
from headrace import extras
from headrace.errors import HeadraceError, harmless
from headrace.telemetry import logs

_REMEDIES: Final = {
    errno.ENOSPC: "free some space, or name a folder on another disk",
    errno.EDQUOT: "free some space, or name a folder on another disk",
    errno.EACCES: "name a place that you may use, or change who may",
    errno.EPERM: "name a place that you may use, or change who may",
    errno.EROFS: "name a folder on a disk that can be written",
    errno.ENOENT: "check the name, and whether its folder is there",
    errno.ENOTDIR: "a part of the path is a file: name another",
    errno.EISDIR: "it is a folder: name a file",
    errno.EMFILE: "let more files be open (ulimit -n), or use fewer partitions",
    errno.EADDRINUSE: "choose another port, or end the program that has it",
    errno.ENAMETOOLONG: "choose a shorter name",
}


def sentence_of(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    what = error.strerror or str(error) or type(error).__name__
    remedy = _REMEDIES.get(error.errno or 0, "")
    return f"{where}{what[0].lower()}{what[1:]}" + (f": {remedy}" if remedy else "")


class CommandsByName(UserDict[str, click.Command]):
    """Finds the command `name` in the module of that name, or the one it shares, when it is first asked for."""

    def __getitem__(self, name: str) -> click.Command:
        if self.data[name] is _NOT_LOADED:
            # Code leaves no garbage as it is loaded: to look for some in it, again and again, took a fifth of the time.
            gc.disable()
            try:
                self.data[name] = getattr(importlib.import_module(f"headrace.cli.{_MODULES.get(name, name)}"), name)
            finally:
                gc.freeze()
                gc.enable()
        return self.data[name]


_MEANT_BOOTSTRAP = ("--port", "--host", "--broker", "--bootstrap-server", "--bootstrap-servers")
_MODULES = {"init": "up", "status": "top", "keys": "forget"}
_NOT_LOADED = click.Command(None)
# What `headrace --help` says of each, without loading any of them.
SUMMARIES = {
    "init": "Write headrace.toml, which describes a stack.",
    "up": "Run the stack that headrace.toml describes.",
    "status": "Show how each part of the stack stands.",
    "top": "Show the stack live.",
    "doctor": "Check this machine, certificates and ACLs.",
    "broker": "Run a broker that every Kafka client can talk to.",
    "topic": "Make topics, look at them, change them, delete them.",
    "produce": "Write records to a topic.",
    "tail": "Show the records of a topic, and wait for more.",
    "changes": "Print the changes of a database, a topic or a view, as JSON.",
    "group": "Look at consumer groups, move them, delete them.",
    "queue": "Look at queues, send dead letters back, purge and move messages.",
    "events": "Look into a store of events, and at what was at any time.",
    "user": "Add users who log in by a password, list them, remove them.",
    "acl": "Say who may do what on a broker with authorisation.",
    "quota": "Say how much clients may use.",
    "audit": "Show who changed what, and who was denied something.",
    "log": "Look at a data directory on disk.",
    "pipeline": "Run pipelines: topics through PySpark to results.",
    "view": "Look at materialized views, and serve them.",
    "pattern": "Check patterns over events, try them, see their automata.",
    "search": "Store queries, and hold documents against them as they flow past.",
    "cdc": "Turn the changes of a database into topics.",
    "gateway": "Let programs that speak no Kafka send to topics and receive from them.",
    "webhook": "Send records to endpoints of others: register, pause, test, look, send again.",
    "work": "Run a function for each message of a queue.",
    "sync": "Keep caches, indexes and tables in step with a topic.",
    "forget": "Forget a person, in every part of a stack.",
    "keys": "Look after the keys that personal data is sealed with.",
    "dashboard": "See all of it live in a browser.",
    "completion": "Have the shell complete commands and topic names.",
}
_COMMANDS = CommandsByName(dict.fromkeys(SUMMARIES, _NOT_LOADED))


class QuietGroup(click.Group):
    """Ends without complaint when the reader of our output has seen enough."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        """In the order in which somebody meets them."""
        return list(SUMMARIES)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        with formatter.section("Commands"):
            formatter.write_dl(list(SUMMARIES.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; to click a broken pipe is an error, here it is none."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except click.NoSuchOption as error:
            known = {word for param in (error.ctx.command.params if error.ctx else ()) for word in param.opts}
            if error.option_name in _MEANT_BOOTSTRAP and "--bootstrap" in known:
                sentence = f"there is no {error.option_name}: write --bootstrap HOST:PORT"
                raise click.UsageError(sentence, error.ctx) from None
            raise
        except BrokenPipeError:
            # Python will flush standard output once more at its end, and must not fail then.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)


def _show_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(f"headrace, version {headrace.__version__}")
        ctx.exit()


@click.group(
    cls=QuietGroup,
    commands=_COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="The least grave log lines that are written.",
)
@click.option("--log-json", is_flag=True, help="Write log lines as JSON.")
def cli(log_level: str, log_json: bool) -> None:
    """Stream processing whole, in one pip install.

    \b
    A whole stack from one file:       A broker alone:
      headrace init                      headrace broker start --data-dir data
      headrace up                        headrace topic create orders
      headrace status                    headrace produce orders hello
                                         headrace tail orders --from earliest
    """
    logs.configure(level=log_level, as_json=log_json)


def main() -> None:
    """Run a command; what Headrace itself refuses is one sentence, without a traceback."""
    try:
        sys.exit(cli(standalone_mode=False))  # the exit code if a command named one, else None
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except HeadraceError as error:
        click.echo(f"headrace: {harmless(str(error))}", err=True)
        sys.exit(1)
    except ModuleNotFoundError as error:
        if (missing := extras.missing_extra(error)) is None:
            raise
        click.echo(f"headrace: {missing}", err=True)
        sys.exit(1)
    except OSError as error:
        click.echo(f"headrace: {sentence_of(error)}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
