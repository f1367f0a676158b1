"""Attacks of the server on features and models, using embeddings or their sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from securevfl.audit.attack_matrix.observed_run import Table
from securevfl.audit.attack_matrix.setting import AttackCase
from securevfl.audit.attacks import (
    feature_reconstruction,
    label_inference,
    model_stealing,
    sum_equations,
    sums,
)
from securevfl.audit.attacks.outcome import NoView, Result
from securevfl.engine.streams import Secrets, SecretSeed
from securevfl.field import FixedPoint
from securevfl.models.polynomial_network import PolynomialNetwork

_GRID_BITS = 20  # of the grid to which solved rows are rounded, where the clients have none


def _seen(case: AttackCase) -> tuple[Table, str] | NoView:
    """(single embeddings, ""), or (uploads that depend on them, a note); `NoView` for neither."""
    single = case.observed.embeddings
    if isinstance(single, Table):
        return single, ""
    uploads = case.observed.uploads
    if isinstance(uploads, Table):
        return uploads, "on all clients' uploads; "
    return NoView(f"{single.reason}, and {uploads.reason}")


def inversion(case: AttackCase) -> Result:
    """Outcome (columns explained) of a network from embeddings or uploads, by known rows."""
    seen = _seen(case)
    if isinstance(seen, NoView):
        return seen
    table, note = seen
    known, columns = case.auxiliary(len(table.rows)), case.columns(table)
    found = feature_reconstruction.inversion(table.values, columns, known, case.stream)
    return found.noted(note)


def inversion_of_sums(case: AttackCase) -> Result:
    """Outcome (columns explained) of a network from joint embeddings, trained on known rows."""
    table = case.observed.joint
    if isinstance(table, NoView):
        return table
    known, columns = case.auxiliary(len(table.rows)), case.columns(table)
    return feature_reconstruction.inversion(table.values, columns, known, case.stream)


def equality_solving(case: AttackCase) -> Result:
    """Solve for the client's columns from its first embedding and its known initial weights."""
    first = case.observed.first_embedding()
    if isinstance(first, NoView):
        return first
    parties = case.observed.protocol.parties()
    network = case.network(parties[case.client], case.observed.protocol)
    if network is None:
        return NoView("the client's network is not polynomial, so there is nothing linear to solve")
    rows, values = first
    columns = case.data.train[case.client][rows]
    return feature_reconstruction.equality_solving(
        values, [network.values], [columns], network.degree, case.stream, bounds=case.bounds
    )


class _Replica:
    """Copy of a client's network for an attacker who knows, or guesses, its secret choices."""

    def __init__(self, party: Any, secrets: Secrets, network: PolynomialNetwork) -> None:
        self._index, self._secrets = party.index, secrets
        self.network = network
        # FedVS, and split learning on its rounded numbers, round the weights for each batch.
        holder = getattr(party, "rounding", None) or getattr(party, "public", None)
        self._point: FixedPoint | None = getattr(holder, "model_point", None)

    def weights(self, step: int) -> np.ndarray:
        """Weights with which the client embeds in a step (from 0), rounded as there."""
        values: np.ndarray = self.network.values
        if self._point is None:
            return values
        stream = self._secrets.stream(self._index, "rounding", step + 1)
        return self._point.round(values, rng=stream) * 2.0**-self._point.bits

    def update(self, rows: np.ndarray, gradient: np.ndarray) -> None:
        """Repeat the client's optimiser step on the copy, with these rows and this gradient."""
        self.network.update(rows, gradient)


def equality_solving_of_sums(case: AttackCase) -> Result:
    """Solve all columns from joint embeddings; all clients' secret choices are known."""
    return solve_sums(case)


def equality_solving_without_seed(case: AttackCase) -> Result:
    """`equality_solving_of_sums` by a server that draws the secret choices at random."""
    return solve_sums(case, SecretSeed(int(case.stream.integers(2**31))))


def solve_sums(case: AttackCase, guessed: Secrets | None = None) -> Result:
    """Solve for all clients' rows from joint embeddings, with true or guessed secret choices."""
    opening = case.opening
    if isinstance(opening, NoView):
        return opening
    made, steps = opening
    secrets = guessed or made.secrets
    copy = case.protocol()
    copy.secrets = secrets
    fresh = copy.parties()
    known = [fresh[n] for n in range(case.data.parties)]
    networks = [network for party in known if (network := case.network(party, copy)) is not None]
    if len(networks) < len(known):
        return NoView("the clients' networks are not polynomial")
    first = networks[0]
    if steps[0].joint.shape[1] != first.values.shape[1]:
        return NoView("the server joins embeddings otherwise than by their mean")
    return sum_equations.equality_solving_of_sums(
        steps,
        [_Replica(party, secrets, network) for party, network in zip(known, networks, strict=True)],
        case.data.train,
        first.degree,
        case.stream,
        bounds=case.bounds,
        grid=2.0 ** -getattr(made.config, "data_bits", _GRID_BITS),
        starts=case.settings.starts,
    )


def stealing(case: AttackCase) -> Result:
    """Outcome of a copy of the client's network, by embeddings (or uploads) of known rows."""
    seen = _seen(case)
    if isinstance(seen, NoView):
        return seen
    table, note = seen
    known, columns = case.auxiliary(len(table.rows)), case.columns(table)
    if note:
        # What the client's own uploads of other rows are, is all that a copy can be held to.
        left = label_inference.attacked(len(columns), known)
        width = table.values.shape[1] // len(case.observed.protocol.peers())
        own = table.values[:, case.client * width : (case.client + 1) * width]
        fresh, truth, seen_ = columns[left], own[left], own[known]
        note = "on the client's uploads; "
    else:
        fresh = case.data.test[case.client]
        truth, seen_ = case.embedded(fresh), table.values[known]
    return model_stealing.steal(columns[known], seen_, fresh, truth, case.stream).noted(note)


def span_of_sums(case: AttackCase) -> Result:
    """Check whether the clients' true columns lie in the span of the sums."""
    found = case.sums
    return found if isinstance(found, NoView) else sums.span_exactness(*found, case.stream)


def completion_of_sums(case: AttackCase) -> Result:
    """Outcome of completing all rows from r + 1 known ones, through the span of sums (rank r)."""
    found = case.sums
    if isinstance(found, NoView):
        return found
    joint, columns = found
    rank = sums.basis(joint, columns.shape[1] + 1).shape[1]
    known = case.stream.permutation(len(joint))[: rank + 1]
    return sums.completion(joint, known, columns, case.stream)


def binary_columns(case: AttackCase) -> Result:
    """Find two-valued columns in the span of the sums by lattice reduction, without known rows."""
    found = case.sums
    if isinstance(found, NoView):
        return found
    outcome = sums.binary_recovery(*found, case.stream)
    return NoView("no client has a column of two values") if outcome is None else outcome
