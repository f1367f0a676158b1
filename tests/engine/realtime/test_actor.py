"""The actor of a party, tried without Ray: its own entropy."""

import asyncio
import stat

import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from securevfl.engine.conditions import NONE
from securevfl.engine.network import SERVER
from securevfl.engine.party import Party
from securevfl.engine.realtime.actor import PartyActor
from securevfl.engine.realtime.assignment import PartyAssignment, own_folder
from securevfl.engine.realtime.peers import Introduction
from securevfl.engine.security.identity import Identity, Manifest, ManifestEntry
from securevfl.errors import ConfigurationError, RunError


class Drawing(Party):
    """Draws from its secret stream, once when it is made and once when it runs."""

    kept = ("drawn",)

    def __init__(self, index, secrets):
        super().__init__(index, (0, 1))
        self.first = int(secrets.stream(index, "init").integers(2**60))
        self.drawn = []

    async def run(self):
        self.safe_point()
        self.drawn.append(int(self.secret_stream("x").integers(2**60)))


def assignment(folder, **more):
    return PartyAssignment(**{
        "make": Drawing, "protocol": "p", "run_id": "r", "parties": (SERVER, 0, 1), "seed": 0,
        "conditions": NONE, "folder": None if folder is None else str(folder),
    } | more)  # fmt: skip


async def left(actor):
    """The host of an actor whose incarnation ends."""
    host = actor.host
    await actor.leave()
    if actor.store is not None:
        actor.store.release()
    return host


def run_actor(folder, *, restored=False, index=0, assigned=None):
    """The host of a new actor's party that has ended, and what the actor tells others."""

    async def scenario():
        actor = PartyActor(index, assigned or assignment(folder))
        rounds = await actor.claim()
        await actor.begin(0, restored=restored, at=None, floor=0)
        await actor.go(0)
        told = (await actor.models(), await actor.poll(), await actor.transcript())
        host = await left(actor)  # as if the process had ended
        return host, rounds, told

    return asyncio.run(scenario())


def test_a_party_s_clock_goes_on_from_the_time_that_it_is_told():
    async def scenario():
        actor = PartyActor(0, assignment(None))
        await actor.begin(0, restored=False, at=None, floor=0)
        await actor.go(5 * 10**9)
        host = await left(actor)
        return host.time(host.party)

    assert 5 * 10**9 <= asyncio.run(scenario()) < 65 * 10**9


def test_who_begins_anew_did_not_come_back(tmp_path):
    """Killed before its first checkpoint it believed so, and FedVS's parties waited for ever."""
    for _ in range(2):
        host, _, _ = run_actor(tmp_path)
        assert not host.party.returned
    assert host.party.epoch > 0


def entropy_file(folder, index=0):
    return own_folder(str(folder), index) / "entropy.svfl"


def test_entropy_is_drawn_anew_kept_0600_and_told_nobody(tmp_path):
    host, _, told = run_actor(tmp_path)
    entropy = host.secrets.entropy
    assert len(entropy) == 32
    assert stat.S_IMODE(entropy_file(tmp_path).stat().st_mode) == 0o600
    assert entropy in entropy_file(tmp_path).read_bytes()
    assert entropy.hex() not in repr(told)
    assert repr(entropy) not in repr(told)


def test_a_party_that_comes_back_goes_on_with_its_entropy(tmp_path):
    before, _, _ = run_actor(tmp_path)
    after, rounds, _ = run_actor(tmp_path, restored=True)
    assert rounds == [0]
    assert after.secrets == before.secrets
    assert after.party.first == before.party.first
    assert after.party.drawn == before.party.drawn


def test_a_run_that_begins_anew_draws_anew(tmp_path):
    before, _, _ = run_actor(tmp_path)
    after, _, _ = run_actor(tmp_path)
    assert after.secrets != before.secrets
    assert after.party.first != before.party.first


def test_without_a_folder_it_is_in_memory_alone(tmp_path):
    host, rounds, _ = run_actor(None)
    other, _, _ = run_actor(None)
    assert rounds == []
    assert host.secrets != other.secrets


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"")])
def test_without_its_entropy_no_checkpoint_counts(tmp_path, damage):
    run_actor(tmp_path)
    damage(entropy_file(tmp_path))

    async def scenario():
        actor = PartyActor(0, assignment(tmp_path))
        rounds = await actor.claim()
        try:
            await actor.begin(0, restored=True, at=None, floor=0)
        finally:
            actor.store.release()
            assert rounds == []

    with pytest.raises(RunError, match=r"party 0 has checkpoints, but no whole file entropy\.svfl"):
        asyncio.run(scenario())
    assert not entropy_file(tmp_path).exists() or not entropy_file(tmp_path).read_bytes()


def test_parties_draw_each_their_own(tmp_path):
    hosts = [run_actor(tmp_path, index=n)[0] for n in (0, 1, SERVER)]
    assert len({host.secrets.entropy for host in hosts}) == 3


