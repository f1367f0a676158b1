"""Crashes and lost messages in the simulation, with a toy protocol and with the real ones."""

import re
from collections import Counter
from typing import Any, ClassVar

import pytest
import torch
from threadpoolctl import ThreadpoolController, threadpool_limits

import securevfl
from securevfl.data import load_dataset
from securevfl.engine import wire
from securevfl.engine.faults import faults_from
from securevfl.engine.party import SERVER, Party, kept_as
from securevfl.engine.simulation.simulator import Simulation
from securevfl.errors import ConfigurationError, RunError, SecureVFLError, StalledError
from securevfl.models.polynomial_network import PolynomialNetwork
from securevfl.models.split import Centre
from securevfl.testing.runs import History

N, ROUNDS = 4, 12


class Counting(Party):
    """Sends what it has counted so far, one more each round."""

    kept: ClassVar[tuple[str, ...]] = ("counted",)

    def __init__(self, index: int, peers: Any) -> None:
        super().__init__(index, peers)
        self.counted = 0

    async def run(self) -> None:
        async for round_ in self.rounds():
            with round_:
                self.counted += 1
                self.send(SERVER, "count", (self.counted, self.epoch))


class Keeping(Counting):
    """Keeps what it sent, too, in a tuple that grows."""

    kept: ClassVar[tuple[str, ...]] = (*Counting.kept, *kept_as("frozen", "items"))

    def __init__(self, index: int, peers: Any) -> None:
        super().__init__(index, peers)
        self.items: tuple[int, ...] = ()

    def send(self, to: int, kind: str, payload: Any, **options: Any) -> None:
        self.items = (*self.items, self.counted)
        super().send(to, kind, (payload, len(self.items)), **options)


class Asking(Party):
    """Asks in each round and waits a second at most."""

    kept: ClassVar[tuple[str, ...]] = ("heard",)

    def __init__(self, peers: Any, timeout: float | None) -> None:
        super().__init__(SERVER, peers)
        self.timeout = timeout
        self.heard: dict[int, dict[int, Any]] = {}

    async def run(self) -> None:
        while self.round < ROUNDS:
            self.safe_point()
            self.announce(self.round + 1)
            self.heard[self.round] = await self.collect("count", timeout=self.timeout)
            self.record("round", step=self.round)
        self.conclude()


def make(timeout: float | None = 1.0) -> dict[int, Party]:
    return {SERVER: Asking(range(N), timeout)} | {n: Counting(n, range(N)) for n in range(N)}


def simulate(values: dict[str, Any], *, timeout: float | None = 1.0, seed: int = 0) -> Any:
    parties, history = make(timeout), History()
    faults = faults_from(values).bind({"server": (SERVER,), "client": range(N)}, seed)
    simulation = Simulation(
        parties, seed=seed, observer=history, faults=faults, make_party=lambda n: make(timeout)[n]
    )
    simulation.run()
    return simulation, history.events


def named(events: Any, name: str) -> list[Any]:
    return [event for event in events if event.name == name]


def test_a_party_goes_down_and_comes_back_from_its_own_checkpoint():
    simulation, events = simulate({"outage": [{"party": 2, "rounds": [4, 7]}]})
    heard = simulation.parties[SERVER].heard
    assert [r for r in heard if 2 not in heard[r]] == [4, 5, 6]
    # It counted 3 before, lost the rounds in between, and goes on from 3 in its second
    # incarnation.
    assert [heard[r][2] for r in (3, 7, 12)] == [(3, 0), (4, 1), (9, 1)]
    assert all(heard[r][n] == (r, 0) for r in heard for n in (0, 1, 3))
    assert [(e.party, e.round) for e in named(events, "down")] == [(2, 4)]
    assert [(e.party, e.round) for e in named(events, "up")] == [(2, 7)]
    assert {e.fields["why"] for e in named(events, "lost")} == {"party 2 is down"}


def test_a_tuple_that_grows_comes_back_as_it_was_at_the_last_safe_point(monkeypatch):
    monkeypatch.setitem(globals(), "Counting", Keeping)
    simulation, _ = simulate({"outage": [{"party": 2, "rounds": [4, 7]}]})
    heard = simulation.parties[SERVER].heard
    assert [heard[r][2] for r in (3, 7, 12)] == [((3, 0), 3), ((4, 1), 4), ((9, 1), 9)]
    assert simulation.parties[2].items == tuple(range(1, 10))


