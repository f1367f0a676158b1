"""Notebooks of the examples, run without Jupyter; their outputs are kept in them.

``python -m tests.docs.notebooks [NAME ...]`` runs them anew and writes what they print and draw.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


def executed(
    path: Path, change: Callable[[str], str] = str, between: Callable[[], object] = dict
) -> list[list[dict[str, Any]]]:
    """Outputs of each code cell, in order, whose source was changed before.

    `between` is called before each cell: a process that knows the protocols looks again.
    """
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    names: dict[str, Any] = {"__name__": "__main__"}
    found = []
    cells = json.loads(path.read_text())["cells"]
    for number, cell in enumerate(cells):
        if cell["cell_type"] != "code":
            continue
        between()
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(change("".join(cell["source"])), f"{path.name}, {number}", "exec"), names)
        outputs: list[dict[str, Any]] = []
        if printed.getvalue():
            text = printed.getvalue().splitlines(keepends=True)
            outputs.append({"output_type": "stream", "name": "stdout", "text": text})
        for figure in map(pyplot.figure, pyplot.get_fignums()):
            image = io.BytesIO()
            figure.savefig(image, format="png", dpi=72, metadata={"Software": None})
            data = {"image/png": base64.b64encode(image.getvalue()).decode()}
            outputs.append({"output_type": "display_data", "data": data, "metadata": {}})
            pyplot.close(figure)
        found.append(outputs)
    return found


def printed(outputs: list[list[dict[str, Any]]]) -> str:
    """Everything that was printed."""
    streams = (one["text"] for cell in outputs for one in cell if one["output_type"] == "stream")
    return "".join("".join(text) for text in streams)


def main(asked: list[str]) -> None:
    """Run notebooks and write their outputs."""
    for path in NOTEBOOKS:
        if asked and path.stem not in asked:
            continue
        notebook = json.loads(path.read_text())
        code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        for number, (cell, outputs) in enumerate(zip(code, executed(path), strict=True), 1):
            cell["outputs"], cell["execution_count"] = outputs, number
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
