"""The command that reproduces a run, the files it needs, and what it cannot reproduce."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from securevfl.engine.conditions import NONE, paper
from securevfl.protocols.base.registry import find_protocols
from securevfl.runs.options import options_of
from securevfl.runs.spec import ORGANISATIONS, RunSpec

_TABLES = {"id_column": "--id", "label_file": "--label-file", "align": "--align"}
_FLAGS = {"parties": "--parties", "label": "--label"}


@dataclass
class Reproduction:
    """The command line that reproduces a run.

    Attributes
    ----------
    words : list of str
        The words of the command.
    files : dict
        Content of the TOML files that the command names.
    notes : list of str
        Further notes for the reader.
    """

    words: list[str]
    files: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def quoted(self) -> list[str]:
        """Words of the command, quoted for a shell."""
        return [shlex.quote(word) for word in self.words]

    @property
    def command(self) -> str:
        """The command line, quoted for a shell."""
        return " ".join(self.quoted)


def how_to_reproduce(config: Mapping[str, Any]) -> Reproduction:
    """Command line that reproduces a run.

    Parameters
    ----------
    config : mapping
        Content of a run's ``config.toml``.
    """
    if config.get("engine") == ORGANISATIONS:
        return _session(config)
    found = Reproduction(["securevfl", "run", str(config["protocol"])])
    seed = config.get("seed", 0)
    _data(found, config.get("data", {}), seed)
    _options(found, str(config["protocol"]), config.get("options", {}))
    _run_options(found, config)
    if config.get("engine", "simulation") != "simulation":
        found.notes.append(
            "A run on a cluster takes real time, and its parties draw initial weights and rounding "
            "from entropy of their own: accuracy repeats nearly, losses and times do not."
        )
    _evaluation(found, config)
    return found


def _session(config: Mapping[str, Any]) -> Reproduction:
    """Command that writes the manifest of another session on the same terms."""
    found = Reproduction(["securevfl", "keys", "manifest", "again.toml"])
    protocol, session = str(config["protocol"]), config.get("organisation", {})
    found.words += ["--server", "server.key.pub"]
    count = int(session.get("parties", 0))
    for name in session.get("party_names", range(count)):
        file = f"party-{name}" if isinstance(name, int) else name
        found.words += ["--party", f"{name}={file}.key.pub"]
    found.words += ["--protocol", protocol, "--seed", str(config.get("seed", 0))]
    data = session.get("data", {})
    given = dict(data.get("tables", data.get("options", {})))
    if "name" in data:
        found.words += ["--data", str(data["name"])]
    for key, flag in {"label": "--label", "id_column": "--id"}.items():
        if key in given:
            found.words += [flag, str(given.pop(key))]
    for key, value in given.items():
        found.words += ["--set", f"data.{key}={_toml(value)}"]
    for name, value in _chosen(found, protocol, config.get("options", {})).items():
        found.words += ["--set", f"{name}={_plain(value)}"]
    found.notes.append(
        "A session is carried out once: the command writes the manifest of another one on the same "
        "terms, and each party joins it with its own key and table. Parties draw initial weights, "
        "rounding and masks from entropy of their own: accuracy repeats nearly, losses and times "
        "do not."
    )
    return found


def _data(found: Reproduction, data: Mapping[str, Any], seed: Any) -> None:
    options = {k: v for k, v in data.get("options", {}).items() if v is not None}
    name = data.get("name")
    if name is None:
        found.notes.append(
            "The run was given a data set object in Python, which a command cannot name; its "
            f"fingerprint is {data.get('fingerprint', 'unknown')}."
        )
    elif "party_files" in options:
        files, names = options.pop("party_files", ()), options.pop("party_names", ())
        for number, file in enumerate(files):
            name = f"{names[number]}=" if number < len(names) else ""
            found.words += ["--party", f"{name}{file}"]
        for key, flag in _TABLES.items():
            if key in options:
                found.words += [flag, str(options.pop(key))]
    else:
        found.words += ["--data", str(name)]
    if options.pop("seed", seed) != seed:
        found.notes.append("The data were split by another seed than the run's; use Python for it.")
    if options.pop("data_dir", None) is not None:
        found.notes.append("The data files were found by --data-dir; name your folder there.")
    for key, flag in _FLAGS.items():
        if key in options:
            found.words += [flag, str(options.pop(key))]
    for key, value in options.items():
        found.words += ["--set", f"data.{key}={_toml(value)}"]


def _options(found: Reproduction, protocol: str, options: Mapping[str, Any]) -> None:
    known = find_protocols().get(protocol)
    fields = {} if known is None else known.Config.model_fields
    for name, value in _chosen(found, protocol, options).items():
        flag = "--" + name.replace("_", "-")
        if name not in fields:
            found.words += ["--set", f"{name}={_plain(value)}"]
        elif isinstance(value, bool):
            found.words.append(flag if value else f"--no-{flag[2:]}")
        else:
            found.words += [flag, _plain(value)]


def _chosen(found: Reproduction, protocol: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options other than the defaults; all, and a note in `found`, for an unknown protocol."""
    known = find_protocols().get(protocol)
    fields = {} if known is None else known.Config.model_fields
    if known is None:
        found.notes.append(
            f"The protocol {protocol!r} is not installed here; all options are shown."
        )
    return {
        name: value
        for name, value in options.items()
        if not (name in fields and fields[name].default == value)
    }


