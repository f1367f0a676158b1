"""The bijection of the proof on the real code, and the real code against the proof's formulas."""

from dataclasses import dataclass

import numpy as np
import pytest

from securevfl.audit.coupled_runs import couple
from securevfl.audit.proof.coupling import correction, enlarged, mask_shift
from securevfl.audit.proof.linear_algebra import independent_rows, solve_left
from securevfl.audit.proof_deviations import deviations
from securevfl.audit.recorded_runs import run_factory
from securevfl.engine import wire
from securevfl.engine.conditions import Conditions
from securevfl.errors import ConfigurationError
from securevfl.privacy.coalition import Coalition
from securevfl.protocols.base.registry import get_protocol

P31, P61 = 2**31 - 1, 2**61 - 1
FEDVS = get_protocol("fedvs")
SHAPES = [(3, 1, 1), (5, 2, 1), (6, 1, 2), (9, 3, 2)]  # N, K, T


def features_of(N, K, seed, columns=2):
    rng = np.random.default_rng(seed)
    return [rng.random((2 * K + 1, columns)) for _ in range(N)]


def options_of(K, T, p, **more):
    return {"segments": K, "privacy": T, "prime": p, "rounds": 3, "width": 3, **more}


def coalitions(T):
    C = tuple(range(T))
    return Coalition(server=True), Coalition(clients=C), Coalition(server=True, clients=C)


@pytest.mark.parametrize("p", [P31, P61])
@pytest.mark.parametrize(("N", "K", "T"), SHAPES)
def test_exchanged_clients_in_training_give_identical_views(N, K, T, p):
    """Real training: the models move by real gradients, and only the tapes are chosen."""
    features = features_of(N, K, 1)
    first = run_factory(FEDVS, features, **options_of(K, T, p))
    a, b = N - 1, N - 2
    features[a], features[b] = features[b], features[a]
    second = run_factory(FEDVS, features, exchanged={a: b, b: a}, **options_of(K, T, p))
    for coalition in coalitions(T):
        coupled = couple(first, second, coalition)
        assert coupled.differences == ()
        assert coupled.moved > 20
        assert coupled.elements > 20


@dataclass(frozen=True)
class LateSharer(Conditions):
    """One client shares its model late in round 2."""

    late: int = 0

    def delay(self, seed, party, round, activity):
        return 3 * 10**9 if (activity, party, round) == ("share", self.late, 2) else 0


@pytest.mark.parametrize(("N", "K", "T"), SHAPES[1:])
def test_views_are_identical_where_a_client_has_no_term_in_a_sum(N, K, T):
    features = features_of(N, K, 1)
    waits = {"share_timeout": 1.0, "result_timeout": 9.0, "cohorts": 0}
    options = options_of(K, T, P61, **waits)
    conditions = LateSharer(late=N - 3)
    first = run_factory(FEDVS, features, conditions=conditions, **options)
    one = first.run()
    missing = [set(range(N)) - set(attempt.sharers) for _, attempt in one.attempts.values()]
    assert missing == [set(), {N - 3}, set()]
    assert list(deviations(one)) == []
    a, b = N - 1, N - 2
    features[a], features[b] = features[b], features[a]
    second = run_factory(FEDVS, features, exchanged={a: b, b: a}, conditions=conditions, **options)
    for coalition in coalitions(T):
        coupled = couple(first, second, coalition, one)
        assert coupled.differences == ()
        assert coupled.moved > 20


def arbitrary(N, K, p, seed, honest, *, like=None):
    """Features and models of the honest clients, with the sums of another run if given."""
    features = features_of(N, K, seed, columns=3)
    if like is not None:
        for n in set(range(N)) - set(honest):
            features[n] = features_of(N, K, 5, columns=3)[n]
    made = run_factory(FEDVS, features, **options_of(K, 1, p))
    field = made.protocol.public.field
    models = {n: {r: field.random((4, 3)) for r in (1, 2, 3)} for n in range(N)}
    if like is None:
        return features, models, made.data
    _, other_models, other_data = like
    for n in set(range(N)) - set(honest):
        models[n] = other_models[n]
    X = np.concatenate([made.data[n].reshape(-1, 4) for n in honest], axis=1)
    Y = np.concatenate([other_data[n].reshape(-1, 4) for n in honest], axis=1)
    rows = independent_rows(field, X)
    columns = independent_rows(field, np.ascontiguousarray(X[rows].T))
    for r in (1, 2, 3):
        W = np.concatenate([models[n][r] for n in honest])
        V = np.concatenate([other_models[n][r] for n in honest])
        W[columns] = 0
        missing = field.subtract(field.matmul(Y, V), field.matmul(X, W))[rows]
        W[columns] = solve_left(field, X[np.ix_(rows, columns)], missing)
        assert np.array_equal(field.matmul(X, W), field.matmul(Y, V))
        for i, n in enumerate(honest):
            models[n][r] = W[4 * i : 4 * i + 4]
    return features, models, made.data


@pytest.mark.parametrize("p", [P31, P61])
@pytest.mark.parametrize(("N", "K", "C"), [(4, 1, ()), (4, 1, (2,)), (6, 2, (0,)), (6, 2, (5,))])
def test_arbitrary_secrets_with_equal_sums_give_identical_views(N, K, C, p):
    """Models are any field elements here: nothing of the proof rests on small numbers."""
    honest = [n for n in range(N) if n not in C]
    one = arbitrary(N, K, p, 5, honest)
    two = arbitrary(N, K, p, 6, honest, like=one)
    assert any(not np.array_equal(one[0][n], two[0][n]) for n in honest)
    factories = [run_factory(FEDVS, x, m, **options_of(K, 1, p)) for x, m, _ in (one, two)]
    for coalition in (Coalition(server=True, clients=C), Coalition(clients=C)):
        assert couple(*factories, coalition).differences == ()


