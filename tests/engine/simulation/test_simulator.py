import numpy as np
import pytest

from securevfl.engine.conditions import Conditions, Delay, paper
from securevfl.engine.party import SERVER, Party
from securevfl.engine.simulation.simulator import Simulation
from securevfl.engine.wire import ENVELOPE
from securevfl.errors import StalledError, WireError
from tests.engine.toys import TOYS, Recorder


def parties(*bodies, first=0):
    """One party for each coroutine function of a party."""
    peers = range(first, first + len(bodies))

    def make(index, body):
        party = Party(index, peers)
        party.run = lambda: body(party)
        party.heard = []
        return party

    return {index: make(index, body) for index, body in zip(peers, bodies, strict=True)}


def run(made, **options):
    recorder = Recorder()
    simulation = Simulation(made, observer=recorder, **options)
    simulation.run()
    return simulation, recorder


async def nothing(party):
    pass


def hears(*kinds, times=1):
    async def body(party):
        for _ in range(times):
            payload = await party.receive(*kinds)
            party.heard.append((party.now, party.envelope.sender, payload))

    return body


def test_ties_are_ordered_by_scheduling():
    async def send(party):
        party.send(3, "x", party.index)
        party.send(3, "x", 10 + party.index, round=1)

    made = parties(send, send, send, hears("x", times=6))
    run(made)
    assert [payload for _, _, payload in made[3].heard] == [0, 10, 1, 11, 2, 12]


@pytest.mark.parametrize("name", TOYS)
def test_a_seed_replays_identically_and_another_differs(name):
    def history(seed):
        simulation, recorder = run(TOYS[name](), seed=seed, conditions=paper(6, batch_rows=16))
        return recorder.events, simulation.transcript.columns()["arrived"].tolist()

    assert history(1) == history(1)
    assert history(1) != history(2)


@pytest.mark.parametrize("name", TOYS)
def test_copied_payloads_change_nothing(name):
    conditions = paper(6, batch_rows=16)
    plain = run(TOYS[name](), conditions=conditions)[1].events
    assert run(TOYS[name](), conditions=conditions, copying=True)[1].events == plain


def test_copying_cuts_the_ties_between_parties():
    array = np.zeros(3)

    async def send(party):
        party.send(1, "x", array)
        party.send(0, "x", array)
        await hears("x")(party)

    for copying in (False, True):
        made = parties(send, hears("x"))
        run(made, copying=copying)
        assert [(party.heard[0][2] is array) for party in made.values()] == [not copying] * 2


def test_an_uplink_serves_its_messages_one_after_another():
    # 1000 bit/s; three messages of 26 + 9 + 990 = 1025 bytes take 8.2 s each.
    async def send(party):
        for number in range(3):
            party.send(number + 1, "bytes", bytes(990))

    conditions = Conditions(bandwidth=1000.0)
    made = parties(send, hears("bytes"), hears("bytes"), hears("bytes"))
    assert ENVELOPE + len("bytes") + 9 + 990 == 1025
    run(made, conditions=conditions)
    assert [made[n].heard[0][0] for n in (1, 2, 3)] == [8.2, 16.4, 24.6]


def test_different_uplinks_do_not_wait_for_each_other():
    async def send(party):
        party.send(2, "bytes", bytes(990))

    made = parties(send, send, hears("bytes", times=2))
    run(made, conditions=Conditions(bandwidth=1000.0))
    assert [now for now, _, _ in made[2].heard] == [8.2, 8.2]


def test_a_delay_is_latency_and_does_not_block_later_messages():
    async def send(party):
        party.send(1, "embedding", "slow")
        party.send(1, "x", "quick")
        party.send(1, "x", "chosen", after=1.0, round=1)

    made = parties(send, hears("embedding", "x", times=3))
    run(made, conditions=Conditions(uploads=(Delay(shift=2.0),)))
    assert [(now, p) for now, _, p in made[1].heard] == [
        (0.0, "quick"),
        (1.0, "chosen"),
        (2.0, "slow"),
    ]


def test_activities_choose_the_delay_and_after_adds_to_it():
    async def send(party):
        for kind in ("embedding", "model", "other"):
            party.send(1, kind, kind, after=10.0)

    conditions = Conditions(uploads=(Delay(shift=2.0),), share_factor=0.5)
    made = parties(send, hears("embedding", "model", "other", times=3))
    run(made, conditions=conditions)
    assert [(now, p) for now, _, p in made[1].heard] == [
        (10.0, "other"),
        (11.0, "model"),
        (12.0, "embedding"),
    ]


