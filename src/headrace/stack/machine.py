"""What a supervisor decides, without doing any of it: who starts, who is ended, who is started again, when all is over.

Pure: what happened comes in with its time, `decide` answers what to do now. What always holds:

- nobody starts before all that it needs runs (a task: has ended well);
- nobody is told to end while somebody of a later rank still lives, and after the order to end nobody starts;
- who fails is started again after a pause that doubles, and given up after `restarts` failures in a row; to have run
  for `steady_s` ends a row. A wrong call (exit code 2) would be as wrong the next time, and is given up at once;
- when something vital is given up, the stack ends; the rest of it does without anything else.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from headrace.retry import Backoff

_WRONG_CALL: Final = 2


class Phase(StrEnum):
    """Where one is between its start and its end."""

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    PAUSING = "restarting"
    DONE = "done"
    FAILED = "failed"
    STOPPING = "stopping"
    STOPPED = "stopped"


ALIVE: Final = frozenset({Phase.STARTING, Phase.RUNNING, Phase.STOPPING})
FINE: Final = frozenset({Phase.RUNNING, Phase.DONE})


@dataclass(frozen=True, slots=True)
class Rules:
    """How failures are met, and how long an end may take."""

    restarts: int = 8
    first_pause_s: float = 0.5
    longest_pause_s: float = 30.0
    steady_s: float = 60.0
    drain_s: float = 60.0  # a pipeline ends with the batch that it is in

    @property
    def backoff(self) -> Backoff:
        """When a member is started again, and when it is given up."""
        return Backoff(self.first_pause_s, self.longest_pause_s, self.restarts)


@dataclass(frozen=True, slots=True)
class Post:
    """What the machine has to know of a member."""

    name: str
    rank: int
    needs: tuple[str, ...] = ()
    is_task: bool = False
    may_end: bool = False
    is_vital: bool = False


@dataclass(frozen=True, slots=True)
class Standing:
    """How one stands; failures are those in a row."""

    phase: Phase = Phase.WAITING
    since_s: float = 0.0
    failures: int = 0
    starts: int = 0
    retry_at_s: float = 0.0
    code: int | None = None
    is_killed: bool = False


@dataclass(frozen=True, slots=True)
class Start:
    name: str


@dataclass(frozen=True, slots=True)
class Terminate:
    name: str


@dataclass(frozen=True, slots=True)
class Kill:
    name: str


@dataclass(frozen=True, slots=True)
class Drain:
    """End everything, for this reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class End:
    code: int


Action = Start | Terminate | Kill | Drain | End


@dataclass(frozen=True, slots=True)
class Fleet:
    """All members, in the order of their start, and how each stands."""

    posts: tuple[Post, ...]
    rules: Rules = field(default_factory=Rules)
    standings: Mapping[str, Standing] = field(default_factory=dict)
    began_s: float = 0.0
    is_ending: bool = False
    is_hurried: bool = False

    def of(self, name: str) -> Standing:
        return self.standings.get(name, Standing(since_s=self.began_s))

    def _with(self, name: str, standing: Standing) -> "Fleet":
        return replace(self, standings={**self.standings, name: standing})

    # --- what happened

    def started(self, name: str, now_s: float) -> "Fleet":
        before = self.of(name)
        return self._with(
            name, replace(before, phase=Phase.STARTING, since_s=now_s, starts=before.starts + 1, is_killed=False)
        )

    def ready(self, name: str, now_s: float) -> "Fleet":
        """It said that it does its work."""
        before = self.of(name)
        is_news = before.phase is Phase.STARTING
        return self._with(name, replace(before, phase=Phase.RUNNING, since_s=now_s)) if is_news else self

    def asked_to_end(self, name: str, now_s: float) -> "Fleet":
        return self._with(name, replace(self.of(name), phase=Phase.STOPPING, since_s=now_s))

    def killed(self, name: str) -> "Fleet":
        """It was ended by force, and will be gone in a moment."""
        return self._with(name, replace(self.of(name), is_killed=True))

    def ended(self, name: str, code: int, now_s: float) -> "Fleet":
        """Its process is gone, with this code (negative: by a signal)."""
        post, before = self._post(name), self.of(name)
        if self.is_ending:
            return self._with(name, replace(before, phase=Phase.STOPPED, since_s=now_s, code=code))
        if code == 0 and (post.is_task or post.may_end):
            return self._with(name, replace(before, phase=Phase.DONE, since_s=now_s, code=code, failures=0))
        was_steady = before.phase is Phase.RUNNING and now_s - before.since_s >= self.rules.steady_s
        backoff = self.rules.backoff
        failures = 1 if was_steady else before.failures + 1
        if code == _WRONG_CALL or backoff.gives_up(failures):
            return self._with(name, replace(before, phase=Phase.FAILED, since_s=now_s, code=code, failures=failures))
        return self._with(
            name,
            replace(
                before,
                phase=Phase.PAUSING,
                since_s=now_s,
                code=code,
                failures=failures,
                retry_at_s=now_s + backoff.pause_s(failures),
            ),
        )

    def told_to_end(self) -> "Fleet":
        """Somebody wants all of it to end; the second time at once."""
        return replace(self, is_ending=True, is_hurried=self.is_ending)

    def _post(self, name: str) -> Post:
        return next(post for post in self.posts if post.name == name)

    # --- what to do

    def decide(self, now_s: float) -> list[Action]:
        if self.is_ending:
            return list(self._ending(now_s))
        for post in self.posts:
            if post.is_vital and self.of(post.name).phase is Phase.FAILED:
                return [Drain(f"{post.name} cannot be kept running, and nothing works without it")]
        starts = [Start(post.name) for post in self.posts if self._may_start(post, now_s)]
        if starts or any(self._has_future(post.name) for post in self.posts):
            return list(starts)
        return [End(self.exit_code)]

    def _may_start(self, post: Post, now_s: float) -> bool:
        standing = self.of(post.name)
        is_due = standing.phase is Phase.PAUSING and now_s >= standing.retry_at_s
        return (is_due or standing.phase is Phase.WAITING) and not self.misses(post.name)

    def misses(self, name: str) -> tuple[str, ...]:
        """Whom one waits for."""
        return tuple(need for need in self._post(name).needs if self.of(need).phase not in FINE)

    def _has_future(self, name: str) -> bool:
        """Whether it lives, or may yet."""
        phase = self.of(name).phase
        if phase is Phase.WAITING:
            return all(self._has_future(need) or self.of(need).phase in FINE for need in self._post(name).needs)
        return phase in ALIVE or phase is Phase.PAUSING

    def _ending(self, now_s: float) -> Iterator[Action]:
        alive = [post for post in self.posts if self.of(post.name).phase in ALIVE]
        if not alive:
            yield End(self.exit_code)
            return
        last = max(post.rank for post in alive)
        for post in reversed(alive):
            standing = self.of(post.name)
            if self.is_hurried:
                if not standing.is_killed:
                    yield Kill(post.name)
            elif standing.phase is Phase.STOPPING:
                if now_s - standing.since_s >= self.rules.drain_s and not standing.is_killed:
                    yield Kill(post.name)
            elif post.rank == last:
                yield Terminate(post.name)

    @property
    def exit_code(self) -> int:
        """1 if anything was given up, or had to be killed at its end."""
        bad = any(standing.phase is Phase.FAILED or standing.is_killed for standing in self.standings.values())
        return 1 if bad else 0