def test_clients_without_the_server_see_equal_shares_of_any_secrets():
    """Without equal sums only what follows from the sums differs: the gradient."""
    one = arbitrary(4, 1, P61, 5, [1, 2, 3])
    two = arbitrary(4, 1, P61, 6, [1, 2, 3])
    two[0][0], two[1][0] = one[0][0], one[1][0]
    factories = [run_factory(FEDVS, x, m, **options_of(1, 1, P61)) for x, m, _ in (one, two)]
    differences = couple(*factories, Coalition(clients=(0,))).differences
    assert differences
    # The gradient differs first. One of zeros is no step, as later words of both sides then say.
    assert "'gradient'" in differences[0]
    assert not any(
        kind in words for words in differences for kind in ("-data'", "'model'", "'key'")
    )


def test_secrets_with_other_sums_have_no_coupling():
    one, two = arbitrary(4, 1, P61, 5, [0, 1, 2, 3]), arbitrary(4, 1, P61, 6, [0, 1, 2, 3])
    factories = [run_factory(FEDVS, x, m, **options_of(1, 1, P61)) for x, m, _ in (one, two)]
    with pytest.raises(ConfigurationError, match="differ in the sums that are decoded"):
        couple(*factories, Coalition(server=True))


def test_more_than_t_clients_have_no_coupling():
    features = features_of(4, 1, 1)
    made = run_factory(FEDVS, features, **options_of(1, 1, P61))
    with pytest.raises(ConfigurationError, match="2 clients collude and T = 1"):
        couple(made, made, Coalition(clients=(0, 1)))


def test_plain_uploads_have_no_coupling_with_the_server():
    """The bijection needs rho to move: without it the server's views differ."""
    features = features_of(4, 1, 1)
    first = run_factory(FEDVS, features, **options_of(1, 1, P61, masked=False))
    features[3], features[2] = features[2], features[3]
    options = options_of(1, 1, P61, masked=False)
    second = run_factory(FEDVS, features, exchanged={3: 2, 2: 3}, **options)
    for coalition in (Coalition(server=True), Coalition(server=True, clients=(0,))):
        assert any("'embedding'" in words for words in couple(first, second, coalition).differences)


@pytest.mark.parametrize("C", [(), (0,), (3,)])
def test_the_correction_is_the_quotient_by_the_vanishing_polynomials(C):
    code = run_factory(FEDVS, features_of(5, 2, 1), **options_of(2, 1, P31)).protocol.public.code
    field, A = code.field, enlarged(code, C)
    s = field.random((2, 2, 2))  # K + T - 1 = 2 coefficients
    shift = mask_shift(code, A, s)
    assert not shift[list(A)].any()
    values = field.multiply(code.vanishing[:, None, None], shift)
    assert np.array_equal(correction(code, C, values, np.zeros_like(values)), s)


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize(("N", "K", "T"), SHAPES)
def test_every_message_is_what_the_proof_says(N, K, T, masked):
    made = run_factory(FEDVS, features_of(N, K, 2), **options_of(K, T, P61, masked=masked))
    assert list(deviations(made.run())) == []


def tampered(change):
    """A recorded run whose transcript is changed before it is looked at."""
    recorded = run_factory(FEDVS, features_of(4, 1, 2), **options_of(1, 1, P31)).run()
    change(recorded)
    return list(deviations(recorded))


@pytest.mark.parametrize("kind", ["train-data", "model", "key", "embedding"])
def test_one_changed_element_is_found(kind):
    def change(recorded):
        columns = recorded.transcript.columns()
        row = int(np.flatnonzero(columns["kind"] == kind)[1])
        payload = recorded.transcript.payloads[row].copy()
        payload[0, 0] ^= 1
        recorded.transcript.payloads[row] = payload

    found = tampered(change)
    assert len(found) == 1
    named = {"embedding": "the upload", "key": "keys that are not the proof's"}
    assert named.get(kind, f"the {kind}") in found[0]


def test_a_mask_that_is_drawn_twice_is_found():
    def change(recorded):
        tape = recorded.tapes[0]
        tape.draws[2] = tape.draws[1].copy()

    assert any("draws the same mask twice" in words for words in tampered(change))


def test_too_few_sharers_are_found():
    def change(recorded):
        from dataclasses import replace

        for row, payload in enumerate(recorded.transcript.payloads):
            if hasattr(payload, "sharers"):
                recorded.transcript.payloads[row] = replace(payload, sharers=payload.sharers[:2])

    assert any("2 sharers" in words for words in tampered(change))


def test_a_key_that_is_drawn_twice_or_not_at_all_is_found():
    def twice(recorded):
        recorded.keys[0][-1] = recorded.keys[1][0]

    assert "a key is drawn twice" in tampered(twice)
    assert any("3 keys are drawn" in one for one in tampered(lambda run: run.keys[1].pop()))


def test_a_label_that_leaves_out_what_was_announced_is_found():
    class Short(FEDVS):
        """FedVS whose label says the rows, and not the sharers."""

        def told(self, round, batch, attempt):
            return wire.encode((round, batch))

    made = run_factory(Short, features_of(4, 1, 2), **options_of(1, 1, P31))
    assert any("the label of the masks is not all" in one for one in deviations(made.run()))