def test_messages_to_oneself_cost_nothing_but_the_delay_asked_for():
    async def body(party):
        party.send(0, "embedding", "now")
        party.send(0, "later", "later", after=3.0)
        await hears("embedding", "later", times=2)(party)

    conditions = Conditions(uploads=(Delay(shift=2.0),), bandwidth=1.0)
    made = parties(body)
    simulation, _ = run(made, conditions=conditions)
    assert made[0].heard == [(0.0, 0, "now"), (3.0, 0, "later")]
    assert simulation.transcript.messages == 0


def test_collect_decides_by_arrival_and_returns_in_sender_order():
    async def send(party):
        party.send(4, "x", party.index, after=10.0 - party.index)

    async def collect(party):
        party.heard = await party.collect("x", count=2)
        party.took = party.now

    made = parties(send, send, send, send, collect)
    simulation, _ = run(made)
    assert list(made[4].heard.items()) == [(2, 2), (3, 3)]
    assert made[4].took == 8.0
    assert simulation.transcript.columns()["late"].tolist() == [1, 1, 0, 0]


def test_collect_with_timeout_returns_what_came_and_the_rest_is_late():
    async def send(party):
        party.send(2, "x", party.index, after=1.0 + party.index)

    async def collect(party):
        party.heard = (await party.collect("x", senders=[0, 1], timeout=1.5), party.now)

    made = parties(send, send, collect)
    simulation, _ = run(made)
    assert made[2].heard == ({0: 0}, 1.5)
    assert simulation.transcript.late == 1


def test_receive_times_out_and_sleep_lets_time_pass():
    async def body(party):
        with pytest.raises(TimeoutError, match="no x or y within"):
            await party.receive("x", "y", timeout=0.5)
        await party.sleep(0.25)
        party.heard.append(party.now)
        await party.sleep(-1.0)  # a deadline in the past is over at once
        party.heard.append(party.now)

    made = parties(body)
    run(made)
    assert made[0].heard == [0.75, 0.75]


def test_a_timer_of_a_wait_that_is_over_does_nothing():
    async def send(party):
        party.send(1, "x", 1)
        party.send(1, "y", 2, after=5.0)

    async def body(party):
        await party.receive("x", timeout=2.0)
        party.heard.append(await party.receive("y"))

    made = parties(send, body)
    run(made)
    assert made[1].heard == [2]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (lambda party: party.send(1, "x", 1, after=-1.0), ValueError),
        (lambda party: party.send(1, "x", 1, after=float("nan")), ValueError),
        (lambda party: party.send(7, "x", 1), ValueError),
        (lambda party: party.send(1, "x" * 256, 1), WireError),
        (lambda party: party.send(1, "x", {1, 2}), WireError),
        (lambda party: party.share("x", [1, 2, 3]), ValueError),
        (lambda party: party.collect("x", count=3), ValueError),
        (lambda party: party.collect("x", count=0), ValueError),
        (lambda party: party.collect("x", round=-1), ValueError),
    ],
)
def test_misuse_is_refused_at_once(body, error):
    async def misuse(party):
        asked = body(party)
        if asked is not None:
            await asked

    with pytest.raises(error):
        run(parties(misuse, nothing))


# -- rounds ------------------------------------------------------------------------------------


def server(*steps):
    """A server that opens round 1, 2, ... and sleeps for the given seconds in each."""

    async def body(party):
        for number, seconds in enumerate(steps, 1):
            party.announce(number, f"payload {number}")
            await party.sleep(seconds)
        party.conclude()

    made = Party(SERVER, range(2))
    made.run = lambda: body(made)
    return made


def test_a_round_is_left_quietly_when_a_newer_one_is_announced():
    async def body(party):
        async for round_ in party.rounds():
            with round_:
                party.heard.append(("in", round_.number, round_.payload, party.round))
                await party.sleep(1.0)
                party.heard.append(("out", round_.number, party.now))

    made = parties(body, nothing) | {SERVER: server(0.5, 2.0)}
    _, recorder = run(made)
    assert made[0].heard == [
        ("in", 1, "payload 1", 1),
        ("in", 2, "payload 2", 2),
        ("out", 2, 1.5),
    ]
    over = [e for e in recorder.events if e[3] == "over"]
    assert over == [
        (5 * 10**8, 0, 1, "over", {"left": True}),
        (15 * 10**8, 0, 2, "over", {"left": False}),
    ]


