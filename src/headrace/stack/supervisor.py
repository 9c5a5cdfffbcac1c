"""Runs a stack: does what the machine decides, tells it what happened, and lets others see how all stands."""

import asyncio
import os
import signal
import time
from collections.abc import Sequence
from typing import Any, Final

from headrace.clock import SystemClock
from headrace.stack import state_file
from headrace.stack.journal import FOLDER, OWN_NAME, Journal, PartLogs
from headrace.stack.kind import Member, Stack
from headrace.stack.kinds.broker import bootstrap_of, connection_environment
from headrace.stack.kinds.supervisor import rules_of
from headrace.stack.lines import ERROR, INFO, WARNING, Digest, Said, plain
from headrace.stack.machine import Drain, End, Fleet, Kill, Phase, Start, Terminate
from headrace.stack.plan import posts_of
from headrace.stack.processes import MemberProcess
from headrace.stack.state_file import MemberState, StackState
from headrace.stack.usage import process_of
from headrace.status import WAITING

_TICK_S: Final = 0.2
_WRITE_EVERY_S: Final = 1.0
_ENDING_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Supervisor:
    """One stack, from its first process to its last."""

    def __init__(self, stack: Stack, members: Sequence[Member], journal: Journal) -> None:
        self._stack = stack
        self._members = {member.name: member for member in members}
        self._journal = journal
        self._fleet = Fleet(posts_of(members), rules_of(stack), began_s=time.monotonic())
        self._bootstrap = bootstrap_of(stack)
        self._running: dict[str, MemberProcess] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._told: dict[str, str] = {}  # what those who repeat themselves said last
        self._facts: dict[str, dict[str, Any]] = {name: {} for name in self._members}
        self._problems: dict[str, str] = {}
        self._digests = {name: Digest() for name in self._members}
        self._logs = PartLogs(stack.folder / FOLDER)
        self._news = asyncio.Event()
        self._since_ms = SystemClock().now_ms()
        self._written_s = 0.0

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in _ENDING_SIGNALS:
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup means to stay
                loop.add_signal_handler(number, self._end)
        self._tell(OWN_NAME, f"runs {self._stack.file} with {', '.join(self._members)}; Ctrl-C ends it")
        self._tell(OWN_NAME, f"all that each part says is in {FOLDER}")
        code = None
        while code is None:
            for action in self._fleet.decide(time.monotonic()):
                code = await self._do(action)
            self._write_state()
            self._news.clear()
            if code is None:
                await _first_of(self._news, _TICK_S)
        self._logs.close()
        self._tell(OWN_NAME, "all has ended")
        self._write_state(at_once=True)
        return code

    def _end(self) -> None:
        again = "once more ends it at once" if not self._fleet.is_ending else "everything is ended at once"
        self._tell(OWN_NAME, f"ends, the last first; {again}", WARNING)
        self._fleet = self._fleet.told_to_end()
        self._news.set()

    # --- what is decided

    async def _do(self, action: Start | Terminate | Kill | Drain | End) -> int | None:
        match action:
            case Start(name):
                await self._start(self._members[name])
            case Terminate(name):
                self._running[name].terminate()
                self._fleet = self._fleet.asked_to_end(name, time.monotonic())
            case Kill(name):
                self._tell(name, "is killed: it took too long to end", WARNING)
                self._running[name].kill()
                self._fleet = self._fleet.killed(name)
            case Drain(reason):
                self._tell(OWN_NAME, reason, ERROR)
                self._fleet = self._fleet.told_to_end()
            case End(code):
                return code
        self._written_s = 0.0
        return None

    async def _start(self, member: Member) -> None:
        name = member.name
        self._fleet = self._fleet.started(name, time.monotonic())
        self._facts[name] = {}
        self._told.pop(name, None)
        self._running[name] = process = await MemberProcess.start(
            member.command(self._bootstrap), self._stack.folder, lambda line: self._hear(member, line)
        )
        self._tell(name, f"starts as process {process.pid}")
        if member.is_ready_at_once:
            self._problems.pop(name, None)
            self._fleet = self._fleet.ready(name, time.monotonic())
        task = asyncio.create_task(self._wait_for(name, process))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _wait_for(self, name: str, process: MemberProcess) -> None:
        code = await process.ended()
        del self._running[name]
        self._fleet = self._fleet.ended(name, code, time.monotonic())
        self._tell(name, *_end_in_words(self._fleet, name, code))
        self._written_s = 0.0
        self._news.set()

    # --- what is heard

    def _hear(self, member: Member, line: str) -> None:
        if not line.strip():
            return
        self._logs.write(member.name, line)
        taken = self._digests[member.name].take(line, time.monotonic())
        if taken is None:
            return
        said = member.read(taken) if isinstance(taken, str) else taken
        self._facts[member.name] |= said.facts
        if not self._bootstrap and "bootstrap" in said.facts:
            self._bootstrap = str(said.facts["bootstrap"])
            # For our own questions, and for all that is started from now on.
            os.environ.update(connection_environment(self._stack, self._bootstrap))
        if said.problem is not None:
            self._problems[member.name] = said.problem
        elif said.is_ready:
            self._problems.pop(member.name, None)
        if said.is_ready:
            self._fleet = self._fleet.ready(member.name, time.monotonic())
            self._news.set()
        self._show(member.name, said)

    def _show(self, name: str, said: Said) -> None:
        if said.repeats:
            if self._told.get(name) == said.repeats:
                return
            self._told[name] = said.repeats
        self._tell(name, said.sentence, said.level, said.facts)

    def _tell(self, source: str, sentence: str, level: str = INFO, facts: Any = None) -> None:
        try:
            self._journal.write(SystemClock().now_ms(), source, plain(sentence), level, facts)
        except BrokenPipeError:  # nobody reads the log any more: as when a terminal is closed
            self._fleet = self._fleet if self._fleet.is_ending else self._fleet.told_to_end()

    # --- what is seen

    def _write_state(self, *, at_once: bool = False) -> None:
        now_s = time.monotonic()
        if not at_once and now_s - self._written_s < _WRITE_EVERY_S:
            return
        self._written_s = now_s
        own = process_of(os.getpid())
        assert own is not None
        members = tuple(self._state_of(member, now_s) for member in self._members.values())
        state = StackState(
            own.pid, own.began_ticks, self._since_ms, str(self._stack.file.absolute()), self._bootstrap, members
        )
        state_file.write(self._stack.folder, state)

    def _state_of(self, member: Member, now_s: float) -> MemberState:
        standing = self._fleet.of(member.name)
        process = self._running.get(member.name)
        note = self._problems.get(member.name, "") if standing.phase is not Phase.DONE else ""
        if standing.phase is Phase.WAITING:
            misses = self._fleet.misses(member.name)
            note = f"waits for {', '.join(misses)}" if misses else note
        phase, facts = str(standing.phase), self._facts[member.name]
        if standing.phase is Phase.RUNNING and facts.get("state") == WAITING:
            phase, note = WAITING, ": ".join(filter(None, [f"waiting {facts.get('waiting', '')}".strip(), note]))
        return MemberState(
            member.name,
            member.kind,
            phase,
            process.pid if process else None,
            SystemClock().now_ms() - int((now_s - standing.since_s) * 1000),
            max(standing.starts - 1, 0),
            note,
            dict(facts) if process else {},
        )


def _end_in_words(fleet: Fleet, name: str, code: int) -> tuple[str, str]:
    standing = fleet.of(name)
    how = f"ended with code {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"
    match standing.phase:
        case Phase.PAUSING:
            pause_s = standing.retry_at_s - standing.since_s
            return f"{how}; it is started again after {pause_s:g} s (failure {standing.failures} in a row)", WARNING
        case Phase.FAILED if standing.failures <= fleet.rules.restarts:
            return f"{how}, which means a wrong call, and is not started again: see {FOLDER}/{name}.log", ERROR
        case Phase.FAILED:
            return f"{how}, failure {standing.failures} in a row, and is given up: see {FOLDER}/{name}.log", ERROR
        case Phase.DONE:
            return "is done", INFO
        case _:
            return ("has ended", INFO) if code == 0 else (how, WARNING)


async def _first_of(event: asyncio.Event, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        pass
