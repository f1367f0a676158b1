"""The matrix of protocols and attacks as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from securevfl.audit.attack_matrix.matrix import Matrix
from securevfl.errors import needs


def strength(cell: dict[str, Any]) -> float | None:
    """Attack success rescaled: 0 is chance, 1 is everything; None without a view."""
    if cell["success"] is None:
        return None
    room = 1 - cell["chance"]
    return min(1.0, max(0.0, cell["excess"] / room)) if room > 0 else 0.0


def draw_matrix(matrix: Matrix, path: Path) -> None:
    """Heat map of protocols and attacks: success over chance, grey where there is no view.

    Each cell has the success and, below it, chance.
    """
    needs("attacks", "attacks", "matplotlib")
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    attacks = list(dict.fromkeys(cell["attack"] for cell in matrix.cells))
    labels = list(matrix.labels)
    size = (2.4 + 0.48 * len(attacks), 2.8 + 0.4 * len(labels))
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    grid = np.full((len(labels), len(attacks)), np.nan)
    axes.set_facecolor("#e4e4e4")
    for i, label in enumerate(labels):
        for j, attack in enumerate(attacks):
            cell = matrix.cell(label, attack)
            value = strength(cell)
            if value is None:
                if cell["verdict"] == "FAILED":
                    axes.text(j, i, "failed", ha="center", va="center", fontsize=7, color="red")
                continue
            grid[i, j] = value
            weight = "bold" if cell["verdict"] == "above chance" else "normal"
            text = f"{cell['success']:.2f}\n({cell['chance']:.2f})"
            colour = "white" if value > 0.6 else "black"
            axes.text(
                j, i, text, ha="center", va="center", fontsize=7, color=colour, fontweight=weight
            )
    image = axes.imshow(grid, vmin=0, vmax=1, cmap="Reds", aspect="auto")
    axes.set_xticks(range(len(attacks)), attacks, rotation=40, ha="right", fontsize=8)
    axes.set_yticks(range(len(labels)), [_named(matrix, label) for label in labels], fontsize=8)
    axes.set_xticks(np.arange(len(attacks) + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(labels) + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=1.2)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)
    words = "from chance (0) to everything (1)"
    figure.colorbar(image, ax=axes, location="bottom", shrink=0.5, aspect=40, label=words)
    told = "success (chance)\nbold where the 95 % interval lies above chance; grey: no such view"
    figure.suptitle(f"{matrix.title}: {told}", fontsize=9)
    figure.savefig(path, dpi=130)


def _named(matrix: Matrix, label: str) -> str:
    accuracy = matrix.figures.get(label, {}).get("test_accuracy")
    return label if accuracy is None else f"{label} ({100 * accuracy['mean']:.1f} %)"