def test_overtaken_rounds_are_skipped_and_their_messages_are_late():
    async def body(party):
        await party.sleep(1.0)
        async for round_ in party.rounds():
            party.heard.append(round_.number)

    made = parties(body, nothing) | {SERVER: server(0.1, 0.1, 5.0)}
    simulation, _ = run(made)
    assert made[0].heard == [3]
    columns = simulation.transcript.columns()
    mine = columns["receiver"] == 0
    assert columns["late"][mine].tolist() == [1, 1, 0, 0]


def test_other_errors_in_a_round_are_not_swallowed():
    async def body(party):
        async for round_ in party.rounds():
            with round_:
                raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run(parties(body, nothing) | {SERVER: server(1.0)})


def test_inside_a_round_only_its_messages_are_received_and_outside_all_are():
    async def body(party):
        async for round_ in party.rounds():
            with round_:
                party.heard.append(await party.receive("x"))
                return

    async def send(party):
        party.send(0, "x", "of round 2", round=2)
        party.send(0, "x", "of round 1", round=1, after=0.2)

    made = parties(body, send) | {SERVER: server(1.0)}
    run(made)
    assert made[0].heard == ["of round 1"]


def test_a_satisfied_wait_wins_over_an_announcement_of_the_same_instant():
    async def body(party):
        async for round_ in party.rounds():
            with round_:
                party.heard.append(await party.receive("x"))

    async def late_server(party):
        party.announce(1)
        await party.sleep(1.0)
        party.send(0, "x", "just in time")
        party.announce(2)
        party.send(0, "x", "in round 2")
        await party.sleep(1.0)
        party.conclude()

    made = parties(body, nothing)
    made[SERVER] = Party(SERVER, range(2))
    made[SERVER].run = lambda: late_server(made[SERVER])
    run(made)
    assert made[0].heard == ["just in time", "in round 2"]


# -- handlers ----------------------------------------------------------------------------------


def test_handlers_answer_whatever_the_party_waits_for():
    async def ask(party):
        for number in range(3):
            party.send(1, "ask", number, round=number)
            party.heard.append(await party.receive("answer"))

    async def body(party):
        party.on("ask", lambda m: party.send(m.sender, "answer", m.payload + 10, round=m.round))
        await party.sleep(5.0)

    made = parties(ask, body)
    run(made)
    assert made[0].heard == [10, 11, 12]


def test_a_handler_gets_what_came_before_it_was_registered():
    async def send(party):
        for number in range(3):
            party.send(1, "x", number, round=number)

    class Slow(Party):
        async def setup(self):
            await self.sleep(1.0)

        async def run(self):
            self.on("x", lambda m: self.heard.append(m.payload))

    made = parties(send, nothing)
    made[1] = Slow(1, range(2))
    made[1].heard = []
    simulation, _ = run(made)
    assert made[1].heard == [0, 1, 2]
    assert simulation.transcript.late == 0


# -- ends --------------------------------------------------------------------------------------


def test_the_stall_error_names_who_waits_for_what_from_whom():
    async def collect(party):
        party.round = 4
        party.send(0, "x", None)
        await party.collect("x", senders=[0, 1, 2])

    with pytest.raises(StalledError) as caught:
        run(parties(collect, hears("y", "z"), nothing))
    assert "party 0 has 1 of 3 'x' of round 4; missing: party 1, party 2" in str(caught.value)
    assert "party 1 waits for 'y' or 'z'" in str(caught.value)
    assert "party 2 " not in str(caught.value).split("party 1 waits")[1]
    assert "nothing is under way" in str(caught.value)


def test_a_run_without_recorded_events_stalls_after_the_patience():
    async def forever(party):
        while True:
            await party.sleep(1.0)

    made = parties(forever, hears("x"))
    with pytest.raises(StalledError, match=r"for 60 s.*party 1 waits for 'x'"):
        run(made, patience=60.0)

    async def lively(party):
        for _ in range(100):
            await party.sleep(1.0)
            party.record("alive")

    simulation, _ = run(parties(lively), patience=60.0)
    assert simulation.clock == 100 * 10**9


def test_messages_under_way_at_the_end_are_late_and_no_stall():
    async def send(party):
        party.send(1, "x", 1, after=10**7)  # longer than the patience

    simulation, _ = run(parties(send, nothing))
    assert simulation.finished
    assert simulation.transcript.late == 1


def test_an_error_of_a_party_ends_the_run_as_it_is():
    async def fail(party):
        await party.sleep(1.0)
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        run(parties(fail, hears("x")))


