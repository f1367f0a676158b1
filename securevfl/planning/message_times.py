"""Virtual time of a run, computed from the outline of its messages.

Times follow from the rules of `securevfl.engine.simulation.simulator`: a message leaves after its
sender's delay and queues on its sender's uplink behind what left before, and one of the server then
on its receiver's downlink; the server continues with the count-th arrival (an order statistic of
delays plus transfers). Many independent timelines are simulated round by round and averaged,
without computing or sending anything (Monte Carlo).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from securevfl.engine.conditions import Conditions
from securevfl.engine.delays import Delay, Trace
from securevfl.engine.mailbox import ANNOUNCE
from securevfl.engine.network import SERVER
from securevfl.engine.streams import keyed_stream
from securevfl.planning.message_bytes import post_bytes, receivers_of, senders_of
from securevfl.protocols.base.schedule import Outline, Phase, Post, Stage

RUNS, ROUNDS = 48, 100  # followed side by side, and for so many rounds
_WARM_UP = 20  # rounds until late uploads of earlier rounds are as many as they will be
_TRACE_ROUNDS = 2000
_LATEST = 256  # late uploads of one client that are followed; each delays others by one transfer


@dataclass(frozen=True)
class Times:
    """Expected virtual times of a run, in seconds.

    Attributes
    ----------
    setup : float
        Time until the last client has all data shares.
    round : float
        Time from one server step to the next.
    error : float
        Standard error of `round`.
    total : float
        Time until the server's last step, with inference.
    """

    setup: float
    round: float
    error: float
    total: float


def expected_times(
    outline: Outline,
    conditions: Conditions,
    parties: int,
    *,
    sealed: bool,
    seed: int = 0,
    runs: int = RUNS,
    rounds: int = ROUNDS,
) -> Times:
    """Mean times of `runs` simulated runs, each of at most `rounds` rounds of a phase.

    Longer phases are extrapolated.

    Parameters
    ----------
    outline, conditions : Outline, Conditions
        Planned messages of the run; delays and bandwidth.
    parties : int
        Number N of clients, with helpers.
    sealed : bool
        Whether links are encrypted.
    seed : int
        Seed of the simulation; its streams are independent of a run's.
    """
    if conditions.uploads and isinstance(conditions.uploads[0], Trace):
        runs, rounds = 1, max(rounds, _TRACE_ROUNDS)
    line = Timeline(outline, conditions, parties, sealed=sealed, seed=seed, runs=runs)
    training, *inference = outline.phases
    ends = line.follow(training, min(training.rounds, rounds))
    # Late uploads queue before later ones, so rounds grow longer until as many become late as get
    # through. From then on the mean step stands for all rounds that are not followed.
    skipped = _WARM_UP if len(ends) < training.rounds and len(ends) > 2 * _WARM_UP else 0
    steps = (ends[-1] - ends[skipped]) / max(len(ends) - 1 - skipped, 1)
    mean = float(steps.mean()) if len(ends) > 1 else float(ends[0].mean())
    error = float(steps.std(ddof=1)) / math.sqrt(runs) if runs > 1 else 0.0
    total = float(ends[0].mean()) + (training.rounds - 1) * mean
    for phase in inference:
        before = line.now.copy()
        some = min(phase.rounds, rounds)
        total += phase.rounds / some * float((line.follow(phase, some)[-1] - before).mean())
    return Times(setup=float(line.ready.max()), round=mean, error=error, total=total)


class Timeline:
    """Clocks and uplinks of `runs` independent runs of one message schedule; times in seconds.

    A run has the messages of `outline`, among `parties` clients, sealed or not, with delays and
    bandwidth of `conditions`.

    Attributes
    ----------
    now : ndarray, (runs,)
        Time at which the server last had its inputs.
    ready : ndarray, (N,)
        Time at which each client has finished its setup.
    """

    def __init__(
        self,
        outline: Outline,
        conditions: Conditions,
        parties: int,
        *,
        sealed: bool,
        seed: int,
        runs: int,
    ) -> None:
        self._conditions = conditions
        self._parties = parties
        self._sealed = sealed
        self._stream = keyed_stream(seed, SERVER, "plan")
        self._round = self._told = 0
        shape = (runs, parties)
        self.now = np.zeros(runs)
        self._server_free = np.zeros(runs)
        self._server_busy = np.zeros(runs)
        self._down_free = np.zeros(shape)
        self._answers = np.zeros(shape, np.int64)  # how often each was among the first
        self._taken = np.ones(shape, bool)  # whose answers the last stage with groups took
        self.ready, free = self._setup(outline.setup, waits=outline.setup_waits)
        self._drawn: dict[str, np.ndarray] = {}  # delays of the present spells, by activity
        self._heard = np.broadcast_to(self.ready, shape)
        self._busy = np.broadcast_to(self.ready, shape).copy()
        self._free = np.broadcast_to(free, shape).copy()
        # What has not left yet: when it will, and how long it then takes; in order of leaving.
        self._leaves = np.full((*shape, 0), np.inf)
        self._takes = np.zeros((*shape, 0))

    def _seconds(self, post: Post, client: int) -> float:
        nbytes = post_bytes(post, client, sealed=self._sealed)
        return self._conditions.transfer(nbytes, client) / 1e9

    def _received(
        self, post: Post, to: Sequence[int], sent: np.ndarray, some: np.ndarray | None = None
    ) -> np.ndarray:
        """Seconds at which clients `to` have a message that left the server at `sent`, (runs, to).

        `some`, (runs, to), are those to which it is sent; all of them if not given.
        """
        nbytes = post_bytes(post, SERVER, sealed=self._sealed)
        takes = np.array([self._conditions.download(nbytes, n) / 1e9 for n in to])
        takes = takes if some is None else takes * some
        if not takes.any():
            return sent
        arrived = np.where(takes > 0, np.maximum(self._down_free[:, to], sent) + takes, sent)
        self._down_free[:, to] = np.where(takes > 0, arrived, self._down_free[:, to])
        return arrived

    def _setup(self, posts: Sequence[Post], *, waits: bool) -> tuple[np.ndarray, np.ndarray]:
        """Seconds, (N,), at which each client has its peers' messages, and its uplink is free."""
        N = self._parties
        ready, free, busy = np.zeros(N), np.zeros(N), np.zeros(N)
        for post in posts:
            busy = (ready if waits else busy) + self._clients_work(post)
            start, arrived = np.maximum(free, busy), np.maximum(ready, busy)
            for n in senders_of(post, 0, N):
                each, to = self._seconds(post, n), list(receivers_of(post, n, N))
                steps = np.arange(1, len(to) + 1) * each
                if n == SERVER:  # it waits for nobody, and has an uplink of its own
                    sent = self._server_free[:, None] + steps
                    self._server_free, arrivals = sent[:, -1], self._received(post, to, sent)[0]
                else:
                    arrivals, free[n] = start[n] + steps, start[n] + len(to) * each
                if SERVER not in to:
                    arrived[to] = np.maximum(arrived[to], arrivals)
            ready = arrived
        return ready, free

    def follow(self, phase: Phase, rounds: int) -> np.ndarray:
        """Seconds at which the server ends each of a phase's next rounds, (rounds, runs)."""
        announcement = Post(ANNOUNCE, "clients", (phase.announcement,))
        ends = np.empty((rounds, len(self.now)))
        for place in range(rounds):
            self._round += 1
            heard = self._heard
            if phase.announcement is not None:
                heard = self._serve((announcement,))
            heard = np.maximum(heard, self.ready)
            for stage in phase.stages:
                if stage.count:
                    self._answer(stage, heard)
                    ends[place] = self.now
                else:
                    serve = self._serve_in_order if stage.fastest_first else self._serve
                    heard = self._heard = serve(stage.posts)
        return ends

    def _serve(self, posts: Sequence[Post]) -> np.ndarray:
        """Send posts from the server to all clients; return arrivals of the last one, (runs, N)."""
        arrivals = np.zeros((len(self.now), self._parties))
        for post in posts:
            self._server_busy = np.maximum(self._server_busy, self.now) + self._server_work(post)
            each, to = self._seconds(post, SERVER), list(receivers_of(post, SERVER, self._parties))
            start = np.maximum(self._server_busy, self._server_free)
            some = self._some(post)[:, to]
            sent = start[:, None] + np.cumsum(some, axis=1) * each
            self._server_free = sent[:, -1]
            received = self._received(post, to, sent, some)
            arrivals[:, to] = np.where(some, received, arrivals[:, to])
            self._abort(to, arrivals)
        return arrivals

    def _abort(self, told: Sequence[int], arrivals: np.ndarray) -> None:
        """Drop work for older rounds at clients that hear of a newer round."""
        if self._conditions.delay_mode != "abort" or self._round == self._told:
            return
        self._told = self._round
        hears = np.full(self._busy.shape, np.inf)
        hears[:, told] = arrivals[:, told]
        stale = np.isfinite(self._leaves) & (self._leaves > hears[:, :, None])
        self._leaves = np.where(stale, np.inf, self._leaves)
        self._busy = np.where(stale.any(axis=2), np.minimum(self._busy, hears), self._busy)

    def _serve_in_order(self, posts: Sequence[Post]) -> np.ndarray:
        """Send as `_serve`, to clients in order of how often they were among the first."""
        N, runs = self._parties, np.arange(len(self.now))
        takes, work = np.zeros(N), np.zeros(N)
        for post in posts:
            to = list(receivers_of(post, SERVER, N))
            takes[to], work[to] = self._seconds(post, SERVER), self._server_work(post)
        arrivals = np.zeros((len(runs), N))
        self._server_busy = np.maximum(self._server_busy, self.now)
        for to_each in np.argsort(-self._answers, axis=1, kind="stable").T:
            self._server_busy = self._server_busy + work[to_each]
            start = np.maximum(self._server_busy, self._server_free)
            self._server_free = arrivals[runs, to_each] = start + takes[to_each]
        for post in posts:
            to = list(receivers_of(post, SERVER, N))
            arrivals[:, to] = self._received(post, to, arrivals[:, to])
        self._abort(range(N), arrivals)
        return arrivals

    def _some(self, post: Post) -> np.ndarray:
        """Mask of clients that send a post, or receive it from the server, (runs, N) bool."""
        return np.ones_like(self._taken) if post.first is None else self._taken

    def _clients_work(self, post: Post) -> np.ndarray:
        """Modelled seconds of computation at each client for a post, (N,)."""
        counts = np.broadcast_to(np.array(post.operations), self._parties)
        work = self._conditions.work
        return np.array([work(int(count), n) / 1e9 for n, count in enumerate(counts)])

    def _server_work(self, post: Post) -> float:
        return self._conditions.work(post.operations[0]) / 1e9

    def _answer(self, stage: Stage, heard: np.ndarray) -> None:
        """Let clients work from `heard`, (runs, N), and send; the server awaits enough posts."""
        late = self._delay(stage.activity)
        self._busy = np.maximum(self._busy, heard)
        seconds = np.zeros(self._busy.shape)
        senders = np.zeros_like(self._taken)  # of the last post
        for post in stage.posts:
            clients = range(self._parties) if post.senders is None else post.senders(self._round)
            work = np.zeros(self._parties)
            work[list(clients)] = self._clients_work(post)[list(clients)]
            if work.any() and seconds.any():  # what was sent before leaves before
                self._send(self._busy + late, seconds)
                seconds = np.zeros(self._busy.shape)
            senders = self._some(post)
            self._busy = self._busy + work * senders
            for n in clients:
                receivers = len(receivers_of(post, n, self._parties))
                seconds[:, n] += receivers * self._seconds(post, n) * senders[:, n]
            if post.waited:
                self._send(self._busy, seconds)
                seconds = np.zeros(self._busy.shape)
                ends, busy = self._drained(self._busy), self._busy.copy()
                for n in clients:
                    to = receivers_of(post, n, self._parties)
                    before = np.arange(len(to))[::-1] * self._seconds(post, n)
                    busy[:, to] = np.maximum(busy[:, to], ends[:, [n]] - before)
                self._busy = busy
        leaves = self._busy + late
        if self._conditions.delay_mode != "latency":
            self._busy = leaves
        self._send(leaves, seconds)
        arrivals = np.where(senders, self._drained(leaves), np.inf)
        self.now = np.maximum(self._awaited(stage, arrivals), self._server_busy)
        self._commit()

    def _awaited(self, stage: Stage, arrivals: np.ndarray) -> np.ndarray:
        """Time at which the server has enough arrivals, an order statistic, (runs,)."""
        runs = np.arange(len(arrivals))
        if stage.groups:
            ends = np.stack([arrivals[:, list(one)].max(axis=1) for one in stage.groups], axis=1)
            order = np.argsort(ends, axis=1, kind="stable")
            sizes = np.array(list(map(len, stage.groups)))[order]
            places = (sizes.cumsum(axis=1) < stage.count).sum(axis=1)
            taken = np.argsort(order, axis=1) <= places[:, None]  # by group
            for one, here in zip(stage.groups, taken.T, strict=True):
                self._taken[:, list(one)] = here[:, None]
            found: np.ndarray = ends[runs, order[runs, places]]
            return found
        # Ties go to lower numbers.
        first = np.argsort(arrivals, axis=1, kind="stable")[:, : stage.count]
        self._answers[runs[:, None], first] += 1
        here = np.isfinite(arrivals[runs[:, None], first]).sum(axis=1)
        last: np.ndarray = arrivals[runs, first[runs, here - 1]]
        return last

    def _delay(self, activity: str | None) -> np.ndarray:
        """Random delays of an activity, (runs, N), drawn where a new spell of delay begins."""
        late = np.zeros((len(self.now), self._parties))
        if activity is None:
            return late
        late = self._drawn.setdefault(activity, late)
        conditions, round = self._conditions, self._round
        delays: Sequence[Delay | Trace] = conditions.uploads
        for n, delay in enumerate(delays):
            if round == 1 or conditions.spell(n, round) != conditions.spell(n, round - 1):
                late[:, n] = draw(delay, round, len(late), self._stream)
        return late * (conditions.share_factor if activity == "share" else 1.0)

    def _send(self, leaves: np.ndarray, seconds: np.ndarray) -> None:
        """Queue at the uplinks messages that leave at `leaves` and take `seconds`, (runs, N)."""
        self._leaves = np.concatenate([self._leaves, leaves[:, :, None]], axis=2)
        self._takes = np.concatenate([self._takes, seconds[:, :, None]], axis=2)
        order = np.argsort(self._leaves, axis=2, kind="stable")
        self._leaves = np.take_along_axis(self._leaves, order, 2)[:, :, :_LATEST]
        self._takes = np.take_along_axis(self._takes, order, 2)[:, :, :_LATEST]

    def _drained(self, until: np.ndarray) -> np.ndarray:
        """Second at which each uplink has sent all queued by second `until`; both (runs, N)."""
        free = self._free
        for place in range(self._leaves.shape[2]):
            leaves = self._leaves[:, :, place]
            sent = leaves <= until
            if not sent.any():
                break
            # A queue with one server (Lindley): a message begins when it leaves or when the one
            # before it is through, whichever is later.
            done = np.maximum(free, leaves) + self._takes[:, :, place]
            free = np.where(sent, done, free)
        return free

    def _commit(self) -> None:
        """Drop messages that have left by now; later ones cannot leave before them."""
        until = self.now[:, None]
        self._free = self._drained(until)
        # Messages are sorted by when they leave, so the queue up to now is settled: whatever is
        # added later leaves later, and cannot delay these.
        left = self._leaves <= until[:, :, None]
        self._leaves = np.where(left, np.inf, self._leaves)
        order = np.argsort(self._leaves, axis=2, kind="stable")
        kept = int((~left & np.isfinite(self._leaves)).sum(axis=2).max(initial=0))
        self._leaves = np.take_along_axis(self._leaves, order, 2)[:, :, :kept]
        self._takes = np.take_along_axis(self._takes, order, 2)[:, :, :kept]


# The distributions of securevfl.engine.delays.DISTRIBUTIONS, of mean 1, many values at once.
MANY: dict[str, Callable[[np.random.Generator, float, int], np.ndarray]] = {
    "exponential": lambda stream, _, count: stream.standard_exponential(count),
    # Inverse transforms: if E is exponential, exp(E / a) is Pareto with tail index a and mean a /
    # (a - 1); exp(s Z) has mean exp(s^2 / 2). Divided by their means, both have mean 1.
    "pareto": lambda stream, shape, count: (
        (shape - 1) / shape * np.exp(stream.standard_exponential(count) / shape)
    ),
    "lognormal": lambda stream, shape, count: np.exp(
        shape * stream.standard_normal(count) - shape**2 / 2
    ),
}


def draw(law: Delay | Trace, round: int, count: int, stream: np.random.Generator) -> np.ndarray:
    """`count` independent delays of `law`, in seconds; for a trace, copies of the round's."""
    if isinstance(law, Trace):
        return np.full(count, law.seconds(0, 0, round, ""))
    return law.shift + law.mean * MANY[law.law](stream, law.shape, count)
