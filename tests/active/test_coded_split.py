"""Lies at the covert level of coded split learning, and honest runs in which nobody is named."""

import dataclasses
import itertools
from typing import ClassVar

import numpy as np
import pytest

import securevfl.protocols.base.levels.proved_shares as proved_shares
import securevfl.protocols.coded_split.covert as covert
from securevfl.active.dealt import chained, link_of, no_chain, statement_text
from securevfl.active.judge import LieFoundError, TwoStories, judge
from securevfl.engine.network import SERVER
from securevfl.errors import PrivacyError, RunError
from securevfl.protocols.coded_split.algorithm import Owner
from securevfl.protocols.coded_split.decoding import decode_sums
from securevfl.protocols.coded_split.server import Server
from securevfl.protocols.coded_split.terms import shape_of
from securevfl.verified import Element, Secret, bare_of
from tests.lies.coded_split_stage import play
from tests.lies.lie import Size

VICTIM = 5
SMALL = Size(rows=32, batch=16, width=4, victims=1)
STORY = 4
STEPS = STORY + 3


@pytest.fixture(autouse=True)
def _compared_often(monkeypatch):
    monkeypatch.setattr(covert, "STORY", STORY)


def run(server=None, *, liars=None, parties=8, rounds=3, **options):
    options = {"security": "covert", "degree": 1, "rounds": rounds, **options}
    return play(SMALL, server, liars=liars, parties=parties, **options)


def keys_of(played):
    """Public keys of all parties, as anybody may have them."""
    return dict(bare_of(played.judge.parties[0].sworn[1]))


def named(played):
    """The party that the run names, by the judge too; None where it names nobody."""
    if not isinstance(played.error, LieFoundError):
        return None
    keys, found = keys_of(played), judge(played.error.evidence, keys_of(played))
    assert found.party == played.error.party
    assert judge(played.error.evidence, {**keys, found.party: bytes(32)}) is None
    return found.party


def moved(share, field, home=SERVER):
    """A share with another first entry."""
    array = bare_of(share).copy()
    array.flat[0] = (int(array.flat[0]) + 1) % 31
    return Element(array, None, home, None, field)


class Lies(Server):
    """A server that is honest but for what it deals in a step: the parts of some holders."""

    judge: object
    found: dict
    step: ClassVar[int] = 2
    victim: ClassVar[int] = VICTIM

    def proofs_of(self, step):
        made = super().proofs_of(step)
        return [self.lie(j, one) if step >= self.step else one for j, one in enumerate(made)]

    def lie(self, j, parts):
        return parts

    def signed(self, j, parts, **other):
        """Parts of a holder of step `self.steps`, signed anew with something else in them."""
        names = ("blind", "values", "root", "siblings", "nonce", "start", "before")
        own = dict(zip(names, parts, strict=False)) | other
        leaf = other.pop("leaf", None)
        if leaf is None:
            label = covert.dealing_of(self.public, SERVER, "step", self.steps).label(j)
            leaf = self.tag(own["nonce"], label, of=[self.dealt(self.steps).shares[j], parts[0]])
        said = own["start"], own["before"], leaf, own["siblings"], own["root"], own["values"]
        about = self.signs.own, statement_text, SERVER, "step", self.steps, j
        signature = self.sign(*about, *said, self.signs.run)
        return (*(own[name] for name in names), signature)


# -- 12: a step off the polynomial -----------------------------------------------------------------


class OffPolynomial(Server):
    """Deals one holder a share of a step that is off the polynomial."""

    step: ClassVar[int] = 2
    victim: ClassVar[int] = VICTIM

    def dealt(self, step):
        made = super().dealt(step)
        if step != self.step:
            return made
        shares = [
            moved(one, self.field) if j == self.victim else one for j, one in enumerate(made.shares)
        ]
        return dataclasses.replace(made, shares=shares)


