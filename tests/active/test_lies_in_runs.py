"""Lies of parties of whole runs, at the levels: nothing is gained, and nobody honest is named."""

import pytest

from securevfl.active.judge import LieFoundError, judge
from securevfl.active.uploads import evidence_of
from securevfl.engine.network import SERVER
from securevfl.errors import RunError, StalledError
from securevfl.protocols.coded_split.algorithm import Owner
from tests.active.test_coded_split import SMALL, VICTIM, Forks, keys_of, moved, run
from tests.lies import coded_split_holders as holders
from tests.lies.fedvs_sums import HelpedTwoSharers, TwoSharers
from tests.lies.stage import play as play_fedvs

ACTIVE = {"security": "active", "tolerate_corrupt": 1}
LIAR = 2


def names(played):
    """Parties that a judge names by what the run has kept."""
    if isinstance(played.error, LieFoundError):
        return {judge(played.error.evidence, keys_of(played)).party}
    if played.server.public.active:
        return {judge(one, keys_of(played)).party for one in evidence_of(played.server)}
    return set()


class Short(Owner):
    """Uploads one column less."""

    def send(self, to, kind, payload, **how):
        if kind == "embedding":
            chain, Y, signature = payload
            payload = chain, Y[:, :-1], signature
        super().send(to, kind, payload, **how)


class OtherShape(Owner):
    """Deals one holder a share of its data with a column less."""

    def share(self, kind, shares):
        if kind == "train-data":
            own, *parts = shares[VICTIM]
            shares = [*shares[:VICTIM], (own[:, :-1], *parts), *shares[VICTIM + 1 :]]
        super().share(kind, shares)


class Complains(Owner):
    """Alters the share of a step that it was dealt, and has it checked."""

    def check_step(self, step, share, parts):
        return super().check_step(step, moved(share, self.field, self.index), parts)


@pytest.mark.parametrize("liar", [holders.Skips, holders.Twice])
def test_who_computes_on_another_share_than_it_was_dealt_is_corrected_and_named(liar):
    honest, played = run(**ACTIVE), run(liars={LIAR: liar}, **ACTIVE)
    assert played.error is None
    assert names(played) == {LIAR}
    assert all((a == b).all() for a, b in zip(honest.judge.means, played.judge.means, strict=True))


@pytest.mark.parametrize("liar", [Short, holders.Leaves, holders.AsksAgain, holders.AsksNonsense])
def test_what_is_no_upload_changes_nothing_and_names_nobody(liar):
    honest, played = run(**ACTIVE), run(liars={LIAR: liar}, **ACTIVE)
    assert played.error is None
    assert names(played) == set()
    assert all((a == b).all() for a, b in zip(honest.judge.means, played.judge.means, strict=True))


@pytest.mark.parametrize(
    ("liar", "at", "error"),
    [(holders.NoKeys, 0, StalledError), (OtherShape, 1, RunError), (Complains, LIAR, RunError)],
)
@pytest.mark.parametrize("level", [{"security": "covert"}, ACTIVE])
def test_who_ends_a_run_has_nobody_named(liar, at, error, level):
    played = run(liars={at: liar}, **level)
    assert type(played.error) is error
    assert names(played) == set()
    if error is RunError:
        assert "Dispute of" in str(played.error)


def test_two_stories_give_no_sum_at_the_level_active_and_name_the_server():
    played = run(Forks, rounds=7, security="active")
    assert played.found == {}
    assert names(played) <= {SERVER}


@pytest.mark.parametrize(("server", "options"), [
    (HelpedTwoSharers, {"parties": 9}),
    (TwoSharers, {"parties": 8}),
])  # fmt: skip
def test_two_sets_of_sharers_decode_at_the_level_covert_by_no_half_with_a_helper(server, options):
    """By R of the semi-honest level each half is a sum; R' is more than a half and the helper."""
    assert error_of(server, **options) < 1e-3
    assert error_of(server, security="covert", **options) is None


def error_of(server, **options):
    """Error of the victim's embedding that a lying server of fedvs has; None for no sum."""
    waits = {"share_timeout": 3.0, "result_timeout": 3.0}

    class Patient(server):
        def sums(self, uploads):
            enough = len(uploads) >= self.public.results_needed
            return super().sums(uploads) if enough else None

    return play_fedvs(SMALL, Patient, degree=1, hidden=4, **waits, **options).found.get("error")
