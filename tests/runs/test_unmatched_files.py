"""Two files with different ids train end to end by one command, on rows that nobody shares too."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from securevfl.cli.app import app

SMALL = ("--rounds", "30", "--batch", "32", "--client", "mlp", "--width", "8")
FEW = ("--pretrain-epochs", "3", "--pretrain-batch", "32")


@pytest.fixture
def files(tmp_path, monkeypatch):
    """User ids 0 to 299 at a bank with labels, 200 to 499 in a shop; 100 are common."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.Generator(np.random.Philox(7))
    z = draw.normal(size=(500, 2))
    noise = draw.normal(size=(500, 4)) * 0.3
    bank, shop = z[:, :1] + noise[:, :2], z[:, 1:] + noise[:, 2:]
    y = np.where(z.sum(axis=1) > 0, "yes", "no")
    order = draw.permutation(np.arange(200, 500))
    lines = ["user_id,income,age,job,y"]
    lines += [f"u{k},{bank[k, 0]:.4f},{bank[k, 1]:.4f},{'abc'[k % 3]},{y[k]}" for k in range(300)]
    (tmp_path / "bank.csv").write_text("\n".join(lines) + "\n")
    lines = ["user_id,sum,visits"]
    lines += [f"u{k},{shop[k, 0]:.4f},{shop[k, 1]:.4f}" for k in order]
    (tmp_path / "shop.csv").write_text("\n".join(lines) + "\n")
    return ("--party", "bank.csv", "--party", "shop.csv", "--id", "user_id", "--label", "y")


def run(*arguments):
    result = CliRunner().invoke(app, ["run", *arguments, "--json"], prog_name="securevfl")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("protocol", "align"),
    [
        ("vflhlp", "plain"),
        ("vflhlp", "psi"),
        ("local", "plain"),
        ("ssl_local", "plain"),
        ("fedhssl", "plain"),
        ("split", "plain"),
    ],
)
def test_rows_that_nobody_shares_are_used(files, protocol, align):
    more = FEW if protocol not in ("local", "split") else ()
    kept = ("--set", "data.unmatched=kept", "--align", align)
    said = run(protocol, *files, *SMALL, *more, *kept)
    assert said["test_auc"] > 0.6
    if protocol != "split":
        assert said["derived"]["rows_of_each_party"] == [275, 275]
        assert said["derived"]["aligned_rows"] == 75
    if protocol in ("vflhlp", "local"):
        assert said["derived"]["labelled_rows"] == 275


def test_without_the_option_they_are_left_out(files):
    said = run("vflhlp", *files, *SMALL, *FEW)
    assert said["derived"]["rows_of_each_party"] == [75, 75]