def test_a_step_off_the_polynomial_is_found_by_its_holder_and_names_the_server():
    played = run(OffPolynomial)
    assert named(played) == SERVER
    assert str(played.error).startswith(
        f"party {SERVER} lied: 'step' of step 2 to party {VICTIM}: "
        "the share is not on the polynomial of the others"
    )
    assert played.judge.parties[VICTIM].model[1] == 1  # it took the first step alone


# -- 14 to 16: two stories -------------------------------------------------------------------------


def test_no_two_sequences_of_stories_have_one_chain():
    """Digests that are joined by XOR can be chosen so that 254 steps have one label."""
    dealer = make_server()
    links = [[Secret(np.full(32, 2 * t + i, np.uint8), None, SERVER, None) for i in range(2)]
             for t in range(8)]  # fmt: skip
    found = {
        bare_of(chained(no_chain(dealer), *(pair[i] for pair, i in zip(links, chosen, strict=True))
                        )).tobytes()
        for chosen in itertools.product(range(2), repeat=8)
    }  # fmt: skip
    assert len(found) == 256
    turned = chained(no_chain(dealer), links[1][0], links[0][0])
    assert bare_of(turned).tobytes() not in found


def make_server():
    return run(rounds=1).server


class Forks(Server):
    """Tells the second half of the holders another story from a step on; goes on with the first.

    Where `restarts`, the second story is told as that of another start.
    """

    judge: object
    found: dict
    first: ClassVar[int] = 2
    restarts: ClassVar[bool] = False
    story: tuple = ()  # the second one: its start, and its chain

    told_first: ClassVar[tuple[int, ...] | None] = None  # who is told the first one

    @property
    def half(self):
        return self.told_first or [*self.peers][: len(self.peers) // 2]

    async def sums(self):
        if self.steps < self.first:
            return await super().sums()
        R = self.public.results_needed
        half = self.half
        how = {"senders": half, "count": min(R, len(half)), "timeout": 20.0}
        uploads = await self.collect("embedding", **how)
        if len(uploads) < R:
            raise RunError("nobody uploads")
        self.found["forked"] = self.found.get("forked", 0) + 1
        return decode_sums(self, self.public, uploads, shape_of(self.public, self.round))[0]

    def deal(self):
        if self.steps < self.first:
            super().deal()
            return
        _, shares, proved = self.told(self.log, self.stories)
        start, before = self.stories[-1]
        if not self.story:
            self.story = proved_shares.new_start(self) if self.restarts else start, before
        log = (*self.log[:-1], moved(self.log[-1], self.field))
        link, others, lied = self.told(log, (*self.stories[:-1], self.story))
        self.story = self.story[0], chained(self.story[1], link)
        for j in self.peers:
            own, parts = (shares, proved) if j in self.half else (others, lied)
            self.send(j, "deal", (own[j], *parts[j]), round=self.steps)
        self.proved = (self.steps, proved)

    def told(self, log, stories):
        """A story: its digest, the shares of the newest step, and their proofs."""
        before = self.log, self.stories
        self.log, self.stories = log, stories
        shares = self.dealt(self.steps).shares
        parts, link = covert.step_proofs(self, self.public, self.steps, log[-1], shares)
        self.log, self.stories = before
        return link, shares, parts


class ForksLate(Forks):
    """Does so in the last step alone."""

    first = 3


class ForksTwoStarts(Forks):
    """Tells the second story as that of another start."""

    restarts = True


def test_two_stories_are_found_at_the_next_comparison_and_name_the_server():
    played = run(Forks, rounds=STEPS)
    assert named(played) == SERVER
    assert isinstance(played.error.evidence, TwoStories)
    assert f"step {STORY}" in str(played.error)
    assert played.found["forked"] <= STORY


def test_two_stories_in_the_last_step_are_found_before_test_rows_are_answered():
    """The last step is compared, too: without it predictions tell F_new F_train^T."""
    played = run(ForksLate, rounds=3, secure=True)
    assert named(played) == SERVER
    assert not any(bare_of(one) for one in played.server.test_scores)


def test_two_stories_in_the_last_step_are_found_without_test_rows_too():
    assert named(run(ForksLate, rounds=3)) == SERVER


def test_stories_of_two_starts_end_the_run_and_name_nobody():
    """A folder that was put back looks the same. What counts is that the fork ends."""
    played = run(ForksTwoStarts, rounds=STEPS)
    assert type(played.error) is RunError
    assert "two starts" in str(played.error)
    assert played.found["forked"] <= STORY


class TwoValues(Lies):
    """One root, and another c for one holder, which fits its share; its chain goes on with that."""

    chain_told: object = None

    def lie(self, j, parts):
        if j != self.victim:
            return parts
        values = parts[1]
        if self.chain_told is None:
            code = self.public.code
            # A polynomial that is zero at the victim's point: z - alpha.
            off = [(int(one) - int(code.alphas[j])) % code.field.modulus for one in code.alphas]
            sums = bare_of(values).astype(object) + np.array(off[: code.size])[:, None]
            bare = (sums % code.field.modulus).astype(self.field.dtype)
            values = Element(bare, None, SERVER, None, self.field)
        before = parts[6] if self.chain_told is None else self.chain_told
        made = self.signed(j, parts, values=values, before=before)
        self.chain_told = chained(before, link_of(made))
        return made


def test_one_root_with_two_c_is_two_stories():
    played = run(TwoValues, rounds=STEPS)
    assert named(played) == SERVER
    assert isinstance(played.error.evidence, TwoStories)


def test_no_label_is_answered_for_two_stories_where_a_crash_took_a_holder_back():
    """Else one holder that came back from its last checkpoint counts in two quorums."""
    holder = run(rounds=3, secure=True).judge.parties[VICTIM]
    assert bare_of(holder.named[0]) == (1, 2, 3, 4)  # the last one is of test rows
    holder.name_steps(4)
    holder.model = (*holder.model[:3], holder.no_steps)
    with pytest.raises(PrivacyError, match="a second sum of these rows is not given"):
        holder.name_steps(4)


def test_no_steps_are_taken_that_contradict_labels_that_were_answered_before_a_crash():
    """Else a server deals two steps at once, and has later labels of another story."""
    played = run(rounds=3)
    holder, server = played.judge.parties[VICTIM], played.server
    holder.history = covert.History(holder.history.root, no_chain(holder))  # as after a crash
    told = covert.caught_up(server, holder)
    assert (bare_of(told) == bare_of(holder.model[3])).all()
    server.log = (moved(server.log[0], server.field), *server.log[1:])
    with pytest.raises(PrivacyError, match="answered the batch of step 2 already"):
        covert.caught_up(server, holder)


# -- 17, 18: paths and signatures ------------------------------------------------------------------


class LongPath(Lies):
    """A path that is one longer."""

    def lie(self, j, parts):
        return self.signed(j, parts, siblings=self.path(bare_of(parts[3])))

    def path(self, rows):
        made = np.concatenate([rows, np.zeros((1, 32), np.uint8)])
        return Secret(made, None, SERVER, None)


class ShortPath(LongPath):
    """A path that is one shorter."""

    def path(self, rows):
        return Secret(rows[:-1].copy(), None, SERVER, None)


class OtherPath(LongPath):
    """A path that leads to another root."""

    def path(self, rows):
        return Secret(rows ^ 1, None, SERVER, None)


class Unsigned(Lies):
    """No valid signature."""

    def lie(self, j, parts):
        return (*parts[:-1], self.sign(self.key("other"), _nothing)) if j == self.victim else parts


def _nothing():
    return b""


@pytest.mark.parametrize("server", [LongPath, ShortPath, Unsigned])
def test_what_has_no_form_or_no_signature_is_a_dispute_that_names_nobody(server):
    played = run(server)
    assert type(played.error) is RunError
    assert f"Dispute of {SERVER} and " in str(played.error)


def test_a_path_to_another_root_names_the_server():
    played = run(OtherPath)
    assert named(played) == SERVER
    assert "not under the root" in str(played.error)


# -- 19: a step is left out ------------------------------------------------------------------------


class Withholds(Server):
    """Never deals one holder a step, also where that asks for it."""

    judge: object
    found: dict
    step: ClassVar[int] = 2
    victim: ClassVar[int] = VICTIM

    def send(self, to, kind, payload, **how):
        withheld = kind == "missed" or (kind == "deal" and self.steps == self.step)
        if to != self.victim or self.steps < self.step or not withheld:
            super().send(to, kind, payload, **how)


def test_a_holder_from_which_a_step_is_withheld_uploads_nothing_and_names_nobody():
    played = run(Withholds, rounds=4)
    assert played.error is None
    victim = played.judge.parties[VICTIM]
    assert victim.model[1:3] == (1, (3, 4))
    assert max(t for j, t in played.judge.plain if j == VICTIM) <= 2


# -- 21, 22: owners --------------------------------------------------------------------------------


class Dealer(Owner):
    """An owner; what it deals is changed by its class."""

    victim: ClassVar[int] = VICTIM


def wrong(monkeypatch, kind):
    """One share that a `Dealer` makes of data or a model is moved before it is committed to."""
    name = "encoded_constant" if kind == "model" else "encoded"
    honest = getattr(proved_shares, name)

    def encoded(owner, code, value, **how):
        made = honest(owner, code, value, **how)
        if not isinstance(owner, Dealer) or len(made[0].shape) < 2:
            return made
        return [
            moved(made[j], code.field, owner.index) if j == owner.victim else made[j]
            for j in range(code.parties)
        ]

    monkeypatch.setattr(proved_shares, name, encoded)


@pytest.mark.parametrize("kind", ["train-data", "model"])
def test_an_owner_that_deals_off_the_polynomial_is_named(monkeypatch, kind):
    wrong(monkeypatch, kind)
    played = run(liars={1: Dealer})
    assert named(played) == 1
    assert str(played.error).startswith(f"party 1 lied: '{kind}' of step 0 to party {VICTIM}: ")


def test_an_owner_whose_model_differs_between_data_points_is_named(monkeypatch):
    honest = proved_shares.encoded_constant

    def encoded(owner, code, value):
        if type(owner) is not Dealer or len(value.shape) < 2:
            return honest(owner, code, value)
        both = np.stack([bare_of(value), bare_of(moved(value, code.field, 1))])
        return proved_shares.encoded(owner, code, owner.element_of(both), apart=True)

    monkeypatch.setattr(proved_shares, "encoded_constant", encoded)
    monkeypatch.setattr(
        Dealer, "element_of", lambda self, a: Element(a, None, self.index, None, self.field),
        raising=False,
    )  # fmt: skip
    played = run(liars={1: Dealer}, segments=2, parties=8)
    assert named(played) == 1
    assert str(played.error).endswith(
        "the data points hold different arrays. The evidence is under its signature"
    )


class TwoRoots(Owner):
    """Deals half of the holders another sharing of the same data."""

    start_once: ClassVar[bool] = True
    made: tuple = ()

    def share(self, kind, shares):
        self.made = shares
        if not self.twice:
            super().share(kind, shares)

    twice = False

    def share_own(self):
        own, self.share_honest = proved_shares.new_start, super().share_own
        start = own(self)
        found = {}
        try:
            if self.start_once:
                proved_shares.new_start = lambda party: start if party is self else own(party)
            for turn in range(2):
                self.share = lambda kind, shares, turn=turn: found.setdefault(kind, []).append(
                    shares
                )
                self.share_honest()
        finally:
            proved_shares.new_start = own
            del self.share
        half = self.public.code.parties // 2
        for kind, (one, other) in found.items():
            Owner.share(self, kind, [*one[:half], *other[half:]])


class TwoRootsTwoStarts(TwoRoots):
    """Does so with another start for each."""

    start_once = False


def test_an_owner_with_two_roots_is_named_by_the_echo():
    played = run(liars={1: TwoRoots})
    assert named(played) == 1
    assert isinstance(played.error.evidence, TwoStories)
    assert not played.judge.plain  # nobody has uploaded


def test_an_owner_with_two_roots_of_two_starts_ends_the_run_in_set_up():
    played = run(liars={1: TwoRootsTwoStarts})
    assert type(played.error) is RunError
    assert "two starts" in str(played.error)
    assert not played.judge.plain


class TwoKeys(TwoRoots):
    """Does so by two verifying keys, one for each half."""

    other: object = None

    def broadcast(self, kind, payload, to=None):
        if kind != "identity":
            super().broadcast(kind, payload, to)
            return
        self.other = self.key("other")
        told = {True: self.verifying_key(self.other), False: payload}
        for n in self.peers:
            if n != self.index:
                self.send(n, kind, told[n > 3])

    def sign(self, key, function, *values):
        other = function is statement_text and values[3] > 3
        return super().sign(self.other if other else key, function, *values)


def test_two_keys_of_a_run_without_a_manifest_end_in_a_dispute_of_which_both_may_be_honest():
    played = run(liars={1: TwoKeys})
    assert type(played.error) is RunError
    assert str(played.error).endswith("one of both errs, or 1 gave them two keys")


# -- 23: holders that complain ---------------------------------------------------------------------


class FalseStory(Owner):
    """Shows others a story with another root than it was dealt."""

    kind: ClassVar[str] = "story"

    def broadcast(self, kind, payload, to=None):
        if kind == self.kind:
            payload = self.altered(payload)
        super().broadcast(kind, payload, to)

    def altered(self, payload):
        step, shown, signature = payload
        return step, self.other(shown), signature

    def other(self, shown):
        rows = bare_of(shown).copy()
        rows[4] ^= 1
        return Secret(rows, None, self.index, None)


class FalseEcho(FalseStory):
    """Does so in set-up."""

    def broadcast(self, kind, payload, to=None):
        super().broadcast(kind, payload, to)
        if kind == "echo":
            shown, signatures = zip(*(one[2] for one in self.dealings), strict=True)
            altered = [self.other(one) for one in shown], list(signatures)
            super().broadcast("echoed", altered, to)

    def altered(self, payload):
        return Secret(bare_of(payload) ^ 1, None, self.index, None)

    kind = "echo"


class SilentEcho(FalseEcho):
    """Shows a false digest, and nothing to those that see it."""

    def broadcast(self, kind, payload, to=None):
        if kind == "echo":
            payload = self.altered(payload)
        Owner.broadcast(self, kind, payload, to)


def test_a_holder_that_shows_a_false_digest_and_nothing_else_ends_in_a_dispute():
    played = run(liars={VICTIM: SilentEcho})
    assert type(played.error) is RunError
    assert f"and {VICTIM}: one of both errs, or was killed" in str(played.error)
    assert {n for n, _ in played.judge.plain} <= {VICTIM}  # who knows of nothing


@pytest.mark.parametrize("liar", [FalseStory, FalseEcho])
def test_a_holder_that_shows_a_false_story_names_nobody(liar):
    played = run(liars={VICTIM: liar}, rounds=STEPS)
    assert type(played.error) is RunError
    assert f"and {VICTIM}: one of both errs" in str(played.error)
    assert "lacks the dealer's signature" in str(played.error)


class BreaksChain(Lies):
    """Deals the third step as one that goes on with other steps than were dealt."""

    step = 3

    def lie(self, j, parts):
        return self.signed(j, parts, before=Secret(bare_of(parts[6]) ^ 1, None, SERVER, None))


def test_a_step_that_goes_on_with_other_steps_names_the_server():
    played = run(BreaksChain, rounds=4)
    assert named(played) == SERVER
    assert "goes on with other steps than it was told" in str(played.error)
