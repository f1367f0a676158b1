"""An examination of this computer says what it found, and what to change."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from securevfl import doctor
from securevfl.field.kernels import cpu
from tests.cli.calls import call


def finding(name: str) -> doctor.Finding:
    return next(one for one in doctor.examine() if one.name == name)


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (cpu.VARIABLE, "SECUREVFL_DATA", "NUMBA_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)


def test_every_topic_is_examined():
    names = [one.name for one in doctor.examine()]
    assert len(names) == len(set(names))
    wanted = ("processor", "kernels", "kernel cache", "BLAS", "packages", "memory", "ports")
    assert {*wanted} <= {*names}


def test_advice_stands_where_and_only_where_something_is_wrong_or_slow():
    for one in doctor.examine():
        assert one.status in ("ok", doctor.SLOW, doctor.FAULT)
        assert bool(one.advice) or one.status == "ok"


def test_the_fastest_kernels_are_named_with_the_reason():
    assert finding("kernels").value.startswith(f"{cpu.available()[-1]}")


@pytest.mark.skipif(len(cpu.available()) < 2, reason="this processor has portable kernels only")
def test_slower_kernels_that_were_asked_for_are_told(monkeypatch):
    monkeypatch.setenv(cpu.VARIABLE, "portable")
    found = finding("kernels")
    assert found.status == doctor.SLOW
    assert "SECUREVFL_KERNELS=portable" in found.advice
    assert cpu.available()[-1] in found.advice


def test_kernels_that_may_not_be_compiled_are_a_fault(monkeypatch):
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    found = finding("kernels")
    assert found.status == doctor.FAULT
    assert found.advice.endswith("Unset it.")


def test_kernels_that_do_not_exist_are_a_fault(monkeypatch):
    monkeypatch.setenv(cpu.VARIABLE, "fast")
    found = finding("kernels")
    assert found.status == doctor.FAULT
    assert "SECUREVFL_KERNELS=fast cannot run here" in found.advice
    assert "kernels none" in doctor.one_line()


def test_a_cache_of_kernels_that_can_be_written(monkeypatch, tmp_path):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    found = finding("kernel cache")
    assert found.status == "ok"
    assert str(tmp_path / "cache") in found.value


def test_a_cache_of_kernels_that_cannot_be_written(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file"))
    found = finding("kernel cache")
    assert found.status == doctor.SLOW
    assert "NUMBA_CACHE_DIR" in found.advice


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="the superuser may write")
def test_a_folder_without_the_right_to_write(tmp_path):
    tmp_path.chmod(0o500)
    assert not doctor.writable(tmp_path / "runs")


def test_a_package_that_is_missing_is_a_fault(monkeypatch):
    version = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: None if name == "numba" else version(name))
    found = finding("packages")
    assert found.status == doctor.FAULT
    assert "pip install 'numba>=" in found.advice
    assert "numba missing" in doctor.one_line()


def test_a_package_that_is_too_old_is_a_fault(monkeypatch):
    monkeypatch.setattr(doctor, "_version", lambda name: "0.0.1")
    assert "'numpy>=2.0'" in finding("packages").advice


def test_an_extra_says_how_it_is_installed(monkeypatch):
    monkeypatch.setattr(doctor, "_version", lambda name: None if name == "ray" else "99")
    assert "ray: lacks ray (pip install 'securevfl[ray]')" in finding("extras").value


def test_little_memory_is_a_fault(monkeypatch):
    import psutil

    memory = SimpleNamespace(available=200_000_000, total=8_000_000_000)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    assert finding("memory").status == doctor.FAULT
    assert finding("memory").value == "0.2 of 8.0 GB free"


def test_a_folder_of_data_sets_that_is_not_there(monkeypatch, tmp_path):
    monkeypatch.setenv("SECUREVFL_DATA", str(tmp_path / "nowhere"))
    assert finding("data sets").status == doctor.FAULT
    monkeypatch.setenv("SECUREVFL_DATA", str(tmp_path))
    assert finding("data sets").status == "ok"


def test_a_port_that_is_taken_is_told(monkeypatch):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        monkeypatch.setattr(doctor, "RAY_PORTS", {port: "--port"})
        found = finding("ports")
    assert found.status == "ok"  # a run without --address looks for free ports
    assert "--port=ANOTHER" in found.advice
    assert str(port) in found.value


def test_the_command_shows_findings_and_advice(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv(cpu.VARIABLE, "fast")
    result = call("doctor")
    assert result.exit_code == 1
    assert "cannot run here" in " ".join(result.stdout.split())
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_the_command_as_json_with_exit_code_0_where_nothing_is_wrong(monkeypatch):
    monkeypatch.setattr(doctor, "examine", lambda: [doctor.Finding("a", "b")])
    result = call("doctor", "--json")
    assert result.exit_code == 0
    wanted = {"name": "a", "value": "b", "advice": "", "status": "ok"}
    assert json.loads(result.stdout) == {"findings": [wanted]}
    assert "Nothing has to be changed." in call("doctor").stdout
