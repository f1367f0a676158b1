"""Uploads at the level active: wrong ones are corrected and named, and nobody else is."""

import dataclasses
import itertools
import math
from typing import ClassVar

import numpy as np
import pytest

import securevfl.protocols.base.levels.signed_uploads as uploads
from securevfl.active.judge import judge, read_evidence
from securevfl.active.tags import signed_tags
from securevfl.active.uploads import are_named, evidence_of
from securevfl.errors import ConfigurationError, CorruptResultsError, RunError
from securevfl.field import LagrangeCode, PrimeField
from securevfl.field.lagrange import interpolation_matrix
from securevfl.field.prss import mask_streams
from securevfl.protocols.base.options import spare
from securevfl.protocols.base.registry import find_protocols, make_config
from securevfl.protocols.coded_split import CodedSplit
from securevfl.protocols.coded_split.algorithm import Owner
from securevfl.protocols.coded_split.options import CodedSplitConfig
from securevfl.protocols.coded_split.parameters import check_numbers, upload_degree
from securevfl.runs.evidence import keep_wrong_uploads
from securevfl.verified import Element, Secret, bare_of
from tests.active.relations import relations
from tests.active.test_coded_split import SMALL, keys_of, named
from tests.lies.coded_split_holders import OfKeys
from tests.lies.coded_split_stage import play

LIAR = 2


def run(liars=None, parties=8, rounds=2, **options):
    options = {"security": "active", "degree": 1, "rounds": rounds, **options}
    return play(SMALL, None, liars=liars, parties=parties, **options)


def corrected(played):
    """Parties that the server corrected, by round."""
    return [e.fields["clients"] for e in played.events if e.name == "corrected"]


class Wrong(Owner):
    """Uploads one wrong element in every round, and signs it."""

    def upload(self, label, rows, round):
        self.turned = True
        super().upload(label, rows, round)
        self.turned = False

    turned: ClassVar[bool] = False

    def sign(self, key, function, *values):
        if function is uploads.upload_text and self.turned:
            *said, Y, run = values
            values = (*said, self.other(Y), run)
        return super().sign(key, function, *values)

    def send(self, to, kind, payload, **how):
        if kind == "embedding":
            chain, Y, signature = payload
            payload = chain, self.other(Y), signature
        super().send(to, kind, payload, **how)

    def other(self, Y):
        array = bare_of(Y).copy()
        array[-1, -1] = (int(array[-1, -1]) + 1) % self.field.modulus
        return Element(array, None, self.index, None, self.field)


class Unsigned(Owner):
    """Uploads what it did not sign."""

    def send(self, to, kind, payload, **how):
        if kind == "embedding":
            chain, Y, signature = payload
            payload = chain, Y + Y, signature
        super().send(to, kind, payload, **how)


class OtherLabel(Owner):
    """Uploads under another label, which it signs."""

    def upload(self, label, rows, round):
        before = self.history
        self.history = dataclasses.replace(before, name=before.root)
        super().upload(label, rows, round)
        self.history = before


# -- 24: wrong uploads -----------------------------------------------------------------------------


def test_a_wrong_upload_is_corrected_and_names_its_sender_alone(tmp_path):
    honest, played = run(tolerate_corrupt=1), run({LIAR: Wrong}, tolerate_corrupt=1)
    assert played.error is None
    assert corrected(played) == [[LIAR], [LIAR]]
    assert all((a == b).all() for a, b in zip(honest.judge.means, played.judge.means, strict=True))
    keys, (evidence,) = keys_of(played), evidence_of(played.server)
    assert keep_wrong_uploads(honest.server, tmp_path) == []
    (path,) = keep_wrong_uploads(played.server, tmp_path)
    assert "tells" in path.read_text()
    again = read_evidence(tmp_path / "evidence.json")
    assert judge(again, keys).party == judge(evidence, keys).party == LIAR
    frames(evidence, keys)


def frames(evidence, keys):
    """What a judge makes of evidence that was changed: nothing."""
    own, code = evidence.uploads, evidence.code
    turned = [dataclasses.replace(one, values=one.values + 1) if one.party == 1 else one
              for one in own]  # fmt: skip
    fewer = LagrangeCode(code.field, parties=code.parties, segments=1, privacy=1, degree=3)
    for changed in (
        {"party": 1},
        {"party": 1, "uploads": tuple(turned)},
        {"uploads": own[:-1]},
        {"uploads": (*own, own[0])},
        {"code": fewer},
        {"chain": bytes([1] * 32)},
        {"name": bytes(32)},
        {"told": b"other rows"},
        {"run": bytes(32)},
    ):
        assert judge(dataclasses.replace(evidence, **changed), keys) is None, changed


def test_a_wrong_upload_is_detected_without_spare_ones_and_names_nobody():
    played = run({LIAR: Wrong})
    assert type(played.error) is CorruptResultsError
    assert "whose are wrong nobody can tell" in str(played.error)
    assert corrected(played) == []


@pytest.mark.parametrize("liar", [Unsigned, OtherLabel])
def test_what_is_not_signed_under_the_label_of_most_does_not_count(liar):
    honest, played = run(tolerate_corrupt=1), run({LIAR: liar}, tolerate_corrupt=1)
    assert played.error is None
    assert corrected(played) == []
    assert {e.fields["party"] for e in played.events if e.name == "refused"} == {LIAR}
    assert all((a == b).all() for a, b in zip(honest.judge.means, played.judge.means, strict=True))


