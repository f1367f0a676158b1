"""The strongest attacks on a run, by target and by further knowledge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from securevfl.audit.attack_matrix.registry import ATTACKS
from securevfl.audit.attack_matrix.run import tried
from securevfl.audit.attack_matrix.setting import AttackCase, AttackSettings
from securevfl.audit.attacks.outcome import Outcome
from securevfl.errors import SecureVFLError
from securevfl.runs.threads import one_thread
from securevfl.studies.jobs import Job

#: Columns: of the server, or of who gets the embeddings. Labels: of a client.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "columns, nothing known": ("squares", "binary columns of sums"),
    "columns, rows known": ("inversion", "inversion of sums", "completion of sums"),
    "labels, ten of each known": ("gradient directions", "model completion"),
}


def strongest(job: Job, settings: AttackSettings | None = None) -> dict[str, Any]:
    """The attack of each group with the largest excess over chance; None if none had a view.

    Parameters
    ----------
    job : Job
        Job whose run is repeated, with its messages recorded; if it fails there is no view.
    settings : AttackSettings, optional
        Settings of the attackers.

    Returns
    -------
    dict
        By group of attacks (`GROUPS`: target and known rows or labels): None, or ``attack``,
        ``success``, ``chance`` and ``of`` (the measure).
    """
    case = AttackCase(job, settings or AttackSettings())
    with one_thread():
        try:
            _ = case.observed
        except SecureVFLError:  # without a record there is no view
            return dict.fromkeys(GROUPS)
        return {group: _best(case, names) for group, names in GROUPS.items()}


def _best(case: AttackCase, names: tuple[str, ...]) -> dict[str, Any] | None:
    found = {name: tried(ATTACKS.get(name), case) for name in names}
    seen = {name: one for name, one in found.items() if isinstance(one, Outcome)}
    if not seen:
        return None
    name = max(seen, key=lambda one: seen[one].success - seen[one].chance)
    best = seen[name]
    return {"attack": name, "success": best.success, "chance": best.chance, "of": best.metric}
