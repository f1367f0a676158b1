"""Write docs/results-attacks.md from the committed matrices under benchmarks/results/privacy.

Run it from the repository's root after a matrix: ``python benchmarks/attacks_page.py``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pages import table

RESULTS = Path("benchmarks/results/privacy")
PAGE = Path("docs/results-attacks.md")
ORDER = ("digits", "handwritten", "credit-card")

HEAD = """# The matrix of attacks, measured

Success, chance in brackets, means over seeds; **bold** where the 95 % interval of success minus
chance lies above 0; "-" where the role sees nothing that the attack could use (the reasons are in
the JSON). What the attacks are, what they know and how success is counted is in
[attacks.md](attacks.md). Conditions "paper"; times are virtual; bytes are those of open links. To
repeat one: `python benchmarks/privacy.py attacks --data NAME`. `benchmarks/attacks_page.py` writes
this page.
"""


def cell(found: dict[str, Any]) -> str:
    if found["success"] is None:
        return "FAILED" if found["verdict"] == "FAILED" else "-"
    text = f"{found['success']:.2f} ({found['chance']:.2f})".replace("-0.00", "0.00")
    return f"**{text}**" if found["verdict"] == "above chance" else text


def figure(entry: dict[str, Any] | None, name: str) -> str:
    if entry is None:
        return "-"
    mean, half = entry["mean"], entry["half_width_95"]
    if name == "bytes":
        return f"{mean / 1e6:.0f} MB"
    if name == "virtual_seconds":
        return f"{mean:.0f} s"
    scale, unit = (100, " %") if name == "test_accuracy" else (1, "")
    spread = "" if half is None else f" ± {scale * half:.{1 if scale > 1 else 3}f}"
    return f"{scale * mean:.{1 if scale > 1 else 3}f}{spread}{unit}"


def matrix(content: dict[str, Any]) -> list[str]:
    """One column a method: what it reached and cost, then every attack on it."""
    labels, cells = content["labels"], content["cells"]
    rows = [["", *(f"`{label}`" for label in labels)]]
    names = {
        "test_accuracy": "test accuracy",
        "test_auc": "test AUC",
        "virtual_seconds": "virtual time",
        "bytes": "sent",
    }
    for name, word in names.items():
        entries = [content["figures"][label].get(name) for label in labels]
        if any(entry is not None for entry in entries):
            rows.append([word, *(figure(entry, name) for entry in entries)])
    for attack in dict.fromkeys(c["attack"] for c in cells):
        own = {c["protocol"]: c for c in cells if c["attack"] == attack}
        rows.append([attack, *(cell(own[label]) for label in labels)])
    return table(rows)


def section(name: str) -> list[str]:
    content = json.loads((RESULTS / f"attacks-{name}.json").read_text())
    settings = content["settings"]
    options = ", ".join(f"{k} {v}" for k, v in settings["options"].items())
    rows = settings["attackers"]["rows"]
    used = "all training rows" if rows is None else f"{rows} training rows"
    return [
        f"## {name}",
        "",
        f"{len(settings['seeds'])} seeds; {used}; {options}. Commit `{content['commit']}`.",
        "",
        *matrix(content),
        "",
        f"![{name}](../{RESULTS}/attacks-{name}.png)",
        "",
    ]


def main() -> None:
    there = [name for name in ORDER if (RESULTS / f"attacks-{name}.json").exists()]
    lines = [line for name in there for line in section(name)]
    PAGE.write_text(HEAD + "\n" + "\n".join(lines).rstrip() + "\n")


if __name__ == "__main__":
    main()