def test_an_actor_goes_on_with_another_assignment(tmp_path):
    """As an actor that has aligned tables does: nothing of the party before is left."""

    async def scenario():
        actor = PartyActor(0, assignment(None))
        await actor.begin(0, restored=False, at=None, floor=0)
        await actor.go(0)
        aligned, reported = actor.host, await actor.poll()
        aligned.record(aligned.party, "an event", {})
        second = assignment(tmp_path, run_id="s")
        await actor.begin(0, restored=False, at=None, floor=0, assignment=second)
        await actor.go(0)
        told = await actor.poll()
        return aligned, reported, await left(actor), told

    aligned, reported, trained, told = asyncio.run(scenario())
    assert aligned.secrets != trained.secrets
    assert trained.secrets.entropy in entropy_file(tmp_path).read_bytes()
    assert aligned.party is not trained.party
    assert (reported.events, told.events) == ([], [])
    assert len(trained.party.drawn) == 1


def test_a_new_process_without_a_party_says_that_it_does_not_go():
    assert asyncio.run(PartyActor(0, assignment(None)).go(0)) is False


def test_a_party_that_comes_back_knows_the_others_before_it_starts():
    """Ray may execute two calls of an actor in either order."""

    async def scenario():
        actor = PartyActor(0, assignment(None))
        known = {1: Introduction(0, Identity.temporary().public, "127.0.0.1", 1)}
        await actor.begin(0, restored=False, at=None, floor=0)
        started = []
        actor.host.start = lambda passed: started.append(actor.host.links.epoch_of(1) >= 0)
        assert await actor.go_on(known, 0)
        await left(actor)
        return started

    assert asyncio.run(scenario()) == [True]


def test_an_actor_goes_back_to_a_round_of_its_own(tmp_path):
    """As it does with all others when one of them died; nothing of the life before is told."""

    async def scenario():
        actor = PartyActor(0, assignment(tmp_path))
        await actor.begin(0, restored=False, at=None, floor=0)
        await actor.go(0)
        before = actor.host
        before.record(before.party, "an event", {})
        await actor.poll()
        hello = await actor.begin(0, restored=True, at=0, floor=0, assignment=assignment(tmp_path))
        await actor.go(0)
        actor.host.record(actor.host.party, "another", {})
        told = await actor.poll()
        return before, await left(actor), hello, told

    before, after, hello, told = asyncio.run(scenario())
    assert hello.epoch == 1
    assert after.secrets == before.secrets
    assert after.party.drawn == before.party.drawn  # of the checkpoint before it drew
    assert [event.name for event in told.events] == ["another"]
    assert before.status.done


# -- a manifest's session is used once -----------------------------------------------------------


@pytest.fixture
def session(tmp_path):
    """A manifest of the session "s" that all have signed, and the folder of the keys."""
    keys = tmp_path / "keys"
    keys.mkdir()
    names = {SERVER: "server", 0: "party-0", 1: "party-1"}
    made = {n: Identity.create(keys / f"{name}.key") for n, name in names.items()}
    manifest = Manifest("s", "p", {n: ManifestEntry(one.public) for n, one in made.items()})
    for n, one in made.items():
        manifest = manifest.signed(n, one)
    return {"manifest": manifest, "keys": str(keys), "run_id": "s"}


def test_a_session_of_another_run_is_refused_before_the_party_speaks(session, tmp_path):
    run_actor(tmp_path / "one", assigned=assignment(tmp_path / "one", **session))
    listed = tmp_path / "keys" / "party-0.key.sessions"
    assert stat.S_IMODE(listed.stat().st_mode) == 0o600
    text = listed.read_text()
    for folder in (tmp_path / "two", None):
        with pytest.raises(ConfigurationError, match=r"'s': .*party-0.* used in another run"):
            run_actor(folder, assigned=assignment(folder, **session))
    assert listed.read_text() == text
    listed.write_text("what is this line")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        run_actor(tmp_path / "one", assigned=assignment(tmp_path / "one", **session))


def test_a_resume_and_another_session_are_not_refused(session, tmp_path):
    one = tmp_path / "one"
    before, _, _ = run_actor(one, assigned=assignment(one, **session))
    after, _, _ = run_actor(one, restored=True, assigned=assignment(one, **session))
    assert after.secrets == before.secrets
    run_actor(one, assigned=assignment(one, **session))  # begun anew in the same folder
    run_actor(None, index=1, assigned=assignment(None, **session))  # each has a list of its own
    run_actor(None, assigned=assignment(None, **session | {"run_id": "t"}))
    assert len((tmp_path / "keys" / "party-0.key.sessions").read_text().splitlines()) == 2


def test_a_process_that_is_restarted_within_a_run_without_a_folder_goes_on(session, tmp_path):
    same = assignment(None, **session)
    run_actor(None, assigned=same)
    run_actor(None, assigned=same)
    with pytest.raises(ConfigurationError, match="used in another run"):
        run_actor(None, assigned=assignment(None, **session))


def test_a_party_computes_on_one_thread():
    threads = set()

    class Computing(Drawing):
        async def run(self):
            blas = [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]
            threads.update((torch.get_num_threads(), *blas))

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with threadpool_limits(2, user_api="blas"):
            run_actor(None, assigned=assignment(None, make=Computing))
    finally:
        torch.set_num_threads(before)
    assert threads == {1}
