"""Whether functions of the loaded library are those of its files."""

import functools

import pytest

from securevfl.audit.following.sources import altered
from securevfl.field import sampling
from securevfl.field.kernels import montgomery, scalar
from securevfl.protocols.base.split_parties import SplitClient
from securevfl.protocols.split import Client


def test_nothing_is_altered_unless_somebody_does():
    assert altered() == []


@pytest.mark.parametrize(
    ("owner", "name", "wrap"),
    [
        (SplitClient, "update", lambda old: lambda *given: old(*given)),
        (SplitClient, "update", lambda old: functools.wraps(old)(lambda *given: old(*given))),
        (SplitClient, "update", lambda old: functools.partial(print)),
        (SplitClient, "update", lambda old: SplitClient.embed),
        (sampling, "uniform", lambda old: lambda *given: old(*given)),
        (sampling.SystemSource, "keystream", lambda old: lambda self: None),
    ],
)
def test_a_replaced_function_is_named(monkeypatch, owner, name, wrap):
    monkeypatch.setattr(owner, name, wrap(vars(owner)[name]))
    assert altered() == [f"{getattr(owner, '__module__', owner.__name__)}."
                         f"{'SplitClient.' * (owner is SplitClient)}"
                         f"{'SystemSource.' * (owner is sampling.SystemSource)}{name}"]  # fmt: skip


def test_a_method_that_a_class_of_the_library_is_given_is_named(monkeypatch):
    monkeypatch.setattr(Client, "update", lambda *given: None, raising=False)
    assert altered() == ["securevfl.protocols.split.Client.update"]


def test_code_that_is_exchanged_within_a_function_is_seen(monkeypatch):
    def update(self, own, gradient):
        return None

    monkeypatch.setattr(SplitClient.update, "__code__", update.__code__)
    assert altered() == ["securevfl.protocols.base.split_parties.SplitClient.update"]


@pytest.mark.parametrize(
    ("module", "path"),
    [
        ("tenseal", "ckks_vector"),
        ("phe.paillier", "PaillierPublicKey.get_random_lt_n"),
        ("random", "SystemRandom.getrandbits"),
        ("cryptography.hazmat.primitives.asymmetric.x25519", "X25519PrivateKey"),
    ],
)
def test_functions_of_packages_below_the_library_are_compared(monkeypatch, module, path):
    *owners, name = path.split(".")
    owner = pytest.importorskip(module)
    for part in owners:
        owner = getattr(owner, part)
    old = getattr(owner, name)
    new = type(name, (), {}) if isinstance(old, type) else lambda *given: old(*given)
    monkeypatch.setattr(owner, name, new)
    assert f"{module}.{path}" in altered()


def test_a_method_that_an_object_of_a_module_is_given_is_seen(monkeypatch):
    monkeypatch.setitem(vars(sampling.SYSTEM), "keystream", lambda: None)
    assert "securevfl.field.sampling.SYSTEM" in altered()


def test_code_in_the_place_of_a_compiled_kernel_is_seen(monkeypatch):
    monkeypatch.setitem(scalar.keep_below._compiled, ("other",), lambda *given: 0)
    assert "securevfl.field.kernels.scalar.keep_below" in altered()


def test_kernels_that_are_compiled_meanwhile_are_sound():
    assert montgomery.redc._numba_type_ is montgomery.redc._numba_type_
    assert altered() == []
