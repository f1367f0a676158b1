"""Attacks of a client on labels: from gradients, its network, or shares of either."""

from __future__ import annotations

import numpy as np

from securevfl.audit.attack_matrix import held_shares
from securevfl.audit.attack_matrix.observed_run import Table
from securevfl.audit.attack_matrix.setting import AttackCase
from securevfl.audit.attacks import label_inference
from securevfl.audit.attacks.outcome import NoView, Outcome, Result


def _gradients(case: AttackCase, *, first: bool) -> tuple[Table, str] | NoView:
    """Each row's first (or newest) gradient that the attacking client got, or else its step share.

    Also a note for the result, empty for gradients.
    """
    seen = case.observed
    own = seen.first_gradients if first else seen.gradients
    if isinstance(own, Table):
        return own, ""
    shares = seen.gradient_shares(case.client, newest=not first)
    return shares if isinstance(shares, NoView) else (shares, "on the holder's shares of steps; ")


def gradient_norm(case: AttackCase) -> Result:
    """Guess one of two classes from the norm of late gradients or of step shares."""
    seen = _gradients(case, first=False)
    if isinstance(seen, NoView):
        return seen
    table, note = seen
    found = label_inference.gradient_norm(table.values, case.labels(table), case.stream)
    return found.noted(note)


def gradient_clusters(case: AttackCase) -> Result:
    """Attack on labels by a client's first gradient of each row, or its shares of the steps.

    Two classes are distinguished by sign, without known labels. More classes are clusters of
    k-means, named by a few rows with known labels.
    """
    seen = _gradients(case, first=True)
    if isinstance(seen, NoView):
        return seen
    table, note = seen
    labels, stream = case.labels(table), case.stream
    if case.data.num_classes == 2:
        return label_inference.gradient_sign(table.values, labels, stream).noted(note)
    known = label_inference.known_rows(labels, case.settings.labels, stream)
    classes = case.data.num_classes
    found = label_inference.gradient_clusters(table.values, labels, known, classes, stream)
    return found.noted(note)


def gradient_directions(case: AttackCase) -> Result:
    """Guess the class whose known rows have the nearest mean direction of first gradients."""
    seen = _gradients(case, first=True)
    return seen if isinstance(seen, NoView) else _directions(case, seen[0]).noted(seen[1])


def _directions(case: AttackCase, table: Table) -> Outcome:
    labels, stream = case.labels(table), case.stream
    known = label_inference.known_rows(labels, case.settings.labels, stream)
    classes = case.data.num_classes
    return label_inference.gradient_directions(table.values, labels, known, classes, stream)


def gradient_directions_pooled(case: AttackCase) -> Result:
    """`gradient_directions` on the first epoch's steps, which T + 1 holders decode from shares."""
    code = held_shares.code_of(case.observed)
    if isinstance(code, NoView):
        return code
    holders = held_shares.keenest(code)
    table = held_shares.pooled_steps(case.observed, holders)
    if isinstance(table, NoView):
        return table
    return _directions(case, table).noted(f"{len(holders)} holders decode the steps; ")


def model_completion(case: AttackCase) -> Result:
    """Attack on labels by a head on the client's trained network, fitted on a few known rows.

    A holder that has no network has shares of all of them: it uses its own share of the joint
    embedding, beside its columns.
    """
    own = np.asarray(case.data.train[case.client])
    trained, untrained = case.embedded(own), case.embedded(own, trained=False)
    without, note = {"raw columns": own}, ""
    if untrained is not None:
        without = {"untrained network": untrained, **without}
    if trained is None:
        share = held_shares.own_share(case.observed, case.client)
        if share is None:
            return NoView("the client has no bottom network of its own")
        trained = np.concatenate([own, share], axis=1)
        note = "on the holder's share of H, and its columns; "
    if case.data.task == "regression":
        return NoView("labels of a regression are not inferred")
    labels, stream = case.data.train_labels, case.stream
    known = label_inference.known_rows(labels, case.settings.labels, stream)
    classes = case.data.num_classes
    found = label_inference.model_completion(trained, without, labels, known, classes, stream)
    return found.noted(note)
