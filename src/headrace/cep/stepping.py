"""One key's partial matches, stepped row by row: the automaton at work, in plain Python.

Rows come in the order of time. An attempt is all that begins at one row; its runs are partial matches: a state, the
edges that are still open, and the rows taken (shared with the runs that it branched from).

What always holds:

- What is due before a row (the end of a window, of an absence) is done before that row is looked at.
- Matches come out in the order of the definition: of those that begin at a row, in the order in which they become
  complete, the preferred first; and where matches skip, none before those of earlier rows are decided.
- An automaton that chooses one match from each row has strict edges only, so its runs are simply kept in the order of
  preference, and a run that reaches the end cuts off all that are less preferred.
"""

from headrace.cep.automaton import ACCEPT
from headrace.cep.errors import TooManyPartialMatches
from headrace.cep.match import Event, Taken, Values, path
from headrace.cep.partial import NEVER, Attempt, Cap, Counts, Emitted, Run
from headrace.cep.program import Program, Step
from headrace.cep.tree import Skip
from headrace.cep.values import as_key


class KeyRuns:
    """The state of one key."""

    __slots__ = (
        "_attempts",
        "_before",
        "_began",
        "_cap",
        "_counts",
        "_fresh_matches",
        "_from",
        "_program",
        "_size",
        "alarm_us",
        "deadline_us",
        "matches",
    )

    def __init__(self, program: Program, cap: Cap, counts: Counts) -> None:
        self._program = program
        self._cap = cap
        self._counts = counts
        self._attempts: list[Attempt] = []
        self._size = 0
        self._from = 0  # rows with a smaller number begin nothing
        self._before: tuple[Values, ...] = ()
        self._began: dict[object, int] = {}
        self._fresh_matches: list[tuple[Attempt, Taken, int, int]] = []
        self.deadline_us = NEVER
        """When `advance` has something to do."""
        self.alarm_us = NEVER
        """When the matcher comes back to it, if no row does."""
        self.matches = 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing is kept that matters later."""
        numbers = self.matches and self._program.keeps_numbers
        return not (self._attempts or self._before or self._began or self._from >= NEVER or numbers)

    @property
    def size(self) -> int:
        """How many partial matches there are."""
        return self._size

    # --- rows

    def step(self, event: Event, emitted: Emitted) -> None:
        """A row, in its turn."""
        program = self._program
        if self.deadline_us <= event.time_us:
            self.advance(event.time_us, emitted)
        if program.back:
            event.before = self._before
            self._before = (event.values, *self._before[: program.back - 1])
        if self._attempts:
            self._size = 0  # the cap is for what is left after the row: each partial match that stays counts again
            if program.chooses_one:
                for attempt in self._attempts:
                    self._step_preferred(attempt, event)
            else:
                for attempt in self._attempts:
                    if attempt.runs:
                        self._step_all(attempt, event)
        self._begin(event)
        self._settle(emitted)

    def _begin(self, event: Event) -> None:
        program = self._program
        attempt: Attempt | None = None
        for step in program.starts:
            assert step.test is not None
            if not step.test(event, None):
                continue
            if step.edge.bars and any(self._is_barred(bar.test, bar.unless, event, None) for bar in step.edge.bars):
                continue
            if attempt is None:
                if program.distinct is not None and not self._is_distinct(event):
                    return
                if event.number < self._from:
                    return
                attempt = Attempt(event)
                self._attempts.append(attempt)
            self._take(attempt, attempt.runs, step, None, event)
            if program.chooses_one and attempt.best is not None:
                break

    def _is_distinct(self, event: Event) -> bool:
        program = self._program
        distinct = program.automaton.tree.distinct
        assert distinct is not None
        assert program.distinct is not None
        value = as_key(program.distinct(event))
        began_us = self._began.get(value)
        if began_us is not None and (distinct.expires_us is None or event.time_us < began_us + distinct.expires_us):
            return False
        if distinct.expires_us is not None and len(self._began) >= 64:
            oldest_us = event.time_us - distinct.expires_us
            self._began = {one: at_us for one, at_us in self._began.items() if at_us > oldest_us}
        self._began[value] = event.time_us
        return True

    def _step_all(self, attempt: Attempt, event: Event) -> None:
        before, attempt.runs = attempt.runs, []
        runs = attempt.runs
        for run in before:
            kept: list[Step] | None = None  # None: all of them
            for place, step in enumerate(run.open):
                if step.is_plain:
                    matched = step.test(event, run.taken)  # type: ignore[misc]  # only ends have none
                    stays = step.is_any or not (matched or step.is_strict)
                    if matched:
                        self._take(attempt, runs, step, run.taken, event)
                else:
                    stays = self._walk(attempt, runs, step, run, event)
                if stays:
                    if kept is not None:
                        kept.append(step)
                elif kept is None:
                    kept = list(run.open[:place])
            if kept is not None:
                run.open = tuple(kept)
                if not run.open:
                    continue
                self._plan(run, attempt.start)
            run.is_fresh = False
            self._keep(attempt, runs, run)

    def _walk(self, attempt: Attempt, runs: list[Run], step: Step, run: Run, event: Event) -> bool:
        """An edge with more than its target's test to it: take the row if it may be taken; whether it stays open."""
        edge, taken, tests = step.edge, run.taken, self._program.tests
        if run.is_fresh and any(tests[test](event, taken) for test in edge.next_bars):
            return False
        since_us = event.time_us - taken.event.time_us
        if edge.absences and since_us < edge.wait_us:
            return not any(
                since_us < for_us and tests[test](event, taken) for test, for_us in edge.absences
            ) and not any(self._is_barred(bar.test, bar.unless, event, taken) for bar in edge.bars)
        for bar in edge.bars:
            if self._is_barred(bar.test, bar.unless, event, taken):
                return False
        if edge.target == ACCEPT:
            if edge.bars:
                return True
            self._complete(attempt, taken, step.choice, event.time_us)
            run.was_match = True
            return False
        assert step.test is not None
        matched = step.test(event, taken)
        if matched:
            self._take(attempt, runs, step, taken, event)
        return step.is_any or not (matched or step.is_strict)

    def _is_barred(self, test: int, unless: int | None, event: Event, taken: Taken | None) -> bool:
        tests = self._program.tests
        return tests[test](event, taken) and not (unless is not None and tests[unless](event, taken))

    def _take(self, attempt: Attempt, runs: list[Run], step: Step, parent: Taken | None, event: Event) -> None:
        program, state = self._program, step.target
        taken = Taken(program.variables[state], event, parent, state, step.choice)
        end = program.ends[state]
        if end is not None:
            if program.chooses_one:
                attempt.best = taken
            else:
                self._complete(attempt, taken, end, event.time_us)
        open_steps = program.open[state]
        if open_steps:
            run = Run(taken, open_steps, end is not None)
            if program.has_deadlines:
                self._plan(run, attempt.start)
            self._keep(attempt, runs, run)

    def _step_preferred(self, attempt: Attempt, event: Event) -> None:
        """The same where one match is chosen: all edges are strict, and the runs are in the order of preference."""
        if not attempt.runs:
            return
        program = self._program
        before, attempt.runs = attempt.runs, []
        reached: set[int] = set()
        for run in before:
            for step in run.open:
                if program.merges and step.target in reached:
                    continue
                if not step.test(event, run.taken):  # type: ignore[misc]
                    continue
                reached.add(step.target)
                best = attempt.best
                self._take(attempt, attempt.runs, step, run.taken, event)
                if attempt.best is not best:
                    return

    def _keep(self, attempt: Attempt, runs: list[Run], run: Run) -> None:
        if self._size >= self._cap.most:
            self._counts.dropped += 1
            if self._cap.choice == "fail":
                raise TooManyPartialMatches(
                    f"a key has {self._size} partial matches, which is the cap: raise it, shorten `within`, or choose "
                    "to drop some"
                )
            if self._cap.choice == "drop_newest":
                return
            oldest = next((one for one in self._attempts if one.runs), attempt)
            victims = oldest.runs or runs
            if not victims:
                return
            del victims[0]
            self._size -= 1
        runs.append(run)
        self._size += 1
        if run.deadline_us < self.deadline_us:
            self.deadline_us = run.deadline_us

    # --- time

    def _plan(self, run: Run, start: Event) -> None:
        """When the run has to be looked at though no row comes."""
        last_us = run.taken.event.time_us
        within_us = self._program.within_us
        deadline_us = NEVER if within_us is None else start.time_us + within_us
        for step in run.open:
            edge = step.edge
            if edge.within_us is not None:
                deadline_us = min(deadline_us, last_us + edge.within_us)
            if edge.target == ACCEPT and edge.absences and not edge.bars:
                deadline_us = min(deadline_us, last_us + edge.wait_us)
        run.deadline_us = deadline_us

    def advance(self, now_us: int, emitted: Emitted) -> None:
        """Do what is due up to and with a time: no row before it will come."""
        while self.deadline_us <= now_us:
            due_us, next_us = self.deadline_us, NEVER
            for attempt in self._attempts:
                kept = []
                for run in attempt.runs:
                    if run.deadline_us <= due_us and not self._pass(attempt, run, due_us, emitted):
                        self._size -= 1
                        continue
                    kept.append(run)
                    next_us = min(next_us, run.deadline_us)
                attempt.runs = kept
            self.deadline_us = next_us
            self._settle(emitted)

    def finish(self, emitted: Emitted) -> None:
        """No row will come any more: what waits for one to be something else is complete."""
        self.advance(NEVER - 1, emitted)
        for attempt in self._attempts:
            for run in attempt.runs:
                for step in run.open:
                    if step.target == ACCEPT:
                        self._complete(attempt, run.taken, step.choice, run.taken.event.time_us)
            attempt.runs = []
        self._size = 0
        self._settle(emitted)

    def _pass(self, attempt: Attempt, run: Run, now_us: int, emitted: Emitted) -> bool:
        """What a run's time means for it; whether it goes on."""
        last_us = run.taken.event.time_us
        within_us = self._program.within_us
        is_over = within_us is not None and now_us >= attempt.start.time_us + within_us
        kept = []
        for step in run.open:
            edge = step.edge
            if edge.target == ACCEPT:
                has_waited = bool(edge.absences) and not edge.bars and now_us >= last_us + edge.wait_us
                if has_waited or is_over:
                    if now_us >= last_us + edge.wait_us:
                        self._complete(attempt, run.taken, step.choice, now_us)
                        run.was_match = True
                    continue
            elif is_over or (edge.within_us is not None and now_us >= last_us + edge.within_us):
                continue
            kept.append(step)
        run.open = tuple(kept)
        if not kept:
            if not run.was_match and not (self._program.chooses_one and attempt.best is not None):
                emitted.timed_out.append((run.taken, now_us))
            return False
        self._plan(run, attempt.start)
        return True

    # --- matches

    def _complete(self, attempt: Attempt, taken: Taken, choice: int, now_us: int) -> None:
        self._fresh_matches.append((attempt, taken, choice, now_us))

    def _settle(self, emitted: Emitted) -> None:
        """Emit what is decided after a step, and drop what it skips."""
        if self._fresh_matches:
            fresh, self._fresh_matches = self._fresh_matches, []
            if len(fresh) > 1:
                fresh = _in_order(fresh)
            for attempt, taken, _, at_us in fresh:
                if self._program.after.skip is Skip.NONE:
                    self.matches += 1
                    emitted.matches.append((taken, at_us))
                else:
                    attempt.complete.append((taken, at_us))
        if self._program.chooses_one or self._program.after.skip is not Skip.NONE:
            self._settle_in_turn(emitted)
        elif any(not attempt.runs for attempt in self._attempts):
            self._attempts = [attempt for attempt in self._attempts if attempt.runs]

    def _settle_in_turn(self, emitted: Emitted) -> None:
        while self._attempts:
            attempt = self._attempts[0]
            if self._program.chooses_one:
                if attempt.runs:
                    return
                if attempt.best is not None:
                    attempt.complete.append((attempt.best, attempt.best.event.time_us))
            while attempt.complete:
                taken, at_us = attempt.complete.pop(0)
                self.matches += 1
                emitted.matches.append((taken, at_us))
                self._skip(taken)
            if self._attempts and self._attempts[0] is attempt:
                if attempt.runs:
                    return
                del self._attempts[0]

    def _skip(self, taken: Taken) -> None:
        """Where the next match may begin: attempts from before are given up."""
        begin = next_start(taken, self._program)
        if begin <= self._from:
            return
        self._from = begin
        kept = []
        for attempt in self._attempts:
            if attempt.start.number >= begin:
                kept.append(attempt)
            else:
                self._size -= len(attempt.runs)
                attempt.runs = []
                attempt.complete = []
        self._attempts = kept


