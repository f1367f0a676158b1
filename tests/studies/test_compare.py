"""One description of an option for all protocols that have it."""

from __future__ import annotations

from typing import get_args

import pytest

from securevfl.cli.commands import _grouped
from securevfl.data.source import DataSource
from securevfl.errors import ConfigurationError
from securevfl.protocols.base.registry import find_protocols
from securevfl.studies.compare import all_options, comparison

pytestmark = pytest.mark.quick


def test_every_option_of_every_protocol_is_there():
    found = all_options()
    for name, protocol in find_protocols().items():
        assert all(name in found[key][1] for key in protocol.Config.model_fields)


def test_a_default_stands_there_only_if_all_protocols_share_it():
    protocols, found = find_protocols(), all_options()
    for key, (field, names) in found.items():
        defaults = {repr(protocols[name].Config.model_fields[key].default) for name in names}
        if len(defaults) == 1:
            assert repr(field.default) in defaults
        else:
            assert field.default is None
            assert str(field.description).endswith("Default: that of each protocol.")


def test_the_description_is_that_of_most_protocols():
    field, names = all_options()["lr"]
    assert str(field.description).startswith("Learning rate of the server model.")
    assert "cvfl" in names  # which has one of its own
    assert "So in cvfl; `run PROTOCOL --help`" in str(all_options()["timeout"][0].description)


def test_choices_are_those_of_all_protocols():
    protocols, (field, names) = find_protocols(), all_options()["aggregation"]
    for name in names:
        own = protocols[name].Config.model_fields["aggregation"].annotation
        assert set(get_args(own)) <= set(get_args(field.annotation))


def test_the_fields_of_the_protocols_stay_as_they_are():
    all_options()
    lr = find_protocols()["cvfl"].Config.model_fields["lr"]
    assert lr.default == 0.003
    assert "Default:" not in str(lr.description)


def test_headings_say_whose_an_option_is():
    grouped = _grouped(all_options())
    assert list(grouped) == list(dict.fromkeys(grouped))
    assert set(grouped) == set(all_options())
    assert grouped["batch"][1] == "Options of every protocol"
    assert grouped["degree"][1] == "Options of several protocols"
    assert "Of all but dvfl." in str(grouped["degree"][0].description)
    assert grouped["quantized"][1] == "Options of split"


@pytest.mark.parametrize("seeds", [[], [3, 3]])
def test_a_seed_counts_once_in_an_interval(seeds):
    with pytest.raises(ConfigurationError, match="must be different, at least one"):
        comparison(["split", "vafl"], DataSource("digits", {}), options={}, seeds=seeds)
