"""`headrace pattern`: check patterns, try them on events, and see their automata."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

from headrace.cep.automaton import Automaton
from headrace.cep.errors import InvalidPattern
from headrace.cep.explaining import explain
from headrace.cep.expressions import columns as columns_in
from headrace.cep.pattern import Pattern
from headrace.cep.pictures.diagram import Diagram, TooLarge, diagram_of
from headrace.cep.pictures.markup import as_dot, as_mermaid
from headrace.cep.pictures.svg import draw_svg
from headrace.cep.pictures.text import draw_text
from headrace.cli.output import console, json_option, print_json
from headrace.cli.parameters import (
    START,
    Parsed,
    bootstrap_option,
    complete_topic,
    connect,
    limit_option,
)
from headrace.cli.pattern_expected import compare, read_expected
from headrace.cli.pattern_source import load_pattern, pattern_argument
from headrace.cli.pattern_topic import COMMANDS
from headrace.cli.pattern_trial import Trial, print_document, print_matches
from headrace.cli.trial_events import TIME_OF_RECORD, Events, columns_of_text, read_file, read_topic
from headrace.client.address import Address
from headrace.client.offsets import Start
from headrace.durations import microseconds
from headrace.errors import harmless, nearest

_FORMS: Final = ("all", "words", "drawing", "svg", "dot", "mermaid")
_FORM_OF: Final = {".svg": "svg", ".dot": "dot", ".gv": "dot", ".mmd": "mermaid", ".mermaid": "mermaid", ".txt": "all"}

_events_argument = click.argument("events", metavar="[EVENTS]", required=False)


def _topic_options(function: Any) -> Any:
    for option in (
        bootstrap_option,
        click.option("--to", "end", type=START, metavar="PLACE", help="Where to end in the topic; by default, now."),
        click.option(
            "--from", "start", type=START, metavar="PLACE",
            help="Where to begin in the topic: earliest, an offset, -N for the last N of each partition, a time, or "
            "how long ago: 30s, 10m, 2h, 1d.  [default: earliest]",
        ),
        click.option("--topic", shell_complete=complete_topic, help="Take the events from this topic of JSON."),
    ):  # fmt: skip
        function = option(function)
    return function


def _row_options(function: Any) -> Any:
    for option in (
        click.option(
            "--time", metavar="COLUMN",
            help="The event time, in place of ORDER BY; of a topic's records it is their own if nothing is said.",
        ),
        click.option(
            "--key", "keys", multiple=True, metavar="COLUMN",
            help="Rows are kept apart by it, in place of PARTITION BY. May be given several times.",
        ),
    ):  # fmt: skip
        function = option(function)
    return function


@click.group()
def pattern() -> None:
    """Check patterns over events, try them, see their automata; keep those that jobs take from a topic.

    A PATTERN is a file with MATCH_RECOGNIZE (…) in SQL, a pattern in Python as module.py:NAME, or the text of either.
    """


@pattern.command()
@pattern_argument
@_events_argument
@click.option("--columns", metavar="NAME,…", help="The columns that rows have; a schema as Spark writes it will do.")
@_row_options
@click.option("--bounded", is_flag=True, help="The events have an end, so a pattern needs no within.")
@_topic_options
@json_option
def check(
    pattern: str,
    events: str | None,
    columns: str | None,
    keys: tuple[str, ...],
    time: str | None,
    bounded: bool,
    topic: str | None,
    start: Start | None,
    end: Start | None,
    bootstrap: tuple[Address, ...],
    as_json: bool,
) -> None:
    """Say whether PATTERN can run: OK, or what is wrong with it, marked where. Ends with 1 if something is.

    Columns are looked up among those of --columns, or of the first events of EVENTS (a file, or - for standard input)
    or of --topic; without any of these, columns are not checked.

    \b
      headrace pattern check fraud.sql --columns card,amount,at
      headrace pattern check fraud.py:SMALL_THEN_BIG payments.jsonl
      headrace pattern check fraud.sql --topic payments
    """
    if sum(each is not None for each in (columns, events, topic)) > 1:
        raise click.UsageError("give only one of EVENTS, --columns and --topic")
    known: list[str] | None = None if columns is None else columns_of_text(columns)
    try:
        found = load_pattern(pattern)
        found.compile(bounded=bounded)
        if events is not None or topic is not None:
            with _opened(events, topic, start, end, bootstrap) as read:
                known = read.columns
        automaton = found.compile(known, bounded=bounded)
        _check_names(keys, time, known)
    except InvalidPattern as error:
        if not as_json:
            raise
        place = error.place
        print_json(
            {
                "ok": False,
                "problem": error.sentence,
                "text": place and place.text,
                "start": place and place.start,
                "end": place and place.end,
            }
        )
        sys.exit(1)
    said = f"{len(automaton.states)} states, {len(automaton.row_predicates)} row predicates"
    if as_json:
        print_json({"ok": True, "states": len(automaton.states), "variables": list(automaton.variables)})
        return
    click.echo(f"OK: {', '.join(automaton.variables)}: {said}" + ("; columns not checked" if known is None else ""))
    if known is None and (doubt := _misspelt(found, automaton)) is not None:
        click.echo(f"unless it is a column: {doubt}", err=True)


def _misspelt(found: Pattern, automaton: Automaton) -> InvalidPattern | None:
    """What is read as a column with fields, and looks like a variable that was misspelt."""
    used = [column for test in automaton.tests for column in columns_in(test.condition)]
    plain = {column.name for column in used} - {column.name for column in used if len(column.path) > 1}
    try:
        found.compile({*plain, *found.tree.partition, *([found.tree.order] if found.tree.order else [])}, bounded=True)
    except InvalidPattern as error:
        return error if error.sentence.startswith("unknown variable") else None
    return None


@pattern.command()
@pattern_argument
@_events_argument
@_row_options
@click.option("--unit", type=click.Choice(["s", "ms", "us"]), default="ms", show_default=True,
              help="What a number in the time column counts.")  # fmt: skip
@click.option(
    "--lateness", type=Parsed("duration", lambda text: microseconds(text, "--lateness")), metavar="DURATION",
    help="Match as a stream would: an event further behind the latest one is late.  [default: all are put in order]",
)  # fmt: skip
@click.option("--most-partial", type=click.IntRange(min=1), default=10_000, show_default=True,
              help="Partial matches that a key may have.")  # fmt: skip
@click.option("--timed-out", "with_timed_out", is_flag=True, help="Show partial matches whose time was over, too.")
@click.option(
    "--expect", type=click.Path(path_type=Path), metavar="FILE",
    help="Compare with the matches in FILE, as --json writes them; fields may be left out. Ends with 1 if they differ.",
)  # fmt: skip
@limit_option("How many matches are shown; --json has all.")
@_topic_options
@json_option
def test(
    pattern: str,
    events: str | None,
    keys: tuple[str, ...],
    time: str | None,
    unit: str,
    lateness: int | None,
    most_partial: int,
    with_timed_out: bool,
    expect: Path | None,
    limit: int,
    topic: str | None,
    start: Start | None,
    end: Start | None,
    bootstrap: tuple[Address, ...],
    as_json: bool,
) -> None:
    """Run PATTERN over EVENTS, and show its matches and counts.

    EVENTS is a file of JSON lines or CSV, or - for standard input; with --topic they are the records of a topic that
    are JSON objects, with the columns _topic, _partition, _offset, _key and _timestamp besides.

    \b
      headrace pattern test fraud.sql payments.jsonl
      headrace pattern test fraud.py:SMALL_THEN_BIG payments.csv --key card --time at
      headrace pattern test fraud.sql --topic payments --from 1d --json
      headrace pattern test fraud.sql payments.jsonl --expect matches.json
    """
    if (events is None) == (topic is None):
        raise click.UsageError("give EVENTS, or --topic")
    expected = None if expect is None else read_expected(expect)
    found = load_pattern(pattern)
    found.compile(bounded=True)
    with _opened(events, topic, start, end, bootstrap) as read:
        chosen = time or found.tree.order or (TIME_OF_RECORD if read.is_topic else None)
        _check_names(keys, chosen, read.columns)
        if chosen is None and found.compile(bounded=True).has_deadlines:
            raise InvalidPattern("this pattern has a time in it: name the column of the event time with --time")
        trial = Trial(found, read, keys, chosen, unit, lateness, most_partial)
        matches = map(trial.described, trial.matches())
        if expected is not None:
            differences = compare(expected, matches, limit)
        elif as_json:
            print_document(matches, trial, with_timed_out)
            return
        else:
            print_matches(matches, trial, limit, with_timed_out)
    if expected is None:
        click.echo(trial.counts_in_words())
        return
    if as_json:
        print_json({"ok": not differences, "differences": differences, "counts": trial.counts})
    elif differences:
        click.echo("\n".join(harmless(line) for line in differences))
        click.echo(f"not as expected: {trial.counts_in_words()}", err=True)
    else:
        click.echo(f"OK: as expected: {trial.counts_in_words()}")
    sys.exit(1 if differences else 0)


@pattern.command("explain")
@pattern_argument
@click.option("--columns", metavar="NAME,…", help="The columns that rows have, to check them as well.")
@click.option("--as", "form", type=click.Choice(_FORMS),
              help="Words, a drawing of characters, SVG, or text for Graphviz or Mermaid.  [default: all, which is a "
              "drawing and words; with --output, by the file's name]")  # fmt: skip
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Write there: .svg, .dot, .mmd or .txt.")  # fmt: skip
def explain_pattern(pattern: str, columns: str | None, form: str | None, output: Path | None) -> None:
    """Show the automaton that PATTERN becomes.

    \b
      headrace pattern explain fraud.sql
      headrace pattern explain fraud.py:SMALL_THEN_BIG --output fraud.svg
      headrace pattern explain fraud.sql --as dot | dot -Tpdf > fraud.pdf
    """
    if output is not None and form is None:
        form = _FORM_OF.get(output.suffix.lower())
        if form is None:
            raise click.UsageError(
                f"{output} does not say what to write: end it in .svg, .dot, .mmd or .txt, or give --as"
            )
    known = None if columns is None else columns_of_text(columns)
    automaton = load_pattern(pattern).compile(known, bounded=True)
    shown = _explained(automaton, form or "all")
    if output is None:
        click.echo(shown)
        return
    output.write_text(shown + "\n", encoding="utf-8")
    click.echo(f"wrote {output}")


def _explained(automaton: Automaton, form: str) -> str:
    if form == "words":
        return harmless(explain(automaton))
    try:
        drawn: Diagram = diagram_of(automaton)
    except TooLarge as error:
        if form != "all":
            raise
        return f"{error}\n\n{harmless(explain(automaton))}"
    if form in ("dot", "mermaid"):
        return as_dot(drawn) if form == "dot" else as_mermaid(drawn)
    if form == "svg":
        return draw_svg(drawn)
    drawing = draw_text(drawn, width=min(console().width, 110))
    return drawing if form == "drawing" else f"{drawing}\n\n{harmless(explain(automaton))}"


for command in COMMANDS:
    pattern.add_command(command)


# --- running


@contextmanager
def _opened(
    events: str | None, topic: str | None, start: Start | None, end: Start | None, bootstrap: tuple[Address, ...]
) -> Iterator[Events]:
    if topic is None:
        if start is not None or end is not None:
            raise click.UsageError("--from and --to are of a --topic")
        yield read_file(events or "-")
        return
    with connect(bootstrap) as cluster, read_topic(cluster, topic, start, end) as read:
        yield read


def _check_names(keys: Sequence[str], time: str | None, known: list[str] | None) -> None:
    """Columns that options name; those in the pattern are checked with it."""
    for name in (*keys, *([time] if time is not None else [])):
        if known is not None and name not in known:
            raise InvalidPattern(f"unknown column {name!r}: {nearest(name, known, 'the rows have')}")