def test_a_cut_link_loses_messages_of_both_directions():
    simulation, events = simulate({"outage": [{"link": [1, "server"], "rounds": [5, 6]}]})
    heard = simulation.parties[SERVER].heard
    assert [r for r in heard if 1 not in heard[r]] == [5]
    lost = named(events, "lost")
    assert [(e.fields["kind"], e.party, e.fields["to"]) for e in lost] == [("round", SERVER, 1)]
    assert not named(events, "down")


def test_a_server_that_comes_back_opens_a_new_round():
    simulation, events = simulate({"outage": [{"party": "server", "seconds": [2.5, 4.0]}]})
    down = named(events, "down")
    assert not down  # without delays all is over before
    values = {"outage": [{"party": "server", "rounds": [5, 6]}]}
    simulation, events = simulate(values)
    server = simulation.parties[SERVER]
    assert named(events, "down")[0].party == SERVER
    assert server.epoch == 1
    assert server.round == ROUNDS + 1
    assert set(server.heard) == {1, 2, 3, 4, *range(7, ROUNDS + 1)}  # 5 was lost, 6 was its tick


def test_who_waits_for_the_dead_is_told_of_them():
    with pytest.raises(StalledError) as caught:
        simulate({"outage": [{"party": 3, "rounds": [6]}]}, timeout=None)
    said = str(caught.value)
    assert "round 6" in said
    assert "party 3 has been down since round 6" in said
    with pytest.raises(StalledError, match="lost last: 'round' of round 2 from the server"):
        simulate({"outage": [{"link": [0, "server"], "rounds": [2]}]}, timeout=None)


def test_a_run_whose_server_stays_down_is_told_so():
    with pytest.raises(StalledError, match=r"without the server: let its outage end$"):
        simulate({"outage": [{"party": "server", "rounds": [2]}]}, timeout=None)
    with pytest.raises(StalledError, match="covered by a timeout"):
        simulate({"outage": [{"party": 3, "rounds": [2]}]}, timeout=None)


def test_a_run_that_nobody_can_help_is_given_up_when_all_have_tried():
    # The lost round is never answered: whoever comes back waits for the next one.
    cut = [{"link": [0, "server"], "rounds": [3]}]
    values = {"client": {"fault": 0.3, "rejoin": 0.3}, "outage": cut}
    with pytest.raises(StalledError, match=r"stalled at \d\d?\.") as caught:  # not 1000 s
        simulate(values, timeout=None, seed=1)
    assert "of round" in str(caught.value)


class Insisting(Asking):
    """Wants so many answers of everybody, however many rounds that takes."""

    async def run(self) -> None:
        while len(self.heard) < ROUNDS:
            self.safe_point()
            self.announce(self.round + 1)
            self.heard[self.round] = await self.collect("count")
            self.record("round", step=self.round)
        self.conclude()


def test_a_party_that_comes_back_for_ever_to_no_avail_does_not_keep_a_run_alive(monkeypatch):
    # Each time the server asks anew, and a link that is cut for good loses its question.
    values = {
        "server": {"fault": 1.0, "rejoin": 1.0},
        "outage": [{"link": [0, "server"], "seconds": [0.0]}],
    }
    monkeypatch.setitem(globals(), "Asking", Insisting)
    with pytest.raises(StalledError, match=r"stalled at 100\d\."):
        simulate(values, timeout=None)


def test_the_same_seed_gives_the_same_faults():
    values = {"client": {"fault": 0.3, "rejoin": 0.5}, "link": {"fault": 0.1, "rejoin": 0.5}}
    _, one = simulate(values, seed=4)
    _, two = simulate(values, seed=4)
    _, other = simulate(values, seed=5)
    assert one == two != other
    assert named(one, "down")
    assert named(one, "lost")


