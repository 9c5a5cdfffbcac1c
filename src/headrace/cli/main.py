"""`headrace`: the entry point, and what every command shares."""

import sys

import click

import headrace
from headrace.cli.broker import broker
from headrace.cli.log import log
from headrace.errors import HeadraceError
from headrace.telemetry import logs


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(headrace.__version__, prog_name="headrace")
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
@click.option("--log-json", is_flag=True, help="Write log lines as JSON.")
def cli(log_level: str, log_json: bool) -> None:
    """Stream processing whole, in one pip install."""
    logs.configure(level=log_level, as_json=log_json)


cli.add_command(broker)
cli.add_command(log)


def main() -> None:
    """Run a command; what Headrace itself refuses is one sentence, without a traceback."""
    try:
        cli(standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except HeadraceError as error:
        click.echo(f"headrace: {error}", err=True)
        sys.exit(1)
    except BrokenPipeError:  # the reader of our output has seen enough
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        click.echo(f"headrace: {error.strerror or error}: {error.filename or ''}".rstrip(": "), err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
