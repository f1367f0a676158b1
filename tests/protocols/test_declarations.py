"""What declared messages disclose, and arrays of their payloads."""

import numpy as np
import pytest

from securevfl.protocols.base.card import Exposure
from securevfl.protocols.base.messages import MessageSpec, array_of, exposures_of
from securevfl.protocols.base.registry import find_protocols
from securevfl.testing.runs import make


def test_exposures_are_those_messages_that_name_rows():
    shown = exposures_of(
        [
            MessageSpec("a", "client", "server", "embedding", row_by_row=True),
            MessageSpec("b", "client", "server", "embedding"),
            MessageSpec("c", "client", "server", "ciphertext", row_by_row=True),
            MessageSpec("d", "server", "client", "gradient", row_by_row=True),
            MessageSpec("d", "server", "other", "gradient", row_by_row=True),
        ]
    )
    assert shown == (
        Exposure("a", "embedding"),
        Exposure("c", "upload"),
        Exposure("d", "gradient"),
    )


def test_the_array_of_a_payload_is_itself_or_the_last_of_a_pair():
    array = np.zeros(3)
    assert array_of(array) is array
    assert array_of((np.arange(3), array)) is array
    for other in (None, 1.0, (1, 2), (1, 2, array), {"a": array}):
        assert array_of(other) is None


@pytest.mark.parametrize("name", sorted(find_protocols()))
def test_attacks_are_given_embeddings_in_the_clear(name):
    made = make(name)
    rows = made.data.train[0][:3]
    found = made.embed(made.parties()[0], rows)
    if name == "coded_split":  # no party has a network
        assert found is None
    else:
        assert type(found) is np.ndarray
        assert len(found) == len(rows)
