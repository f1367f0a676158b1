"""Run of the attack matrix, with accuracy, virtual time and bytes.

`attack_matrix` runs every variant on every seed, and each attack of `ATTACKS` on the view of its
role. An attack whose role lacks a usable view reports the reason. New protocols are found
automatically; `Protocol.exposures` says what they must declare.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from securevfl.audit.attack_matrix.matrix import FIGURES, Matrix
from securevfl.audit.attack_matrix.registry import ATTACKS, Attack
from securevfl.audit.attack_matrix.setting import RUN_OPTIONS, AttackCase, AttackSettings
from securevfl.audit.attacks.outcome import Failed, NoView, Outcome
from securevfl.data.source import DataSource
from securevfl.errors import ConfigurationError, RunError, UnknownNameError, needs
from securevfl.runs.engines.run import Interrupted
from securevfl.runs.threads import one_thread
from securevfl.studies.compare import comparison
from securevfl.studies.intervals import mean_interval
from securevfl.studies.jobs import Job, read_keyed, refuse_runs, write_keyed
from securevfl.studies.workers import Watch

__all__ = ["ATTACKS", "AttackSettings", "Matrix", "attack_matrix", "write_matrix"]
ABOVE, AT, NO_VIEW, FAILED = "above chance", "at chance", "no view", "FAILED"
NOT_RUN = "not run"  # of attacks that were stopped


@dataclass(frozen=True)
class _Work:
    """A run to attack (variant and seed), with the attackers' settings and the attacks' names."""

    job: Job
    settings: AttackSettings
    attacks: tuple[str, ...]

    def key(self) -> str:
        """Digest of job, settings and attacks, under which the result is stored."""
        text = json.dumps([self.job.key(), asdict(self.settings), self.attacks], default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def attack_matrix(
    variants: Sequence[str],
    source: DataSource,
    *,
    options: Mapping[str, Any] | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    attacks: Sequence[str] | None = None,
    rounds: int | None = None,
    conditions: str = "none",
    settings: AttackSettings | None = None,
    folder: Path | None = None,
    progress: Callable[[int, int, str], None] | None = None,
    watch: Watch | None = None,
    interrupted: Callable[[], bool] | None = None,
    **asked: Any,
) -> Matrix:
    """Run every attack on every protocol.

    Parameters
    ----------
    variants : sequence of str
        ``NAME`` or ``NAME:key=value,...`` of installed protocols.
    source : DataSource
        The data set.
    options : mapping, optional
        Options that are set for every protocol that has them.
    seeds : sequence of int
        Seeds of split, weights and batches, and of the attackers' own choices.
    attacks : sequence of str, optional
        Names in `ATTACKS`, with those of installed packages; all by default.
    rounds : int, optional
        Server steps of variants that do not set them.
    conditions : str
        Delays and bandwidth: "none", a preset, or the path of a TOML file.
    settings : AttackSettings, optional
        Settings of the attackers.
    folder : Path, optional
        Folder for the result of each variant and seed; existing results are not computed again.
    progress : callable, optional
        Called with (runs done, all runs, text).
    watch : callable, optional
        Called with (job, fraction done) before each attack.
    interrupted : callable, optional
        Called often; when it returns True, `Interrupted` is raised, with the matrix of the finished
        attacks as ``so_far``.
    **asked
        Options of every run among `RUN_OPTIONS`. Links are not encrypted unless ``sealed`` is true.

    Raises
    ------
    ConfigurationError
        For unknown names (UnknownNameError), values out of range, and missing packages of the
        extra ``attacks``. Runs that are impossible raise `RefusedRunsError` before the first run.
    """
    needs("attacks", "attacks", "scipy", "sklearn", "matplotlib")
    chosen = tuple(ATTACKS.all() if attacks is None else attacks)
    for name in chosen:
        ATTACKS.get(name)
    for name in asked:
        if name not in RUN_OPTIONS:
            raise UnknownNameError("option of attacked runs", name, RUN_OPTIONS)
    settings = settings or AttackSettings()
    given = dict(options or {}) | ({} if rounds is None else {"rounds": rounds})
    study = comparison(
        variants,
        source,
        options=given,
        seeds=seeds,
        conditions=conditions,
        **asked,
    )
    refuse_runs(study.jobs[: len(study.labels)], lambda job: AttackCase(job, settings).protocol())
    results: list[dict[str, Any]] = []
    tell = progress or (lambda done, total, what: None)

    def matrix() -> Matrix:
        rows = [row for result in results for row in result["rows"]]
        made = {row["attack"] for row in rows}
        here = tuple(label for label in study.labels if any(r["protocol"] == label for r in rows))
        data = {k: v for k, v in source.options.items() if k not in ("data_dir", "seed")}
        return Matrix(
            title=f"attacks on {source.name}",
            labels=here,
            rows=rows,
            cells=_cells(here, [name for name in chosen if name in made], rows),
            figures=_figures(here, results),
            settings={
                "dataset": source.name,
                "data": data,
                "options": given,
                "seeds": list(seeds),
                "conditions": conditions,
                "until": None,
                "sealed": False,
                **{name: value for name, value in asked.items() if value is not None},
                "attackers": asdict(settings),
            },
        )

    for number, job in enumerate(study.jobs):
        work = _Work(job, settings, chosen)
        result = _stored(folder, work) or {"label": job.label, "figures": {}, "rows": []}
        if len(result["rows"]) < len(chosen):
            try:
                _attack(work, result, interrupted, watch, partial(_store, folder, work))
            except Interrupted as error:
                results += [result] if result["rows"] else []
                error.so_far = matrix() if results else None
                raise
        results.append(result)
        tell(number + 1, len(study.jobs), job.name)
    return matrix()


def _attack(
    work: _Work,
    found: dict[str, Any],
    interrupted: Callable[[], bool] | None,
    watch: Watch | None,
    keep: Callable[[Mapping[str, Any]], None],
) -> None:
    """Add to `found` a run's missing attacks, with `keep` after each; Interrupted if stopped."""
    case = AttackCase(work.job, work.settings, interrupted)
    with one_thread():
        found["figures"] = dict(case.observed.figures)  # a run that fails is not tried for each
        for number in range(len(found["rows"]), len(work.attacks)):
            if watch is not None:
                watch(work.job, (number + 1) / (len(work.attacks) + 1))
            if interrupted is not None and interrupted():
                raise Interrupted(None)
            attack = ATTACKS.get(work.attacks[number])
            head = {"protocol": work.job.label, **_described(attack), "seed": work.job.seed}
            found["rows"].append(head | _row(tried(attack, case)))
            keep(found)


