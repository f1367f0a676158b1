"""The runner of a party: its steps, timers, handlers and rounds, without a clock or a transport."""

import pytest

from securevfl.engine.mailbox import ANNOUNCE
from securevfl.engine.network import SERVER, Message, RoundOverError
from securevfl.engine.party import Party
from securevfl.engine.runner import Owner, PartyRunner


class Surroundings(Owner):
    """An owner that writes down its calls, and the network of its party."""

    def __init__(self):
        self.calls = []
        self.free = True
        self.rounds = []
        self.late = []

    def set_timer(self, seconds, wait):
        self.calls.append(("timer", seconds, wait))

    def at_safe_point(self):
        self.calls.append("safe")

    def step_begins(self):
        self.calls.append("begins")
        return 7

    def step_ends(self, outer):
        assert outer == 7
        self.calls.append("ends")

    def is_free(self):
        return self.free

    def received(self, messages, *, over):
        self.calls.append(("received", [m.payload for m in messages], over))

    def ended(self):
        self.calls.append("ended")

    # -- the network ---------------------------------------------------------------------------

    def handled(self, party, kind):
        self.runner.deliver_held(kind)

    def enter_round(self, party, round):
        self.runner.mailbox.enter(round)

    def round_over(self, party, round, left):
        self.rounds.append((round, left))


def run(party, owner=None, *, setup_done=False, recorded=None, waits=0):
    """A runner that has been started, and its owner."""
    owner = Surroundings() if owner is None else owner
    owner.runner = PartyRunner(party, owner, owner.late.append, waits=waits)
    party.engine = owner
    owner.runner.start(setup_done=setup_done, recorded=recorded)
    return owner.runner, owner


def message(payload=None, *, kind="x", round=0, sender=1):
    return Message(sender, 0, kind, payload, round, 0, 5)


class Listener(Party):
    """Receives three messages; the second has a timeout, the third is a safe point."""

    def __init__(self):
        super().__init__(0, (0, 1, 2))
        self.heard = []

    async def setup(self):
        self.heard.append("setup")

    async def run(self):
        self.heard.append(await self.receive("x"))
        try:
            self.heard.append(await self.receive("x", timeout=1.5))
        except TimeoutError:
            self.heard.append("timeout")
        self.heard.append(await self.receive("x", safe=True))


def test_it_steps_from_wait_to_wait_and_ends():
    party = Listener()
    runner, owner = run(party)
    assert runner.setup_done
    assert owner.calls == ["begins", "ends"]
    for number in range(3):
        assert not runner.done
        runner.deliver(message(number, sender=number))
    assert party.heard == ["setup", 0, 1, 2]
    assert runner.done
    assert owner.calls[2:6] == [("received", [0], False), "begins", ("timer", 1.5, 2), "ends"]
    assert owner.calls[6:10] == [("received", [1], False), "begins", "safe", "ends"]
    assert owner.calls[10:] == [("received", [2], False), "begins", "ended"]


def test_setup_that_is_done_is_left_out():
    party = Listener()
    run(party, setup_done=True)
    assert party.heard == []


def test_what_comes_for_a_party_that_has_ended_is_late():
    party = Listener()
    runner, owner = run(party)
    for number in range(5):
        runner.deliver(message(number, sender=number))
    assert [m.payload for m in owner.late] == [3, 4]


def test_what_is_held_at_the_end_is_late():
    runner, owner = run(Listener())
    runner.deliver(message("other", kind="y"))
    for number in range(3):
        runner.deliver(message(number, sender=number))
    assert [m.payload for m in owner.late] == ["other"]


def test_a_timer_of_an_earlier_wait_does_nothing():
    party = Listener()
    runner, _ = run(party)
    runner.deliver(message(0))
    runner.time_out(1)
    assert party.heard == ["setup", 0]
    runner.time_out(2)
    assert party.heard == ["setup", 0, "timeout"]
    runner.time_out(2)  # the third wait has no timer and goes on
    assert party.heard == ["setup", 0, "timeout"]


def test_numbers_of_waits_go_on_where_an_earlier_incarnation_ended():
    party = Listener()
    runner, owner = run(party, waits=40)
    runner.deliver(message(0))
    assert owner.calls[-2] == ("timer", 1.5, 42)
    runner.time_out(2)
    assert party.heard == ["setup", 0]


def test_a_busy_party_goes_on_when_it_is_resumed():
    party = Listener()
    runner, owner = run(party)
    owner.free = False
    runner.deliver(message(0))
    assert party.heard == ["setup"]
    runner.time_out(1)  # its wait has what it needs: no timer ends it
    assert party.heard == ["setup"]
    runner.resume(0)
    assert party.heard == ["setup"]
    runner.resume(1)
    assert party.heard == ["setup", 0]
    runner.resume(1)
    assert party.heard == ["setup", 0]


def test_a_busy_party_does_not_take_what_is_there_already():
    party = Listener()
    runner, owner = run(party)
    runner.deliver(message(1, kind="x", sender=2))
    assert party.heard == ["setup", 1]
    owner.free = False
    runner.deliver(message(2, sender=1))
    runner.deliver(message(3, sender=0))
    runner.resume(2)
    assert party.heard == ["setup", 1, 2]
    runner.resume(3)
    assert party.heard == ["setup", 1, 2, 3]