def next_start(taken: Taken, program: Program) -> int:
    """The smallest number of a row at which a match may begin after this one."""
    skip = program.after.skip
    rows = path(taken)
    first = rows[0].event.number
    if skip is Skip.NONE:
        return first + 1 if program.chooses_one else 0
    if skip is Skip.TO_NEXT:
        return first + 1
    if skip is Skip.PAST_LAST:
        return rows[-1].event.number + 1
    if skip is Skip.TO_NONE:
        return NEVER
    mine = [row.event.number for row in rows if row.variable in program.after.variables]
    if not mine:
        return first + 1
    # To the row at which it began would give the same match for ever.
    return max(first + 1, mine[0] if skip is Skip.TO_FIRST else mine[-1])


def _in_order(fresh: list[tuple[Attempt, Taken, int, int]]) -> list[tuple[Attempt, Taken, int, int]]:
    """Matches of one step: by where they begin, then by preference; each once."""
    keyed = []
    for entry in fresh:
        rows = path(entry[1])
        preference = [(row.choice, row.event.number) for row in rows]
        same = tuple((row.variable, row.event.number) for row in rows)
        keyed.append((rows[0].event.number, [*preference, (entry[2], 0)], same, entry))
    keyed.sort(key=lambda one: one[:2])
    seen: set[object] = set()
    found = []
    for start, _, same, entry in keyed:
        if (start, same) not in seen:
            seen.add((start, same))
            found.append(entry)
    return found
