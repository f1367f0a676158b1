"""``new``: a small package, or a study, of one's own, which runs and passes its tests."""

from __future__ import annotations

from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from typing import Annotated, Literal

import typer

from securevfl.cli import output
from securevfl.cli.completion import epilog
from securevfl.errors import ConfigurationError
from securevfl.protocols.base.defaults import SHOWN

_TEMPLATES = Path(__file__).parent / "templates"
_NAME = "shared_sum"  # in the templates; `protocol.txt` is the file of docs/own-protocol.md
_GROUPS = {"protocol": "protocols", "data": "datasets"}


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("new", epilog=epilog("new"))(new)


def new(
    kind: Annotated[
        Literal["protocol", "data", "study"],
        typer.Argument(metavar="protocol|data|study", help="What it is."),
    ],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name, such as my_method.")],
    folder: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FOLDER",
            help="Where the files are written; nothing is replaced.  \\[default: NAME]",
            show_default=False,
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON object.")
    ] = False,
) -> None:
    """Begin a protocol, a data set or a study of your own.

    A protocol and a data set are packages with an entry point and tests, a
    study is one file. What is written works as it stands: change it step by
    step.
    """
    _check_name(kind, name)
    place = Path(name) if folder is None else folder
    files = _files(kind, name)
    there = [file for file in files if (place / file).exists()]
    if there:
        raise ConfigurationError(f"new: {place / there[0]} is there already; name another --out")
    place.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        (place / file).write_text(text)
    if json:
        output.print_json({"files": [str(place / file) for file in files]})
        return
    typer.echo("\n".join(_next(kind, name, place)))


def _check_name(kind: str, name: str) -> None:
    """Raise ConfigurationError for a name that no module can have, or that is taken."""
    from securevfl.runs.catalogue import dataset_catalogue, protocols

    if not name.isidentifier() or name != name.lower() or iskeyword(name):
        raise ConfigurationError(
            f"new: {name!r} is no name; it is one of a module, of small letters, digits and _"
        )
    if kind == "study":
        return
    known = protocols() if kind == "protocol" else [one.name for one in dataset_catalogue()]
    if name in known or find_spec(name) is not None:
        raise ConfigurationError(
            f"new: the name {name!r} is taken, by a {kind} or by another module; choose another one"
        )


def _files(kind: str, name: str) -> dict[str, str]:
    """Text of each file of the new package or study, by file name."""
    if kind == "study":
        text = _read("study", name).replace("DEFAULT", SHOWN["default"])
        return {f"{name}.toml": text.replace("BASELINE", SHOWN["baseline"])}
    made = name.upper() if kind == "data" else _class(name)
    project = _read("pyproject", name).replace("GROUP", _GROUPS[kind]).replace("OBJECT", made)
    return {
        "pyproject.toml": project,
        f"{name}.py": _read(kind, name),
        f"test_{name}.py": _read(f"{kind}.test", name),
    }


def _read(template: str, name: str) -> str:
    text = (_TEMPLATES / f"{template}.txt").read_text()
    forms = {
        _NAME: name, _class(_NAME): _class(name), _NAME.upper(): name.upper(),
        _NAME.replace("_", "-"): name.replace("_", "-"),
    }  # fmt: skip
    for old, form in forms.items():
        text = text.replace(old, form)
    return text


def _class(name: str) -> str:
    """Class name in CapWords, from a name with underscores."""
    return "".join(word.capitalize() for word in name.split("_"))


def _next(kind: str, name: str, place: Path) -> list[str]:
    """Lines for the user: the files written at `place`, and the next commands for this kind."""
    if kind == "study":
        return [f"wrote {place / name}.toml; run it:", f"  securevfl study {place / name}.toml"]
    after = {
        "protocol": [f"  securevfl run {name} --rounds 20", f"  securevfl verify {name}"],
        "data": [f"  securevfl run split --data {name}"],
    }
    tests = f"  python -m pytest {place}"
    return [f"wrote {place}; next:", f"  pip install -e {place}", *after[kind], tests]
