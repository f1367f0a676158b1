"""Server with T clients: everything from plain FedVS, nothing from masked FedVS."""

import numpy as np
import pytest

from securevfl.audit.attacks import recovery
from securevfl.audit.attacks.recovery import Round, recover
from securevfl.audit.recorded_runs import RunFactory, run_factory
from securevfl.audit.share_recovery import coalitions, pool_shares, recover_by_server
from securevfl.data import load_dataset
from securevfl.errors import ConfigurationError, FieldError
from securevfl.field import LagrangeCode, PrimeField
from securevfl.protocols.base.registry import get_protocol, make_config

P31, P61 = 2**31 - 1, 2**61 - 1
FEDVS = get_protocol("fedvs")


def trained(N, d, rows, K, T, p, masked, *, rounds=8, width=8):
    rng = np.random.default_rng(1)
    features = [rng.random((rows, d)) for _ in range(N)]
    options = {"segments": K, "privacy": T, "prime": p, "masked": masked}
    return run_factory(FEDVS, features, rounds=rounds, width=width, **options).run()


@pytest.mark.parametrize("p", [P31, P61])
@pytest.mark.parametrize(
    ("N", "d", "rows", "K", "T"),
    [(4, 7, 60, 1, 1), (5, 5, 120, 2, 1), (5, 4, 60, 1, 2), (7, 3, 120, 2, 2)],
)
def test_plain_uploads_give_everything_away_and_masked_ones_nothing(N, d, rows, K, T, p):
    plain = recover_by_server(trained(N, d, rows, K, T, p, False), tuple(range(T)))
    assert (plain.has_solution, plain.data, plain.models) == (True, 1.0, 1.0)
    masked = recover_by_server(trained(N, d, rows, K, T, p, True), tuple(range(T)))
    assert (masked.has_solution, masked.data, masked.models) == (False, 0.0, 0.0)


def test_too_few_equations_are_refused():
    recorded = trained(4, 7, 20, 1, 1, P31, False)
    with pytest.raises(ConfigurationError, match="needs 24 rows of each segment"):
        recover_by_server(recorded, (0,))


def test_too_few_rounds_are_refused():
    recorded = trained(4, 7, 60, 1, 1, P31, False, rounds=5)
    with pytest.raises(ConfigurationError, match="rounds x h of 48"):
        recover_by_server(recorded, (0,))


def test_another_number_of_clients_is_refused():
    code = trained(4, 2, 20, 1, 1, P31, False, rounds=1).code
    with pytest.raises(ConfigurationError, match="2 clients collude"):
        recover(code, (0, 1), np.zeros((2, 9, 2), np.uint32), [Round({}, np.zeros((2, 2, 2)))])


@pytest.mark.parametrize("masked", [False, True])
def test_real_digits(masked):
    """Eight clients train on digits; the server and client 0 know the rest, unless masked."""
    data = load_dataset("digits", parties=8)
    options = {
        "segments": 2, "prime": P31, "data_bits": 8, "model_bits": 8, "weight_bound": 4.0,
        "degree": 1, "rounds": 4, "width": 48, "batch": len(data.train_labels), "masked": masked,
        "sum_budget": 0.0,
    }  # fmt: skip
    recorded = RunFactory(FEDVS(make_config(FEDVS, options), data, seed=0)).run()
    found = recover_by_server(recorded, (0,))
    assert found.elements > 90_000
    assert (found.has_solution, found.data, found.models) == (
        (False, 0, 0) if masked else (True, 1, 1)
    )


@pytest.mark.parametrize(("N", "K", "T"), [(7, 2, 1), (9, 3, 2), (5, 1, 1)])
def test_pooled_shares_of_a_run(N, K, T):
    recorded = trained(N, 2, 4 * K, K, T, P61, True, rounds=2)
    sizes = []
    for clients in coalitions(recorded):
        pooled = pool_shares(recorded, clients, N - 1)
        assert pooled.exact
        assert pooled.combinations == len(clients) - T
        assert pooled.model == (len(clients) > T)
        assert pooled.data == (len(clients) == K + T)
        sizes.append(len(clients))
    assert sizes == list(range(T, K + T + 1))


def test_a_search_for_points_ends_where_interpolation_is_none(monkeypatch):
    """verify ran until its time limit, when a changed library interpolated to zeros."""
    code = LagrangeCode(PrimeField(97), parties=8, segments=2, privacy=1)
    assert len(recovery._spare_points(code, (3,))) == 2
    monkeypatch.setattr(
        *(recovery, "interpolation_matrix"),
        lambda field, nodes, points: np.zeros((len(points), len(nodes)), field.dtype),
    )
    with pytest.raises(FieldError, match=r"more than 2 zeros, where K = 2 and T = 1"):
        recovery._spare_points(code, (3,))
