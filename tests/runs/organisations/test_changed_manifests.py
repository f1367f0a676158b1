"""Manifests whose terms were changed: refused by errors of ours, or carried out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from securevfl.engine.network import SERVER
from securevfl.engine.security.identity import Manifest, ManifestEntry
from securevfl.errors import SecureVFLError
from securevfl.runs.organisations.terms import Terms
from tests.runs.changed_files import changed

ENTRIES = {n: ManifestEntry(bytes([n + 2]) * 32, None, None) for n in (SERVER, 0, 1, 2)}
KINDS = {
    "tables": ("fedvs", {"tables": {"id_column": "id", "label": "y"}}),
    "a set by name": ("secagg_split", {"name": "digits", "options": {}}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_changed_terms_are_refused_or_can_be_carried_out(kind):
    protocol, data = KINDS[kind]
    terms = Terms.make(protocol, 3, options={}, data=data, names=("bank", "shop", "phone"))
    manifest = Manifest("s", protocol, ENTRIES, terms=terms.plain())
    assert Terms.of(manifest) == terms
    counts = [0, 0]
    for why, new in changed(manifest.terms):
        try:
            found = Terms.of(replace(manifest, terms=new))
            found.check(protocol, 3)
            found.lines(protocol)
            found.seconds_left()
            found.tables(0, None, 3) if found.own_tables else found.source(3)
            counts[False] += 1
        except SecureVFLError:
            counts[True] += 1
        except Exception as error:
            raise AssertionError(f"{why}: {type(error).__name__}: {error}") from error
    assert counts[True] > 2 * counts[False] > 0


@pytest.mark.parametrize("text", ["2027-01-01T00:00:00", "tomorrow"])
def test_a_time_without_zone_is_no_time_to_begin_by(text):
    terms = Terms.make("fedvs", 3, options={}, data={"name": "digits"}).plain()
    manifest = Manifest("s", "fedvs", ENTRIES, terms=terms | {"begin_by": text})
    with pytest.raises(SecureVFLError, match=r"no terms that this version reads \(begin_by: "):
        Terms.of(manifest)
