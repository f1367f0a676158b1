"""Residues of uploads that were made of known masks."""

import numpy as np
import pytest

from securevfl.audit.games.upload_residues import at_data_points, spread, unwanted
from securevfl.field import LagrangeCode, PrimeField

P31, P61 = 2**31 - 1, 2**61 - 1


@pytest.fixture(params=[P31, P61], ids=["2^31-1", "2^61-1"])
def field(request):
    return PrimeField(request.param)


@pytest.mark.parametrize(("K", "T"), [(1, 1), (2, 1), (1, 2), (3, 2)])
def test_unwanted_blocks_are_the_masks_of_uploads_without_secrets(field, K, T):
    code = LagrangeCode(field, parties=2 * (K + T) + 1, segments=K, privacy=T)
    count, N = K + 2 * T - 1, code.parties
    rho = field.random((count, 2, 3))
    alphas = field.elements(list(code.alphas))
    powers = np.stack([field.power(alphas, i) for i in range(count)], axis=1)
    values = field.matmul(powers, rho.reshape(count, -1)).reshape(N, 2, 3)
    hidden = field.multiply(code.vanishing[:, None, None], values)
    sums = field.random((K, 2, 3))
    uploads = field.add(hidden, spread(code, sums, range(N)))
    found = unwanted(code, dict(enumerate(uploads)))
    assert np.array_equal(found, rho)
    beta = code.betas[0]
    wanted = sum(int(c) * beta**i for i, c in enumerate(rho[:, 0, 0])) % field.modulus
    assert int(at_data_points(code, found)[0, 0, 0]) == wanted
