"""Examples in the help of each command, and what a shell completes."""

from __future__ import annotations

from pathlib import Path

from securevfl.protocols.base.defaults import SHOWN

EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "": (
        ("run {default}", "train on digits: 8 parties, half of them stragglers"),
        (
            "compare {default} {baseline} {asynchronous} --until 60",
            "the same data and delays, at equal virtual time",
        ),
        ("protocols {default}", "what a protocol is, and what each role sees"),
        ("-v run {default}", "the same run, with a log on standard error"),
        ("--install-completion", "let the shell complete commands, protocols and options"),
    ),
    "run": (
        ("run {default}", "digits, 8 parties"),
        ("run {default} --help", "all options of a protocol"),
        ("run {baseline}:aggregation=max", "a variant: options as part of the name"),
        ("run {default} --data own.csv --label income", "your own table, its columns divided"),
    ),
    "run PROTOCOL": (
        ("run {name} --rounds 200 --seed 1 --out runs/mine", ""),
        ("run {name} --data own.csv --label income --parties 4", "your own table"),
        (
            "run {name} --party bank.csv --party shop.csv --id customer --label bad",
            "one table for each party",
        ),
        ("run {name} --conditions none --track tensorboard", "no delays; watch it as it trains"),
        ("run {name} --set data.scaling=standard --json", "options by name; one JSON object"),
    ),
    "resume": (
        ("resume runs/{default}-digits-20260101-120000", "after Ctrl-C, or after it was killed"),
    ),
    "compare": (
        (
            "compare {default} {baseline} {asynchronous} --until 60 --seeds 3",
            "accuracy at equal virtual time",
        ),
        ("compare {baseline} {baseline}:stragglers=ignore", "a protocol beside its variant"),
        ("compare {default} {noisy} --attacks --seeds 1", "what each role can infer, over chance"),
    ),
    "study": (
        ("study study.toml --quick", "the short form of a study, from its table [quick]"),
        ("study study.toml --workers 2 --out results", ""),
    ),
    "plan": (
        ("plan --data digits --parties 8 --privacy 2", "feasible K, bytes, memory, time"),
        ("plan --rows 60000 --features 784 --parties 28", "before the data are here"),
    ),
    "verify": (
        ("verify {default}", "every claim, with verdict and evidence"),
        ("verify {default} --plain --json", "the paper's own evaluation, as one JSON object"),
    ),
    "verify PROTOCOL": (
        ("verify {name}", ""),
        ("verify {name} --parties 6 --out verdicts", "and verify.json in a folder"),
    ),
    "datasets": (
        ("datasets", "what is known by name, and whether it is here"),
        ("datasets parkinson", "where its files come from"),
    ),
    "protocols": (
        ("protocols", ""),
        ("protocols {default} --json", "its card and options as one JSON object"),
    ),
    "predict": (
        ("predict runs/mine new.csv", "one line for each row"),
        ("predict runs/mine bank.csv shop.csv", "one file for each party, in order"),
        ("predict runs/mine new.csv --coded", "on secret shares, by the protocol itself"),
    ),
    "export": (
        ("export runs/mine --out models", "server.npz, party-0.npz, ..."),
    ),
    "trace": (
        ("trace runs/mine --round 1", "every message of the first round"),
        ("trace runs/mine --kind embedding --to server --fate late", "what came too late"),
        ("trace runs/mine --round 1 --payloads", "with types and shapes; runs it again"),
        ("trace runs/mine --step", "one message at a time"),
    ),
    "report": (
        ("report runs/mine", "runs/mine/report.html, which needs no network"),
        ("report runs/{default} runs/{baseline} --out both.html", "side by side"),
        ("report runs/mine --verify verify.json", "with what `verify --json` said"),
    ),
    "keys new": (("keys new bank.key", "bank.key, and bank.key.pub for the others"),),
    "keys show": (("keys show bank.key.pub shop.key.pub", "compare them over the telephone"),),
    "keys manifest": (
        (
            "keys manifest session.toml --party 0=bank.key.pub --party 1=shop.key.pub "
            "--server server.key.pub",
            "",
        ),
    ),
    "keys sign": (("keys sign session.toml --key bank.key --as 0", ""),),
    "keys check": (("keys check session.toml", "who takes part, and whether all have signed"),),
    "bench round": (
        ("bench round", "what secrecy costs, at the size of fashion-mnist; minutes"),
        ("bench round --parties 8 --segments 2 --rows 2000 --features 64", "smaller"),
    ),
    "bench threshold": (("bench threshold --parties 6,10 --privacy 1,2 --out map.png", ""),),
    "bench field": (("bench field --json", ""),),
}  # fmt: skip


def commands(command: str, name: str = "PROTOCOL") -> list[str]:
    """Whole command lines of the examples of a command."""
    return [f"securevfl {line.format(name=name, **SHOWN)}" for line, _ in EXAMPLES[command]]


def epilog(command: str, name: str = "PROTOCOL") -> str:
    """Section of examples that ends the help page of a command."""
    lines = ["[bold]Examples[/]"]
    for line, (_, why) in zip(commands(command, name), EXAMPLES[command], strict=True):
        lines.append(f"  {line}" + (f"  [dim]# {why}[/]" if why else ""))
    return "\n\n".join(lines)  # typer joins single lines into one


def protocol_names(incomplete: str) -> list[str]:
    """Protocols that a word may become."""
    from securevfl.runs.catalogue import protocols

    return [name for name in protocols() if name.startswith(incomplete)]


def dataset_names(incomplete: str) -> list[str]:
    """Data sets that a word may become."""
    from securevfl.runs.catalogue import dataset_catalogue

    return [entry.name for entry in dataset_catalogue() if entry.name.startswith(incomplete)]


def condition_names(incomplete: str) -> list[str]:
    """Names of conditions that a word may become."""
    from securevfl.runs.catalogue import conditions

    return [name for name in conditions() if name.startswith(incomplete)]


def data_names(incomplete: str) -> list[str]:
    """Data sets, CSV files and folders that a word may become."""
    here = sorted(Path(incomplete or ".").parent.glob(f"{Path(incomplete).name}*"))
    files = [str(path) for path in here if path.suffix == ".csv"]
    folders = [f"{path}/" for path in here if path.is_dir() and path.name[:1] != "."]
    return [*dataset_names(incomplete), *files, *folders]