def test_records_carry_time_party_and_round():
    async def body(party):
        party.round = 3
        await party.sleep(1.5)
        party.record("seen", value=7)

    _, recorder = run(parties(body))
    assert recorder.events == [(15 * 10**8, 0, 3, "seen", {"value": 7})]


# -- measured computing ------------------------------------------------------------------------


def spin():
    """Work for a while; returns how long at least, in nanoseconds."""
    from time import perf_counter_ns

    start = perf_counter_ns()
    while perf_counter_ns() - start < 3_000_000:
        pass
    return 3_000_000


def test_the_measured_mode_adds_computing_time_and_keeps_a_busy_party_from_going_on():
    conditions = Conditions(compute="measured")

    async def work(party):
        party.send(1, "first", None)
        spin()
        party.send(1, "second", None)

    async def body(party):
        for kind in ("first", "second"):
            await party.receive(kind)
            party.heard.append(party.engine.time(party))
            spin()

    made = parties(work, body)
    simulation, _ = run(made, conditions=conditions)
    arrived = simulation.transcript.columns()["arrived"]
    assert arrived[1] - arrived[0] >= 3_000_000
    first, second = made[1].heard
    assert second - first >= 3_000_000
    assert second >= arrived[1]


@pytest.mark.parametrize("name", TOYS)
def test_every_toy_ends_in_the_measured_mode(name):
    simulation, _ = run(TOYS[name](), conditions=Conditions(compute="measured"))
    assert simulation.finished


def test_streams_of_a_party_do_not_depend_on_the_course_of_the_run():
    drawn = {}

    async def body(party):
        await party.sleep(float(party.index))
        drawn[party.index] = party.stream("x", 1).integers(2**60)

    run(parties(body, body), seed=5)
    first = dict(drawn)
    run(parties(body, body), seed=5, conditions=paper(2, batch_rows=1))
    assert drawn == first
    assert first[0] != first[1]


def chatter(number):
    """Sends itself messages at one instant; records after every hundredth."""

    async def body(party):
        for n in range(number):
            party.send(0, "x", n)
            await party.receive("x")
            if n % 100 == 0:
                party.record("round", n=n)

    return body


def test_pause_is_asked_within_an_instant_too():
    made, asked = parties(chatter(10_000)), []
    simulation = Simulation(made)
    while not simulation.finished:
        simulation.run(lambda: asked.append(simulation.clock) or True)
    assert 100 < len(asked) < 200
    assert set(asked) == {0}


def test_an_instant_that_never_ends_is_a_stall(monkeypatch):
    monkeypatch.setattr("securevfl.engine.simulation.simulator._ENDLESS", 5000)

    async def forever(party):
        while True:
            await party.sleep(0.0)

    with pytest.raises(StalledError, match=r"5000 events of one instant.*waits for the clock"):
        run(parties(forever))
    run(parties(chatter(20_000)))


def test_a_handler_computes_in_the_measured_mode_too():
    async def ask(party):
        party.send(1, "question", None)
        party.send(1, "question", None)
        for _ in range(2):
            await party.receive("answer")
            party.heard.append(party.engine.time(party))

    async def answer(party):
        def handle(message):
            spin()
            party.send(0, "answer", None)

        party.on("question", handle)
        await party.sleep(1.0)

    made = parties(ask, answer)
    run(made, conditions=Conditions(compute="measured"))
    first, second = made[0].heard
    assert first >= 3_000_000
    assert second >= first
    assert second < 900_000_000  # and is not charged from the beginning of somebody else's step


def test_except_exception_around_a_wait_keeps_nobody_in_a_round_that_is_over():
    class Hurried(Party):
        async def run(self):
            for number in (1, 2, 3):
                self.announce(number)
                await self.sleep(1.0)
            self.conclude()

    class Cautious(Party):
        def __init__(self):
            super().__init__(0, (0,))
            self.heard = []

        async def run(self):
            async for round_ in self.rounds():
                with round_:
                    try:
                        await self.receive("never", timeout=0.4 if round_.number == 3 else 9.0)
                    except Exception as error:
                        self.heard.append((round_.number, type(error).__name__, self.now))

    client, watch = Cautious(), Recorder()
    Simulation({SERVER: Hurried(SERVER, (0,)), 0: client}, observer=watch).run()
    assert client.heard == [(3, "TimeoutError", 2.4)]
    over = [
        (number, fields["left"]) for _, _, number, name, fields in watch.events if name == "over"
    ]
    assert over == [(1, True), (2, True), (3, False)]