@pytest.mark.parametrize("cut", range(12))
def test_a_checkpoint_during_faults_resumes_bit_for_bit(cut):
    values = {"client": {"fault": 0.4, "rejoin": 0.5}, "link": {"fault": 0.1, "rejoin": 0.5}}
    roles = {"server": (SERVER,), "client": range(N)}
    whole, events = simulate(values, seed=2)
    states: list[tuple[bytes, list[Any]]] = []
    parties, history = make(), History()
    options: dict[str, Any] = {"make_party": lambda n: make()[n]}
    broken = Simulation(
        parties,
        seed=2,
        observer=history,
        faults=faults_from(values).bind(roles, 2),
        **options,
    )
    asked = 0

    def pause() -> bool:
        nonlocal asked
        asked += 1
        if asked == cut + 1:
            broken.request_state(
                lambda state: states.append((wire.encode(state), list(history.events)))
            )
        return bool(states)

    broken.run(pause)
    assert states
    state, history.events = states[0]
    resumed = Simulation.from_state(
        make(),
        wire.decode(state),
        observer=history,
        faults=faults_from(values).bind(roles, 2),
        **options,
    )
    resumed.run()
    assert history.events == events
    assert resumed.parties[SERVER].heard == whole.parties[SERVER].heard


# -- real protocols --------------------------------------------------------------------------------

TOLERANT = {"share_timeout": 3.0, "result_timeout": 3.0, "max_attempts": 50, "cohorts": 0}


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits", parties=8)


def run(protocol: str, data: Any, faults: dict[str, Any], **options: Any) -> Any:
    chosen = {"rounds": 30, "conditions": "none", "sealed": False} | options
    return securevfl.run(protocol, data, faults=faults, **chosen)


def test_fedvs_goes_on_with_any_r(digits):
    outage = [{"party": n, "rounds": [5, 20]} for n in (1, 4, 6)]
    result = run("fedvs", digits, {"outage": outage}, segments=1, **TOLERANT)
    counts = Counter(event["event"] for event in result.events)
    assert len(result.history) == 30
    assert counts["down"] == counts["up"] == 3
    shared = {row["round"]: row["sharers"] for row in result.history}
    assert shared[4] == 8
    assert shared[10] == 5
    assert shared[30] == 8
    assert result.summary()["crashes"] == 3
    assert result.summary()["lost"] > 0


def test_fedvs_names_what_is_missing(digits):
    outage = [{"party": n, "rounds": [3]} for n in range(6)]
    with pytest.raises(RunError, match=r"round \d+: .*missing: clients \[0, 1, 2, 3, 4, 5\]"):
        run("fedvs", digits, {"outage": outage}, segments=1, **TOLERANT | {"max_attempts": 3})


@pytest.fixture(scope="module")
def few(digits):
    return digits.subset(120, 40)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("protocol", ["fedvs", "split", "split:ignore", "vafl", "wait_dp"])
def test_no_run_hangs(few, protocol, seed):
    rates = [(0.02, 0.5), (0.2, 0.5), (0.3, 0.1)][seed % 3]
    chain = dict(zip(("fault", "rejoin"), rates, strict=True))
    role = ("client", "link", "server", "client")[seed % 4]
    options: dict[str, Any] = dict(TOLERANT) if protocol == "fedvs" else {}
    if protocol == "split:ignore":
        protocol, options = "split", {"stragglers": "ignore", "quorum": 3}
    try:
        options |= {"batch": 16, "width": 4}
        result = run(protocol, few, {role: chain}, rounds=8, seed=seed, **options)
        said = f"{len(result.history)} rounds"
        if any(event["event"] == "budget" for event in result.events):
            # Rounds that a crash repeats would release rows more often than was asked for.
            assert protocol == "wait_dp"
            return
    except SecureVFLError as error:
        said = str(error)
    assert said == "8 rounds" or ("round " in said and re.search("stalled|given up", said))


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    with threadpool_limits(2, user_api="blas"):
        yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_a_run_and_its_resumption_compute_on_one_thread(digits, tmp_path, monkeypatch):
    threads, libraries = set(), ThreadpoolController()

    def look():
        pools = [p["num_threads"] for p in libraries.info() if p["user_api"] == "blas"]
        return {torch.get_num_threads(), *pools}

    assert look() == {2}

    def watched(method):
        def call(self, *arguments):
            threads.update(look())
            return method(self, *arguments)

        return call

    for cls, name in ((Centre, "step"), (Centre, "scores"), (PolynomialNetwork, "forward")):
        monkeypatch.setattr(cls, name, watched(getattr(cls, name)))
    began, on_return = Simulation.from_state, []

    def from_state(*arguments, **named):
        threads.clear()
        made = began(*arguments, **named)
        on_return.append(set(threads))
        return made

    monkeypatch.setattr(Simulation, "from_state", from_state)
    answers = iter([False] * 19 + [True] + [False] * 1000)
    options = {"rounds": 60, "conditions": "paper"}
    faults = {"client": {"fault": 0.1, "rejoin": 0.5}}
    with pytest.raises(KeyboardInterrupt):
        run(
            "vafl",
            digits,
            faults,
            out=tmp_path / "run",
            interrupted=lambda: next(answers),
            **options,
        )
    assert threads == {1}
    found = securevfl.resume(tmp_path / "run", data=digits)
    assert on_return == [{1}]  # parties computed again what followed their safe points
    threads.clear()
    found.scores(digits.test)
    assert threads == {1}