def test_a_closed_party_hears_nothing():
    party = Listener()
    runner, owner = run(party)
    party.on("y", party.heard.append)
    runner.close()
    runner.deliver(message(0))
    runner.deliver(message(0, kind="y"))
    runner.time_out(1)
    runner.resume(1)
    assert party.heard == ["setup"]
    assert len(owner.late) == 2
    runner.close()  # a second time changes nothing


def test_recorded_outcomes_lead_to_the_wait_that_was_under_way():
    party = Listener()
    runner, owner = run(party, setup_done=True, recorded=iter([([message("then")], None)]))
    assert party.heard == ["then"]
    assert runner.waits == 2
    assert owner.calls == ["begins", "begins", "ends"]  # neither logged, nor with a new timer
    runner.deliver(message("now"))
    assert party.heard == ["then", "now"]


class Handler(Party):
    """Registers a handler after its first message."""

    def __init__(self):
        super().__init__(0, (0, 1))
        self.heard = []

    async def run(self):
        await self.receive("go")
        self.on("y", lambda message: self.heard.append(message.payload))
        self.heard.append("registered")
        await self.receive("stop")


def test_handlers_get_what_was_held_and_what_comes():
    party = Handler()
    runner, owner = run(party)
    runner.deliver(message(1, kind="y"))
    runner.deliver(message(2, kind="y", round=1))
    assert party.heard == []
    runner.deliver(message(kind="go"))
    assert party.heard == [1, 2, "registered"]
    owner.calls.clear()
    runner.deliver(message(3, kind="y"))
    assert party.heard == [1, 2, "registered", 3]
    assert owner.calls == [("received", [3], None), "begins", "ends"]


class Failing(Party):
    async def run(self):
        self.on("y", self.fail)
        await self.receive("x")
        raise ValueError("in the party")

    def fail(self, message):
        raise KeyError("in the handler")


def test_errors_pass_through_to_the_owner():
    runner, _ = run(Failing(0, (0, 1)))
    with pytest.raises(KeyError, match="in the handler"):
        runner.deliver(message(kind="y"))
    with pytest.raises(ValueError, match="in the party"):
        runner.deliver(message())


class Cautious(Party):
    """Catches every exception around its waits, as authors do who fear them."""

    def __init__(self):
        super().__init__(0, (0, 1))
        self.heard = []

    async def run(self):
        async for round_ in self.rounds():
            with round_:
                try:
                    self.heard.append(await self.receive("x", timeout=9.0))
                except Exception as error:
                    self.heard.append(type(error).__name__)
                self.heard.append(f"end of {round_.number}")


def announcement(round):
    return message("go", kind=ANNOUNCE, round=round, sender=SERVER)


def test_except_exception_keeps_nobody_in_a_round_that_is_over():
    party = Cautious()
    runner, owner = run(party)
    runner.deliver(announcement(1))
    runner.deliver(announcement(2))
    assert party.heard == []
    assert party.round == 2
    assert owner.rounds == [(1, True)]
    assert ("received", [], True) in owner.calls
    runner.deliver(message("here", round=2))
    assert party.heard == ["here", "end of 2"]
    assert owner.rounds == [(1, True), (2, False)]


def test_except_exception_does_catch_a_timeout():
    party = Cautious()
    runner, _ = run(party)
    runner.deliver(announcement(1))
    runner.time_out(runner.waits)
    assert party.heard == ["TimeoutError", "end of 1"]


def test_a_wait_that_has_its_messages_ends_with_them_though_its_round_is_over():
    party = Cautious()
    runner, owner = run(party)
    runner.deliver(announcement(1))
    owner.free = False
    runner.deliver(message("in time", round=1))
    runner.deliver(announcement(2))
    owner.free = True
    runner.resume(runner.waits)
    assert party.heard == ["in time", "end of 1"]
    assert party.round == 2


def test_recorded_rounds_that_were_over_are_left_again():
    party = Cautious()
    recorded = [([announcement(1)], None), (None, RoundOverError()), ([announcement(2)], None)]
    _, owner = run(party, setup_done=True, recorded=iter(recorded))
    assert party.round == 2
    assert owner.rounds == [(1, True)]
    assert party.heard == []


class Thrifty(Party):
    """Waits for two messages, and for a third even where the round was over before these came."""

    def __init__(self):
        super().__init__(0, (0, 1, 2))
        self.heard = []

    async def run(self):
        async for round_ in self.rounds():
            with round_:
                try:
                    self.heard.append(await self.collect("x", senders=(1, 2)))
                except RoundOverError:
                    self.heard.append("over")
                self.heard.append(await self.receive("y"))


def test_a_party_that_catches_the_signal_gets_what_is_here_and_waits_for_nothing_else():
    party = Thrifty()
    runner, owner = run(party)
    runner.deliver(announcement(1))
    runner.deliver(message("half", round=1))
    runner.deliver(message("here", kind="y", round=1))
    runner.deliver(announcement(2))
    assert party.heard == ["over", "here"]
    runner.deliver(announcement(3))
    assert party.heard == ["over", "here", "over"]
    assert owner.rounds == [(1, False), (2, True)]
    assert party.round == 3


def test_a_signal_that_was_caught_is_caught_again_in_a_replay():
    party = Thrifty()
    over, here = (None, RoundOverError()), ([message("here", kind="y", round=1)], None)
    recorded = iter([([announcement(1)], None), over, here, ([announcement(2)], None), over])
    _, owner = run(party, setup_done=True, recorded=recorded)
    assert party.heard == ["over", "here", "over"]
    assert owner.rounds == [(1, False)]


def test_a_round_over_signal_is_no_exception():
    assert not issubclass(RoundOverError, Exception)
