"""`verify`: verdicts on masked and plain FedVS, on leaks, and where there is no verifier."""

import json

import pytest
import torch

import securevfl
from securevfl.audit.verdicts import Report, conclude
from securevfl.audit.verify import library, verify
from securevfl.cli import main
from securevfl.cli.verify import print_report
from securevfl.errors import ConfigurationError
from securevfl.privacy.claims import SUMS, Claim, given_sums
from securevfl.privacy.released_equations import Odometer
from securevfl.protocols.base.registry import get_protocol
from securevfl.testing.runs import tiny_data
from securevfl.verified import UNDISTURBED
from securevfl.verified.traced.proofs import Traced
from tests.audit.conftest import undisturbed

ABOUT = ("features", "model")
SMALL = {"sum_budget": 0.0}
TINY = {"rounds": 1, "batch": 3, "width": 1}


class Tower(torch.nn.Module):
    """A client's network, of the user's own."""

    def __init__(self, columns, width):
        super().__init__()
        self.layer = torch.nn.Linear(columns, width)

    def forward(self, x):
        return torch.relu(self.layer(x))


@pytest.fixture(scope="module")
def masked():
    with undisturbed():
        return verify("fedvs", tiny_data().with_parties(4), **SMALL)


@pytest.fixture(scope="module")
def plain():
    with undisturbed():
        return verify("fedvs", tiny_data().with_parties(4), plain=True, rounds=1, **SMALL)


@pytest.fixture(scope="module")
def unproved():
    with undisturbed():
        return verify("local", tiny_data())


def verdicts(report):
    return {(f.who, f.about): f.verdict for f in report.claims}


def test_masked_claims_are_proved_at_the_real_parameters(masked):
    assert masked.parameters["p"] == 2**50 - 2**14 + 1
    assert masked.parameters["N"] == 4
    found = verdicts(masked)
    for who in ("T clients", "server", "server + T clients"):
        for about in ABOUT:
            assert found[who, about] == "PROVED"
    assert found["client", "labels"] == "NOT PROTECTED"  # dL/dH depends on them, as the card says
    assert "a trace at N = 4, M = 8 rows" in masked.ran[0]


def test_a_protocol_that_cannot_be_made_ends_in_a_verdict():
    class Unmade(get_protocol("local")):
        def __init__(self, *given, **options):
            raise RuntimeError("no party today")

    report = verify(Unmade, tiny_data())
    assert [one.verdict for one in report.claims] == ["COULD NOT BE CHECKED"]
    assert "ended in RuntimeError: no party today" in report.claims[0].evidence[0].text


def test_a_class_that_its_name_does_not_find_is_refused():
    class Mine(get_protocol("local")):
        name = "mine"

    with pytest.raises(ConfigurationError, match="finds the protocol by its name, 'mine'"):
        verify(Mine, tiny_data())


def test_options_that_cannot_run_are_an_error_and_no_verdict():
    with pytest.raises(ConfigurationError, match=r"need R \+ 2A = 13 results"):
        verify("fedvs", tiny_data(), segments=6)


def test_plain_claims_are_those_of_the_paper(plain):
    found = verdicts(plain)
    for about in ABOUT:
        assert found["T clients", about] == "PROVED"
        assert found["T uploads", about] == "NOT TESTED"  # no coalition has uploads alone
        assert found["server", about] == "NOT PROVED"
        assert found["server + T clients", about] == "VIOLATED"


def test_claims_that_nothing_is_protected_are_said(unproved):
    none = [f for f in unproved.claims if f.notion == "none"]
    assert {f.verdict for f in none} == {"NOT PROTECTED"}
    assert unproved.shown


def test_only_masked_protocols_have_a_plain_evaluation():
    with pytest.raises(ConfigurationError, match="vafl has no plain evaluation"):
        verify("vafl", tiny_data(), plain=True)


