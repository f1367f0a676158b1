"""A search for learning rate and width by Optuna, on validation rows; test rows are looked at once.

pip install optuna
"""

from __future__ import annotations

from typing import Any

import optuna

import securevfl as svfl

SEED = 0
SIZE: dict[str, Any] = {"rounds": 40, "batch": 64, "hidden": 16}


def data(**options: Any) -> svfl.VerticalDataset:
    """Breast cancer among four parties, always split by the same seed."""
    return svfl.load_dataset("breast-cancer", parties=4, seed=SEED, **options)


def search(trials: int = 8) -> optuna.Study:
    """Try settings of FedVS on a fifth of the training rows that is held back from training."""
    held_back = data(validation=0.2)

    def objective(trial: optuna.Trial) -> float:
        lr = trial.suggest_float("lr", 1e-3, 1e-1, log=True)
        width = trial.suggest_categorical("width", [4, 8, 16])
        run = svfl.run("fedvs", held_back, lr=lr, width=width, seed=SEED, **SIZE)
        return float(run.history[-1]["accuracy"])

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=SEED))
    study.optimize(objective, n_trials=trials)
    return study


def main(trials: int = 8) -> tuple[optuna.Study, svfl.Run]:
    """Search, then train on all training rows with the best settings."""
    study = search(trials)
    best = svfl.run("fedvs", data(), seed=SEED, **study.best_params, **SIZE)
    print(f"{len(study.trials)} trials; best on validation rows: {study.best_value:.3f}")
    print(
        f"with width {study.best_params['width']}; test accuracy {best.history[-1]['accuracy']:.3f}"
    )
    return study, best


if __name__ == "__main__":
    main()