def test_resume_knows_the_faults(few, tmp_path):
    faults = {"client": {"fault": 0.1, "rejoin": 0.5}}
    options = {"rounds": 30, "conditions": "paper", "batch": 16, "width": 4}
    whole = run("vafl", few, faults, **options)
    count = 0

    def interrupted() -> bool:
        nonlocal count
        count += 1
        return count == 20

    with pytest.raises(KeyboardInterrupt):
        run("vafl", few, faults, out=tmp_path / "run", interrupted=interrupted, **options)
    resumed = securevfl.resume(tmp_path / "run", data=few)
    assert resumed.history == whole.history
    assert [e for e in resumed.events if e["event"] == "down"]


def test_a_role_that_the_protocol_lacks_is_refused(digits):
    with pytest.raises(ConfigurationError, match="no party has the role 'host'"):
        run("split", digits, {"host": {"fault": 0.1, "rejoin": 0.5}})


class Repeating(Party):
    """Sends its number again and again, until the server has it, or so many times."""

    async def run(self) -> None:
        for _ in range(TIMES):
            self.send(SERVER, "count", self.index, round=2)
            try:
                await self.receive("stop", timeout=1.5)
            except TimeoutError:
                continue
            return


class Patient(Party):
    """Waits in round 2 for all clients, however long that takes."""

    async def run(self) -> None:
        for round in (1, 2):
            self.round = round
            self.engine.enter_round(self, round)
            self.record("round", step=round)
        await self.collect("count")
        self.broadcast("stop", None)


TIMES = 40


def repeat(values: dict[str, Any], seed: int = 0) -> Any:
    parties: dict[int, Party] = {n: Repeating(n, range(N)) for n in range(N)}
    parties[SERVER] = Patient(SERVER, range(N))
    faults = faults_from(values).bind({"server": (SERVER,), "client": range(N)}, seed)
    history = History()
    simulation = Simulation(
        parties, seed=seed, observer=history, faults=faults, make_party=lambda n: parties[n]
    )
    simulation.run()
    return named(history.events, "lost")


def test_links_come_back_in_a_round_that_waits_for_what_is_sent_again():
    """No party is down, so before only a newer round moved the links on."""
    lost = repeat({"link": {"fault": 1.0, "rejoin": 0.3}})
    assert {event.fields["why"] for event in lost} == {"the link is down"}
    assert max(event.round for event in lost) > 2  # ticks were counted as rounds
    scripted = [{"link": [1, "server"], "rounds": [1, 6]}]
    assert [event.party for event in repeat({"outage": scripted})] == [1] * 4


def test_links_that_never_come_back_and_losses_that_nobody_repeats_end_a_run(monkeypatch):
    for cut in ({"rounds": [1]}, {"seconds": [0.0]}):
        with pytest.raises(StalledError, match=r"stalled at [56]\d\.\d+ s .*missing: party 1\."):
            repeat({"outage": [{"link": [1, "server"], **cut}]})
    with pytest.raises(StalledError):
        repeat({"link": {"fault": 1.0, "rejoin": 0.0}})
    monkeypatch.setitem(globals(), "TIMES", 1)
    with pytest.raises(StalledError, match=r"stalled at 1.500 s"):  # ticks of 1 s do not begin
        repeat({"link": {"fault": 1.0, "rejoin": 0.3}})
