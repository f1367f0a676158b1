"""Networks of a client follow from its own entropy, and never from the seed of the run."""

import numpy as np
import pytest
import torch

from securevfl.engine.party import SERVER, Party
from securevfl.engine.streams import OwnEntropy
from securevfl.models.polynomial_network import PolynomialNetwork
from securevfl.protocols.base.protocol import Protocol
from securevfl.testing.runs import make
from securevfl.verified import bare_of
from securevfl.verified.values import Protected
from tests.protocols.test_conformance import VARIANTS, chosen

# Active parties begin with one top network, which the threat model lists as public; in flexvfl all
# have the server's.
PUBLIC = {"cvfl": ".top.", "flexvfl": ".head."}
AT_SETUP = {"coded_split"}  # draws weights in setup, by `tests/protocols/coded_split`


def networks(value, seen, path=""):
    """Weights of all networks that an object refers to, by where they are."""
    value = bare_of(value) if isinstance(value, Protected) else value
    if id(value) in seen or isinstance(value, Protocol | type | str | bytes):
        return
    seen.add(id(value))
    value = bare_of(value) if isinstance(value, Protected) else value
    if isinstance(value, torch.nn.Module):
        for name, weight in value.named_parameters():
            yield f"{path}.{name}", weight.detach().numpy()
    elif isinstance(value, PolynomialNetwork):
        yield f"{path}.values", np.asarray(value.values)
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from networks(one, seen, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for place, one in enumerate(value):
            yield from networks(one, seen, f"{path}.{place}")
    elif type(value).__module__.startswith("securevfl.") and hasattr(value, "__dict__"):
        for key, one in vars(value).items():
            yield from networks(one, seen, f"{path}.{key}")


def weights(protocol, options, index):
    made = make(protocol, secrets=OwnEntropy.draw(index), **options)
    party = made.party(index)
    assert isinstance(party, Party)
    return dict(networks(party, set()))


@pytest.mark.parametrize("variant", [v for v in VARIANTS if "," not in v or "moco" in v])
def test_no_network_of_a_client_follows_from_the_seed(variant):
    protocol, options = chosen(variant)
    roles = make(protocol, **options).roles()
    index = next(numbers[0] for numbers in roles.values() if SERVER not in numbers)
    one, two = (weights(protocol, options, index) for _ in range(2))
    assert one.keys() == two.keys()
    public = PUBLIC.get(protocol, "-")
    drawn = {name for name, w in one.items() if len(np.unique(w)) > 1 and public not in name}
    assert drawn or protocol in AT_SETUP
    assert not {name for name in drawn if np.array_equal(one[name], two[name])}
