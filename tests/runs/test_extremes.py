"""Values far out of any use, and surroundings that do not fit, end in one line."""

import csv
import io
from contextlib import suppress

import numpy as np
import pandas as pd
import pytest
import torch

import securevfl as svfl
from securevfl.cli import model, output
from securevfl.data.preparation.csvfile import read_csv
from securevfl.data.preparation.scaling import fit_scaling
from securevfl.errors import ConfigurationError, DataError, DivergedError, SecureVFLError
from tests.runs.folders import small

FEDVS = {"protocol": "fedvs", "segments": 1, "share_timeout": 1e300, "result_timeout": 1.0}
EXTREMES = {
    "until": {"until": 1e300},
    "tick": {"faults": {"tick": 1e300, "client": {"fault": 0.5, "rejoin": 0.5}}},
    "outage": {"faults": {"outage": [{"party": 0, "seconds": [1e300]}]}},
    "upload_mean": {"conditions": {"upload_mean": 1e300}},
    "upload_shift": {"conditions": {"upload_shift": 1e300}},
    "bandwidth": {"conditions": {"bandwidth": 1e-300}},
    "uplinks": {"conditions": {"uplinks": [1e-300, 1.0]}},
    "trace": {"conditions": {"trace": [[1e300], [1.0]]}},
    "modelled": {"conditions": {"compute": "modelled", "seconds_per_multiply_add": 1e300}},
    "slow": {"conditions": {"pattern": "paper", "slow_base": 1e300}},
}


@pytest.mark.parametrize("name", EXTREMES)
def test_an_extreme_of_time_is_refused_in_one_line_and_leaves_no_folder(tmp_path, name):
    with pytest.raises(ConfigurationError, match=r"virtual time allows up to 1e\+09 s"):
        small.run(tmp_path / "run", **EXTREMES[name])
    assert not (tmp_path / "run").exists()


def test_times_that_add_up_beyond_what_a_clock_holds_end_in_one_line():
    with pytest.raises(SecureVFLError, match=r"beyond 292 years|stalled"):
        small.run(conditions={"upload_shift": 9e8}, rounds=40)


def test_a_timeout_beyond_what_a_clock_holds_is_refused():
    with pytest.raises(ConfigurationError, match="virtual time allows"):
        svfl.run("fedvs", small.wide(), rounds=2, batch=8, width=2, hidden=3, segments=1,
                 share_timeout=1e300, result_timeout=1.0)  # fmt: skip


def test_another_default_dtype_of_torch_is_refused_in_one_line():
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(ConfigurationError, match=r"set_default_dtype\(torch\.float32\)"):
            small.run()
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("without", [torch.no_grad, torch.inference_mode])
def test_training_without_gradients_is_refused_in_one_line(without):
    with without(), pytest.raises(ConfigurationError, match=r"outside of torch\.no_grad"):
        small.run()


@pytest.mark.parametrize("data", [pd.DataFrame({"a": [1.0], "y": [0]}), None, 3])
def test_what_is_no_data_set_is_refused_in_one_line(data, tmp_path):
    made = small.run(tmp_path / "run")
    asked = [lambda: svfl.run("split", data), lambda: svfl.verify("split", data=data)]
    if data is not None:
        asked += [lambda: svfl.load_run(made.folder, data=data), lambda: svfl.plan(data)]
    for ask in asked:
        with pytest.raises(DataError, match="VerticalDataset is needed"):
            ask()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"lr": 1e300}, "lr is at most 1e"),
        ({"lr": 1e38}, "lr is at most 1e"),
        ({"client_lr": 1e38, "optimizer": "adam"}, "lr is at most 1e"),
        ({"weight_decay": 1e300}, "weight_decay is at most 1e"),
        ({"hidden": 10**12}, "do not fit into memory"),
    ],
)
def test_sizes_and_rates_beyond_use_are_refused_in_one_line(options, said):
    with pytest.raises(ConfigurationError, match=said):
        small.run(**options)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("rate", ["lr", "client_lr", "weight_decay"])
def test_the_largest_rates_end_in_no_error_of_torch(rate, optimizer):
    """It raised its own where a product left float32; Adam's steps may stay finite."""
    with suppress(DivergedError):
        small.run(**{rate: 1e37, "optimizer": optimizer, "rounds": 20})


@pytest.mark.parametrize("fraction", ["x", [0.5], float("nan"), 1e300])
def test_a_fraction_that_is_none_is_refused(fraction):
    with pytest.raises(DataError, match="a number between 0 and 1 is needed"):
        svfl.VerticalDataset.from_numpy(
            np.zeros((9, 2)), np.arange(9) % 2, parties=2, test_fraction=fraction
        )


@pytest.mark.parametrize("scaling", ["minmax", "standard"])
def test_a_column_of_the_least_numbers_is_constant(scaling):
    """Their inverse overflows, which was a warning of numpy's."""
    block = np.array([[5e-324, 1.0], [-5e-324, 3.0]])
    _, divisor = fit_scaling(block, scaling, ["a", "b"])
    assert divisor[0] == 0
    assert divisor[1] > 0


def test_a_config_that_may_not_be_read_is_a_mistake_of_the_user(tmp_path):
    (tmp_path / "config.toml").mkdir()
    with pytest.raises(ConfigurationError, match=r"config\.toml cannot be read"):
        svfl.resume(tmp_path)


@pytest.mark.parametrize("ending", [".gz", ".xz", ".bz2"])
@pytest.mark.parametrize(
    "content", [b"", b"garbage", b"\x1f\x8b\x08\x00garbage" * 9, b"\xfd7zXZ\x00" * 9]
)
def test_a_packed_file_that_is_damaged_is_named(tmp_path, ending, content):
    (tmp_path / f"a.csv{ending}").write_bytes(content)
    with pytest.raises(DataError, match=rf"a\.csv{ending}"):
        read_csv(tmp_path / f"a.csv{ending}")


def test_a_column_with_control_characters_in_its_name_is_refused_and_not_shown_raw(tmp_path):
    (tmp_path / "a.csv").write_text("a,\x1b]0;owned\x07\n1,2\n3,4\n")
    with pytest.raises(DataError, match=r"column 2 .* control characters") as caught:
        read_csv(tmp_path / "a.csv")
    assert "\x1b" not in str(caught.value)


def test_no_line_on_standard_error_steers_the_terminal(capsys):
    output.say("no party has the column \x1b]0;owned\x07\x9b31m é")
    assert capsys.readouterr().err == "no party has the column \\x1b]0;owned\\x07\\x9b31m é\n"


def test_no_table_or_summary_steers_the_terminal(capsys):
    output.print_table(("who",), [("\x1b[2Jowned",)])
    output.print_summary({"dataset": "\x1b[2Jowned", "notes": ["\x07"]})
    assert "\x1b[2J" not in capsys.readouterr().out


def test_no_cell_of_predictions_is_a_formula_of_a_spreadsheet():
    found = {
        "classes": ["=HYPERLINK(1)", "-2", "@x"],
        "class_values": ["=HYPERLINK(1)", "-2", "@x"], "ids": ["+1+1", "-7.5"], "id_column": "=id",
        "predictions": ["=HYPERLINK(1)", "a\x1b[2J"], "probabilities": None,
    }  # fmt: skip
    text = io.StringIO()
    csv.writer(text).writerows(model._rows(found))
    cells = [cell for row in csv.reader(io.StringIO(text.getvalue())) for cell in row]
    assert not [c for c in cells if c[:1] in ("=", "@", "+")]
    assert {"'=HYPERLINK(1)", "-7.5", "p(-2)", "a\\x1b[2J"} <= set(cells)
