"""Rules of messages: routes, errors that say what is declared, and what simulations refuse."""

import pickle

import pytest

from securevfl.engine.message_rules import MessageRules, Route
from securevfl.engine.network import SERVER, Message
from securevfl.engine.party import ANNOUNCE, Party
from securevfl.engine.simulation.simulator import Simulation
from securevfl.errors import RunError, UndeclaredMessageError
from securevfl.testing.runs import History

CLIENTS = frozenset(range(3))
BOSS = frozenset((SERVER,))


def rules(*more):
    return MessageRules(
        "toy",
        [
            Route(ANNOUNCE, "server", "client", BOSS, CLIENTS),
            Route("upload", "client", "server", CLIENTS, BOSS),
            Route("share", "client", "client", CLIENTS, CLIENTS),
            Route("share", "server", "client", BOSS, CLIENTS),
            Route("note", "client", "itself", CLIENTS, None),
            *more,
        ],
    )


@pytest.mark.parametrize(
    ("kind", "sender", "receiver", "allowed"),
    [
        ("upload", 1, SERVER, True),
        ("upload", 1, 2, False),
        ("upload", SERVER, 1, False),
        ("upload", 3, SERVER, False),
        (ANNOUNCE, SERVER, 2, True),
        (ANNOUNCE, 0, 2, False),
        ("share", 1, 1, True),
        ("share", SERVER, 1, True),
        ("note", 1, 1, True),
        ("note", 1, 2, False),
        ("other", 1, SERVER, False),
    ],
)
def test_a_message_needs_a_route_of_its_kind_between_its_roles(kind, sender, receiver, allowed):
    made = rules()
    assert made.allows(kind, sender, receiver) is allowed
    assert made.allows(kind, sender, receiver) is allowed  # remembered
    carried = pickle.loads(pickle.dumps(made))  # noqa: S301
    assert carried.allows(kind, sender, receiver) is allowed  # as a cluster sends them
    refusal = made.refusal(Message(sender, receiver, kind, None, 4, 0, -1))
    assert (refusal is None) is allowed


def test_a_role_that_nobody_has_receives_nothing():
    idle = rules(Route("stop", "server", "idle", BOSS, frozenset()))
    assert not idle.allows("stop", SERVER, SERVER)
    assert not idle.allows("stop", SERVER, 0)


def test_errors_and_refusals_say_who_what_and_what_is_declared():
    made = rules()
    with pytest.raises(UndeclaredMessageError) as told:
        made.check_sending(1, (SERVER, 2), "upload")
    assert str(told.value).startswith(
        "toy: party 1 sends 'upload' to party 2, and 'upload' is declared from client to server."
    )
    with pytest.raises(RunError, match="the declared kinds are note, round, share, upload"):
        made.check_sending(1, (SERVER,), "sql")
    assert made.refusal(Message(1, 2, "share", None, 4, 0, -1)) is None
    assert made.refusal(Message(1, 2, ANNOUNCE, "stop", 4, 0, -1)) == {
        "kind": ANNOUNCE,
        "sender": 1,
        "of_round": 4,
        "why": "party 1 may not send it: 'round' is declared from server to client",
    }


class Handling(Party):
    """Counts what its handler is given."""

    def __init__(self, index, peers):
        super().__init__(index, peers)
        self.got = []

    async def run(self):
        self.on("share", lambda message: self.got.append(message.sender))
        await self.sleep(2.0)


def test_handlers_are_given_what_is_declared_only():
    parties, history = {n: Handling(n, CLIENTS) for n in (SERVER, *CLIENTS)}, History()
    only_server = MessageRules("toy", [Route("share", "server", "client", BOSS, CLIENTS)])
    simulation = Simulation(parties, rules=only_server, observer=history)
    for sender in (1, SERVER, 2):
        simulation.inject(Message(sender, 0, "share", None, 1, 0, -1), 1.0)
    simulation.run()
    assert parties[0].got == [SERVER]
    assert [(e.party, e.fields["sender"], e.name) for e in history.events] == [
        (0, 1, "refused"),
        (0, 2, "refused"),
    ]


class Waiting(Party):
    """Asks for the word of one party."""

    async def run(self):
        self.word = None
        if self.index == 0:
            self.word = await self.receive("word", sender=2)
        else:
            self.send(0, "word", self.index)


def test_receive_can_ask_for_one_sender():
    parties = {n: Waiting(n, CLIENTS) for n in CLIENTS}
    Simulation(parties).run()
    assert parties[0].word == 2
    assert parties[0].envelope.sender == 2


def test_receivers_that_were_right_once_say_nothing_of_others():
    made = rules()
    for _ in range(2):
        made.check_sending(SERVER, (0, 1), "share")
        made.check_sending(SERVER, [0, 1], "share")
        made.check_sending(1, (0, 2), "share")
        for wrong in ((0, 1, SERVER), (SERVER,)):
            with pytest.raises(UndeclaredMessageError, match="the server sends 'share'"):
                made.check_sending(SERVER, wrong, "share")
        with pytest.raises(UndeclaredMessageError, match="party 3 sends 'share'"):
            made.check_sending(3, (0, 1), "share")
