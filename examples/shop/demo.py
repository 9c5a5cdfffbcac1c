"""An online shop from its database to everything that follows it, in one page: `make demo`.

A real PostgreSQL with customers who buy; its changes captured; orders enriched as of their time; revenue a window, with
late orders put right; a view served over HTTP; cache, search index and warehouse kept in step. Ctrl-C ends all of it,
and a second run goes on where the first one stopped. Where nobody sits at the terminal, or with `--story`, it kills its
own broker and pipelines, compares all sides at the end, and says how that came out.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from database import Customers, prepare
from facts import Shop
from page import Story, served
from proof import is_same
from rich.console import Console

from headrace.cli.output import print_table
from headrace.errors import HeadraceError
from headrace.serving.server import listening
from headrace.stack import state_file
from headrace.testing.postgres import Postgres

HERE = Path(__file__).parent
STACK = ("headrace.toml", "jobs.py", "views.py", "tables.py")
READY_WITHIN_S, SETTLED_WITHIN_S = 300, 300
VICTIMS = ("broker", "pipelines.shop")
console = Console(highlight=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("data/shop"), help="where everything is kept")
    parser.add_argument("--port", type=int, default=8400, help="of the page; 0 takes a free one")
    parser.add_argument("--story", action="store_true", help="play it through, compare, and end")
    parser.add_argument("--seconds", type=float, default=30, help="how long customers buy in the story")
    parser.add_argument("--kill", action="append", choices=VICTIMS, help="what is killed in the story; both")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began = time.monotonic()
    folder = args.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for name in STACK:
        shutil.copyfile(HERE / name, folder / name)
    try:
        with ExitStack() as stack:
            return _run(stack, folder, args, began)
    except KeyboardInterrupt:
        console.print("ended; the next [bold]make demo[/bold] goes on from here")
        return 0
    except HeadraceError as error:
        console.print(f"demo: {error}")
        return 1


def _run(stack: ExitStack, folder: Path, args: argparse.Namespace, began: float) -> int:
    bound = listening("127.0.0.1", args.port, HeadraceError)  # before anything is started
    with _step("PostgreSQL"):
        database = stack.enter_context(Postgres(folder / "postgres"))
        prepare(database.url)
    up = stack.enter_context(_stack(folder, database.url))
    story = Story(Shop(folder, database.url), Customers(database.url))
    stop = threading.Event()
    watching = threading.Thread(target=story.watch, args=(stop,), daemon=True)
    watching.start()
    stack.callback(watching.join, 10)
    stack.callback(stop.set)  # the last is called first
    stack.enter_context(served(story, bound))
    stack.callback(story.close)
    url = f"http://127.0.0.1:{bound.getsockname()[1]}/"
    story.tell("the stack starts")
    console.print(f"  the page              [bold]{url}[/bold] shows how far all of this is")
    _wait_for_parts(folder, up)
    story.tell("every part of the stack runs")
    console.print(f"[bold]the shop is open[/bold] after {time.monotonic() - began:.0f} s: [bold]{url}[/bold]")
    if args.story or not sys.stdout.isatty():
        return _story(story, up, args.seconds, args.kill or VICTIMS)
    console.print("Ctrl-C ends everything; what the parts say is in", folder / "up.log")
    while up.poll() is None:
        time.sleep(0.5)
    console.print(f"[red]the stack has ended[/red]: see {folder / 'up.log'}")
    return 1


@contextmanager
def _step(name: str) -> Iterator[None]:
    started = time.monotonic()
    with console.status(f"{name} …"):
        yield
    console.print(f"  {name:<20} ready after {time.monotonic() - started:.1f} s")


@contextmanager
def _stack(folder: Path, database: str) -> Iterator[subprocess.Popen[bytes]]:
    """`headrace up` in the folder, drained at the end."""
    command = [sys.executable, "-m", "headrace.cli.main", "up"]
    # Of its own, so that Ctrl-C comes to it once, from here, after the customers have gone.
    with (folder / "up.log").open("ab") as log:
        up = subprocess.Popen(
            command, cwd=folder, env=os.environ | {"SHOP_DATABASE": database}, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield up
    finally:
        with console.status("ending everything …"):
            up.terminate()
            up.wait()


def _wait_for_parts(folder: Path, up: subprocess.Popen[bytes]) -> None:
    started, told = time.monotonic(), set()
    with console.status("the stack …") as status:
        while time.monotonic() < started + READY_WITHIN_S:
            if up.poll() is not None:
                tail = (folder / "up.log").read_text(errors="replace").splitlines()[-5:]
                raise SystemExit("\n".join(["the stack ended while it started:", *tail]))
            state = state_file.read(folder)
            members = state.members if state and state.pid == up.pid else ()
            for member in members:
                if member.is_fine and member.name not in told:
                    told.add(member.name)
                    console.print(f"  {member.name:<20} ready after {time.monotonic() - started:.1f} s")
            if members and len(told) == len(members):
                return
            status.update(f"waiting for {', '.join(each.name for each in members if each.name not in told)} …")
            time.sleep(0.2)
    raise SystemExit(f"not all parts were ready after {READY_WITHIN_S} s: see {folder / 'up.log'}")


def _story(story: Story, up: subprocess.Popen[bytes], seconds: float, victims: Sequence[str]) -> int:
    """Customers buy, the broker and the pipelines are killed, then all sides are compared."""
    started = time.monotonic()
    with console.status("waiting for the first results …"):
        while not _has_results(story.facts) and time.monotonic() < started + READY_WITHIN_S and up.poll() is None:
            time.sleep(0.5)
    for step in story.steps():
        console.print(f"  {step['text']:<32} after {step['seconds'] or 0:.0f} s")
    console.print(f"  first results {time.monotonic() - started:.1f} s after all parts run")
    for victim in victims:
        _let_pass(story, seconds / (len(victims) + 1), up)
        if story.kill(victim):
            console.print(f"  killed {victim} (kill -9)")
    time.sleep(seconds / (len(victims) + 1))
    story.want(buying=False)
    started, rested = time.monotonic(), time.time()

    def is_settled() -> bool:  # by a look that was taken after the last order
        return story.proof is None and bool(story.facts["at"] > rested) and is_same(story.facts)

    with console.status("customers are paused; waiting until all copies are equal …"):
        settled = _wait(is_settled, up)
    facts = story.facts
    for line in reversed(story.lines):
        console.print(f"  {line['text']}")
    print_table(["copy", ">orders", ">revenue in cents", "equal"], list(_compared(facts)))
    if settled:
        console.print(f"all copies are equal, {time.monotonic() - started:.1f} s after the last order")
        return 0
    console.print(f"[red]the sides differ after {SETTLED_WITHIN_S} s[/red]: {facts['in_step']}")
    return 1


def _let_pass(story: Story, seconds: float, up: subprocess.Popen[bytes]) -> None:
    """Some time in which nothing is killed and nothing compared: somebody may do that on the page."""
    since = time.monotonic()

    def has_passed() -> bool:
        nonlocal since
        since = since if story.proof is None else time.monotonic()
        return time.monotonic() - since >= seconds

    _wait(has_passed, up)


def _wait(is_so: Callable[[], bool], up: subprocess.Popen[bytes]) -> bool:
    """Wait until something is so; whether it came to that while the stack ran, and in time."""
    deadline = time.monotonic() + SETTLED_WITHIN_S
    while not is_so():
        if up.poll() is not None or time.monotonic() > deadline:
            return False
        time.sleep(0.5)
    return True


def _has_results(facts: dict[str, Any]) -> bool:
    """Whether the view answers, and a window has emitted its result: before that a kill would break nothing."""
    view, revenue = facts.get("view") or {}, facts.get("revenue") or {}
    return bool(view.get("orders", 0) > 0 and revenue.get("total", 0) > 0)


def _compared(facts: dict[str, Any]) -> Iterator[tuple[object, ...]]:
    database, view, steps = facts["database"], facts["view"] or {}, facts["in_step"]
    yield "PostgreSQL", database.get("standing", "–"), database.get("cents", "–"), ""
    yield "view over HTTP", view.get("orders", "–"), view.get("cents", "–"), _word(steps["view"])
    for name in ("cache", "search", "warehouse"):
        yield name, "", "", _word(steps[name])


def _word(same: bool | None) -> str:
    return "not known" if same is None else "yes" if same else "NO"


if __name__ == "__main__":
    sys.exit(main())
