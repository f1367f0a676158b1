"""What exact sums tell by themselves: clients that alone are left in them modulo some number."""

import numpy as np
import pytest

import securevfl as svfl
from securevfl.data import VerticalDataset
from securevfl.planning.sums import few_in_residues, steps_of_columns
from securevfl.runs.assembly import make_protocol


def test_clients_with_multiples_leave_the_others_alone():
    found = few_in_residues({0: 1, 1: 65536, 2: 65536, 3: 3 * 65536}, 3)
    assert found.startswith("sums modulo 65536, which the server learns, are of clients [0] alone")
    assert few_in_residues({0: 1, 1: 1, 2: 1, 3: 65536}, 3) == ""
    assert few_in_residues({0: 65536, 1: 65536, 2: 65536}, 3) == ""


def test_constant_columns_and_steps_that_are_no_powers_of_two():
    assert "modulo 9, which" in few_in_residues({0: 1, 1: 9, 2: 9, 3: 0}, 3)
    assert few_in_residues({0: 0, 1: 0, 2: 0}, 3) == ""
    # Modulo 9 clients 0 and 2 are left, modulo 49 clients 0 and 1.
    assert "of clients [0, 1] alone" in few_in_residues({0: 1, 1: 9, 2: 49}, 3)
    # 2 is nobody's step.
    assert "modulo 2, which" in few_in_residues({0: 1, 1: 6, 2: 10, 3: 14}, 3)
    prime = 1_000_003  # beyond the divisors that are tried one by one
    assert f"modulo {prime}" in few_in_residues({0: 1, 1: prime, 2: 2 * prime}, 2)


def mixed(real: int) -> VerticalDataset:
    """Six clients, of which so many have a real column and the others yes-and-no columns."""
    rng = np.random.default_rng(3)
    parts = [rng.random((80, 1)) if n < real else rng.integers(0, 2, (80, 3)) for n in range(6)]
    labels = (parts[0][:, 0] > 0.5).astype(int)
    return VerticalDataset.from_numpy([1.0 * part for part in parts], labels, test_fraction=0.25)


@pytest.mark.parametrize("protocol", ["fedvs", "coded_split"])
@pytest.mark.parametrize(("real", "told"), [(1, True), (2, True), (3, False), (0, False)])
def test_a_run_says_whose_columns_are_alone_in_low_digits(protocol, real, told):
    run = svfl.run(protocol, mixed(real), rounds=1, width=2, hidden=2, batch=8)
    found = [text for text in run.summary()["notices"] if text.startswith("sums modulo")]
    assert len(found) == told
    assert not told or f"of clients {[*range(real)]} alone, and 3 are needed" in found[0]


def test_a_server_reads_one_column_off_sums_modulo_a_power_of_two():
    """The reason for the notice: what is left of the exact sum is that client's part."""
    made, _ = make_protocol("fedvs", {"degree": 1, "segments": 1}, mixed(1), 0)
    rng, field = np.random.default_rng(0), made.code.field
    columns = {n: field.signed(own[0]) for n, own in made.quantised_columns().items()}
    weights = {n: rng.integers(-(2**17), 2**17, (own.shape[1], 4)) for n, own in columns.items()}
    whole = sum(own @ weights[n] for n, own in columns.items())
    alone = columns[0][:, :1] @ weights[0][:1]
    apart = (whole - whole[:1] - alone + alone[:1]) % 2**16
    assert not apart.any()
    steps = steps_of_columns(made)
    assert steps[0][0] == 1
    assert all((own[:-1] == 2**16).all() for n, own in steps.items() if n)
    assert all(own[-1] == 0 for own in steps.values())  # ones