def _run_options(found: Reproduction, config: Mapping[str, Any]) -> None:
    """Run options that differ from their defaults, and always seed and conditions."""
    for name, declared in options_of(RunSpec).items():
        value, default = config.get(name), RunSpec.model_fields[name].default
        if not declared.has_flag("run"):
            continue
        on, _, off = (declared.flag or "--" + name.replace("_", "-")).partition("/")
        if name == "conditions":
            _conditions(found, config, on)
        elif name == "seed":
            found.words += [on, str(config.get(name, default))]
        elif value is None or value == default:
            continue
        elif declared.file:
            content = {k: v for k, v in value.items() if k != "name"}
            found.words += [on, _file(found, str(value.get("name", name)), name, content)]
        elif isinstance(value, bool):
            found.words.append(on if value else off)
        else:
            found.words += [on, str(value)]


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _conditions(found: Reproduction, config: Mapping[str, Any], flag: str) -> None:
    content = dict(config.get("conditions", {}))
    name = str(content.pop("name", "conditions"))
    if not content or _is_named(name, content, config.get("derived", {})):
        found.words += [flag, name]
        return
    found.words += [flag, _file(found, name, "conditions", content)]


def _is_named(name: str, content: Mapping[str, Any], derived: Mapping[str, Any]) -> bool:
    """Whether conditions "none" or "paper" have their usual content; False for another name."""
    if name == "none":
        expected = NONE
    elif name == "paper" and "batch_rows" in derived and content.get("upload_mean"):
        expected = paper(len(content["upload_mean"]), batch_rows=derived["batch_rows"])
    else:
        return False
    return {"name": name, **content} == expected.describe()


def _file(found: Reproduction, name: str, kind: str, content: Mapping[str, Any]) -> str:
    import tomli_w

    word = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or kind
    file = f"{word}.toml" if f"{word}.toml" not in found.files else f"{word}-{kind}.toml"
    found.files[file] = tomli_w.dumps(dict(content))
    return file


def _evaluation(found: Reproduction, config: Mapping[str, Any]) -> None:
    """Note differences in evaluation from what a command can ask; training is the same."""
    rounds, until = config.get("options", {}).get("rounds"), config.get("until")
    every, seconds = config.get("eval_every"), config.get("eval_seconds")
    if until is not None and seconds is not None:
        usual = seconds == until / 50
    else:
        usual = seconds is None and (
            every is None or rounds is None or every == max(1, rounds // 50)
        )
    if not usual:
        steps = f"{seconds:g} virtual seconds" if seconds is not None else f"{every} rounds"
        found.notes.append(
            f"The run was evaluated every {steps}, which only Python can ask for; training is the "
            "same."
        )


def _toml(value: Any) -> str:
    import tomli_w

    return tomli_w.dumps({"v": value}).partition("=")[2].strip().replace("\n", " ")