@pytest.mark.parametrize("report", ["masked", "unproved"])
def test_the_json_form(report, request):
    content = request.getfixturevalue(report).to_dict()
    again = json.loads(json.dumps(content))
    assert again["claims"] == content["claims"] != []
    keys = {"who", "about", "notion", "source", "verdict", "evidence", "failure_probability"}
    keys |= {"evidence_list"}
    granted = {"given", "tells"}  # only where sums are
    assert all(set(claim) - granted == keys for claim in again["claims"])
    for claim in again["claims"]:
        assert claim["evidence"] == "; ".join(one["text"] for one in claim["evidence_list"])
    assert again["ran"]


def test_verify_is_a_public_name(unproved):
    assert securevfl.verify is verify
    assert isinstance(unproved, Report)


def test_proofs_hold_for_networks_of_the_users_own(monkeypatch):
    monkeypatch.setattr(Traced, "schedules", lambda traced: (UNDISTURBED,))
    report = verify("split", tiny_data(), own_client=Tower, **TINY)
    assert report.verdict("server", "features") == "NOT PROTECTED"
    assert "own_client = tests.audit.test_verify:Tower" in report.ran[0]
    assert "refused" not in report.claims[0].words  # the other process found it


def test_an_unknown_claim_is_a_key_error(masked):
    with pytest.raises(KeyError, match="no claim about labels against server"):
        masked.verdict("server", "labels")


def command(monkeypatch, capsys, *arguments):
    monkeypatch.setattr("sys.argv", ["securevfl", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code, capsys.readouterr()


def test_the_command_prints_verdicts_as_json_from_a_process_with_the_same_library(
    monkeypatch, capsys, tmp_path
):
    sizes = [word for name, size in TINY.items() for word in (f"--{name}", str(size))]
    arguments = ["verify", "split", "--parties", "3", *sizes, "--out", str(tmp_path)]
    code, said = command(monkeypatch, capsys, *arguments, "--json")
    assert code == 0
    report = json.loads(said.out)
    assert report == json.loads((tmp_path / "verify.json").read_text())
    assert report["library"] == library()
    (claim,) = [c for c in report["claims"] if (c["who"], c["about"]) == ("server", "features")]
    assert claim["verdict"] == "NOT PROTECTED"


def test_verdicts_are_printed_with_what_was_proved(unproved, capsys):
    print_report(unproved)
    said = " ".join(capsys.readouterr().out.split())
    assert "NOT PROTECTED" in said
    assert "Proved: a trace at N = 6" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["verify"], "verify: a protocol comes first"),
        (["verify", "fedv"], "did you mean fedvs"),
        (["verify", "vafl", "--plain"], "has no plain evaluation"),
        (["verify", "fedvs", "--privacy", "8"], "T = 8"),
    ],
)
def test_mistakes_at_the_command_line(monkeypatch, capsys, arguments, words):
    code, said = command(monkeypatch, capsys, *arguments)
    assert code == 2
    assert words in said.err
    said_why = [line for line in said.err.splitlines() if not line.startswith("verify ")]
    assert len(said_why) == 1


def test_what_granted_sums_tell_stands_with_the_verdict(capsys):
    told = Odometer(4, 13, 27, 7, 9, 10, budget=False)
    claims = given_sums([Claim("server", "features", "perfect", "a theorem", given=(SUMS,))], told)
    found = conclude(claims[0], [])
    assert found.source.endswith(told.sentence())
    assert found.to_dict()["source"] == found.source
    print_report(Report("mine", {}, (found,), (), ()))
    said = " ".join(capsys.readouterr().out.split())
    assert "perfect, given decoded sums" in said
    assert f"Given decoded sums (server, features). {found.claim.tells}." in said
    assert said.index("NOT TESTED") < said.index("about its 13 unknowns") < said.index("Claims: 1")


def test_every_verdict_has_a_reason(capsys):
    untested = conclude(Claim("outsider", "labels", "computational", "links are sealed"), [])
    print_report(Report("mine", {}, (untested,), (), (), ("a trace",)))
    said = " ".join(capsys.readouterr().out.split())
    assert "Proved: a trace." in said
    assert "outsider, labels: - no proof or verifier is about it" in said