def _described(attack: Attack) -> dict[str, str]:
    return {"attack": attack.name, "role": str(attack.against), "about": str(attack.asset)}


def tried(attack: Attack, case: AttackCase) -> Outcome | NoView | Failed:
    """Outcome of an attack; NoView if it raises ConfigurationError, Failed for any other error.

    A failed run is no missing view, which would look safe.
    """
    case.begin(attack.name)
    try:
        return attack.run(case, case.settings)
    except ConfigurationError as error:
        return NoView(str(error))
    except RunError as error:
        return Failed(str(error))
    except Exception as error:  # such as one of linear algebra; other attacks have their results
        return Failed(f"{type(error).__name__}: {error}")


def _row(found: Outcome | NoView | Failed) -> dict[str, Any]:
    if not isinstance(found, Outcome):
        empty = dict.fromkeys(("metric", "success", "chance", "low", "high"))
        said: dict[str, Any] = {**empty, "samples": 0, "controls": {}, "note": found.reason}
        return said | ({"failed": True} if isinstance(found, Failed) else {})
    row = asdict(found)
    return {k: _number(v) if isinstance(v, float) else v for k, v in row.items()}


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _store(folder: Path | None, work: _Work, result: Mapping[str, Any]) -> None:
    if folder is not None:
        write_keyed(work.job.path(folder), work.key(), result)


def _stored(folder: Path | None, work: _Work) -> dict[str, Any] | None:
    return None if folder is None else read_keyed(work.job.path(folder), work.key())


# -- over seeds ----------------------------------------------------------------------------------


def _cells(
    labels: Sequence[str], attacks: Sequence[str], rows: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    cells = []
    for label in labels:
        for name in attacks:
            here = [r for r in rows if (r["protocol"], r["attack"]) == (label, name)]
            head = {"protocol": label, **_described(ATTACKS.get(name))}
            cells.append(head | _cell(here))
    return cells


def _cell(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over seeds; the excess over chance has Student's interval of seed differences.

    With one seed it is the interval over the attacked rows. An attack that failed on one seed
    counts as failed.
    """
    empty = dict.fromkeys(("metric", "success", "chance", "excess", "low", "high"))
    failed = [r for r in rows if r.get("failed")]
    if failed:
        return {**empty, "verdict": FAILED, "seeds": 0, "note": failed[0]["note"]}
    seen = [r for r in rows if r["success"] is not None and r["chance"] is not None]
    if not rows:
        return {**empty, "verdict": NOT_RUN, "seeds": 0, "note": "stopped before it"}
    if not seen:
        return {**empty, "verdict": NO_VIEW, "seeds": 0, "note": rows[0]["note"]}
    success = [r["success"] for r in seen]
    excess, half = mean_interval([r["success"] - r["chance"] for r in seen])
    low, high = excess - half, excess + half
    if len(seen) == 1:
        low, high = (seen[0][side] - seen[0]["chance"] for side in ("low", "high"))
    return {
        "metric": seen[0]["metric"],
        "success": math.fsum(success) / len(seen),
        "chance": math.fsum(r["chance"] for r in seen) / len(seen),
        "excess": excess,
        "low": low,
        "high": high,
        "verdict": ABOVE if low > 0 else AT,
        "seeds": len(seen),
        "note": seen[0]["note"],
    }


def _figures(
    labels: Sequence[str], results: Sequence[Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for label in labels:
        own = [r["figures"] for r in results if r["label"] == label]
        found[label] = {}
        for name in FIGURES:
            values = [figures[name] for figures in own if name in figures]
            if values:
                mean, half = mean_interval(values)
                found[label][name] = {"mean": mean, "half_width_95": _number(half)}
    return found


def write_matrix(matrix: Matrix, path: Path, **more: Any) -> dict[str, Any]:
    """Write a matrix as JSON and as a picture of the same name.

    Parameters
    ----------
    matrix : Matrix
        Result of `attack_matrix`.
    path : Path
        Path that ends with ``.json``.
    **more
        Further keys.

    Returns
    -------
    dict
        The written content.
    """
    from securevfl.audit.attack_matrix.plot import draw_matrix
    from securevfl.machine import commit, describe_machine

    content = {**matrix.to_dict(), "machine": describe_machine(), "commit": commit(), **more}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")
    draw_matrix(matrix, path.with_suffix(".png"))
    return content