def test_two_liars_that_agree_on_another_polynomial_are_named_and_not_the_honest():
    """With A = 1 they would outvote an honest holder: R - 1 honest ones and they are R + 1."""

    class Agrees(Wrong):
        def other(self, Y):
            code, field = self.public.code, self.field
            believed = [n for n in range(11) if n not in (2, 3)][: self.public.threshold - 1]
            nodes = [*(code.alphas[n] for n in believed), code.betas[0]]
            weight = interpolation_matrix(field, nodes, [code.alphas[self.index]])[0, -1]
            made = field.add(bare_of(Y), np.full(Y.shape, weight, field.dtype))
            return Element(made, None, self.index, None, field)

    played = run({2: Agrees, 3: Agrees}, parties=11, privacy=2, tolerate_corrupt=2, rounds=1)
    assert corrected(played) == [[2, 3]]
    keys = keys_of(played)
    assert [judge(one, keys).party for one in evidence_of(played.server)] == [2, 3]


def test_wrong_ones_are_named_only_where_two_polynomials_could_not_be():
    """T + d <= n - R: two polynomials below degree R agree in fewer than R points."""
    code = LagrangeCode(PrimeField(97), parties=12, segments=1, privacy=2, degree=3)  # R = 7
    assert [are_named(d, 11, code) for d in range(4)] == [True, True, True, False]
    assert [are_named(d, 9, code) for d in range(2)] == [True, False]
    assert not are_named(0, 8, code)


# -- keys of masks ---------------------------------------------------------------------------------


class Tags(Owner):
    """Signs another tag of a key for each holder that does not have the key."""

    def share(self, kind, shares):
        if kind == uploads.TAGS:
            prss, every, start = self.public.prss, bare_of(shares[0][0]), shares[0][1]
            honest, shares = shares, []
            for j, parts in enumerate(honest):
                lacks = [j not in prss.holders[n] for n in prss.dealt(self.index)]
                told = np.where(np.array(lacks)[:, None], every ^ 1, every)
                rows = [Secret(row, None, self.index, None) for row in told]
                own = uploads._keys_of(self.public.code, self.index)
                made = signed_tags(self, own, self.signs, start, rows)
                shares.append(made[j] if any(lacks) else parts)
        super().share(kind, shares)


def test_two_stories_of_tags_name_who_drew_the_keys():
    assert named(run({0: Tags})) == 0


def test_keys_of_masks_that_differ_end_in_the_dispute_of_a_pair_before_any_upload():
    """Without tags the receiver of another key is corrected, and is honest."""
    played = run({0: OfKeys}, tolerate_corrupt=1)
    assert type(played.error) is RunError
    assert "are not those of the keys that it sent. Dispute of 0 and " in str(played.error)
    assert not played.judge.plain


# -- two stories -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("N", "K", "T"), [(8, 1, 1), (9, 1, 1), (10, 2, 1), (11, 1, 2)])
def test_no_two_groups_of_honest_holders_show_a_sum_each(N, K, T):
    """With T holders' keys known, uploads of n others have n - u relations, at every split."""
    config = CodedSplitConfig(segments=K, privacy=T, security="active")
    degree = upload_degree(config, N)
    field = PrimeField(2**31 - 1)
    code = LagrangeCode(field, parties=N, segments=K, privacy=T, degree=degree)
    assert 2 * code.recovery_threshold(degree) > N + T + 2 * (K - 1)
    honest = tuple(range(T, N))
    half = len(honest) // 2
    for one in itertools.islice(itertools.combinations(honest, half), 0, None, 5):
        other = tuple(j for j in honest if j not in one)
        assert min(relations(code, degree, group) for group in (one, other)) == 0
    u = mask_streams(code, degree)
    assert relations(code, degree, honest) == max(0, len(honest) - u)


@pytest.mark.parametrize("N", [4, 8, 9, 28, 100])
def test_the_price_in_stragglers_is_that_of_the_page(N):
    config = CodedSplitConfig(security="active")
    R = upload_degree(config, N) + 1
    assert max(4, (N + 1) // 2 + 1) == R
    assert spare(config, N, R) == min(1, N - R)
    assert math.ceil((N + 1 + 1) / 2) <= R


# -- options ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"privacy": 2, "tolerate_corrupt": 1}, "T liars can have an honest holder named"),
        ({"release": True}, "has no release"),
        ({"masks": "dealt"}, "no dealt masks"),
        ({"security": "malicious"}, "'semi-honest', 'covert' or 'active'"),
    ],
)
def test_what_the_level_cannot_promise_is_refused(options, why):
    with pytest.raises(ConfigurationError, match=why):
        make_config(CodedSplit, {"security": "active", **options})


def test_a_method_without_levels_refuses_them_by_name():
    for name, cls in find_protocols().items():
        if "security" not in cls.Config.model_fields:
            with pytest.raises(ConfigurationError, match=f"{name}: there is no option security"):
                make_config(cls, {"security": "active"})


def test_too_few_holders_for_the_level_are_refused_and_fewer_than_detect_are_told():
    config = CodedSplitConfig(security="active", tolerate_corrupt=1)
    with pytest.raises(ConfigurationError, match=r"R \+ 2A = 3\(K\+T-1\)\+1\+2A = 6 uploads"):
        check_numbers(config, 5)
    played = run(parties=4)
    (told,) = [e.fields["text"] for e in played.events if e.name == "notice"]
    assert "1 holders that upload wrong values together move the sums unnoticed" in told
