"""Networks and losses that couple the rows of a batch are found, whatever noise is added later."""

import pytest

from securevfl.audit.noise.rows_apart import coupled_rows
from securevfl.testing.runs import make


@pytest.mark.parametrize("name", ["split", "vafl"])
def test_other_methods_have_rows_alone_too(name):
    for asset in ("features", "labels"):
        assert list(coupled_rows(make(name), asset)) == []
