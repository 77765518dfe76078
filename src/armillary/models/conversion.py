"""A GGUF file becomes a folder of safetensors, once, in the user's cache.

Reading GGUF takes many seconds (every tensor is dequantised); reading safetensors takes a fraction
of one. The folder is bound to the SHA-256 of its source and carries a manifest with the checksum
of each of its files: what does not fit the manifest is built again.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from armillary import places
from armillary.errors import require
from armillary.models.silence import quiet_transformers
from armillary.output.checksums import remembered_sha256, sha256
from armillary.output.files import write_json

#: Raised when what the conversion writes changes, so that older folders are not used.
FORMAT = 1
MANIFEST = "manifest.json"


def converted(source: Path) -> Path:
    """The folder of safetensors made from a GGUF file, building it if need be.

    Safe for several processes at once: the first builds under a lock, the others wait for it.
    A folder that is damaged or half-written is replaced.

    Args:
        source: the GGUF file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not a language model in GGUF.
        MissingExtra: transformers, gguf or accelerate is not installed.
    """
    digest = remembered_sha256(source)
    home = places.cache_dir() / "models"
    folder = home / f"{source.stem}-{digest[:16]}"
    if is_whole(folder, digest):
        return folder
    home.mkdir(parents=True, exist_ok=True)
    with _locked(home / f".{folder.name}.lock"):
        if not is_whole(folder, digest):
            _build(source, digest, folder)
    return folder


def is_whole(folder: Path, digest: str) -> bool:
    """Whether the folder was made from the source of that digest and every file is intact."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
        return (
            manifest["format"] == FORMAT
            and manifest["source"] == digest
            and bool(manifest["files"])
            and all(
                sha256(folder / name) == expected for name, expected in manifest["files"].items()
            )
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # released by the kernel when the process ends
        yield


def _build(source: Path, digest: str, folder: Path) -> None:
    """Build beside the folder and rename; called under the lock."""
    prefix = f".{folder.name}-"
    for left_behind in folder.parent.glob(f"{prefix}*"):
        shutil.rmtree(left_behind, ignore_errors=True)
    building = Path(tempfile.mkdtemp(prefix=prefix, dir=folder.parent))
    try:
        building.chmod(0o755)
        _convert(source, building)
        files = {path.name: sha256(path) for path in sorted(building.iterdir())}
        manifest = {"format": FORMAT, "source": digest, "name": source.stem, "files": files}
        write_json(building / MANIFEST, manifest)
        if folder.exists():
            damaged = Path(tempfile.mkdtemp(prefix=prefix, dir=folder.parent))
            folder.replace(damaged / "damaged")
            shutil.rmtree(damaged, ignore_errors=True)
        building.replace(folder)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise


def _convert(source: Path, folder: Path) -> None:
    what, extra = "reading a GGUF model", "models"
    for module in ("gguf", "accelerate"):
        require(module, what=what, extra=extra)
    torch: Any = require("torch", what=what, extra=extra)
    transformers: Any = require("transformers", what=what, extra=extra)
    place = {"gguf_file": source.name, "local_files_only": True}
    try:
        with quiet_transformers():
            tokenizer = transformers.AutoTokenizer.from_pretrained(source.parent, **place)
            read = transformers.AutoModelForCausalLM.from_pretrained(
                source.parent, dtype=torch.float32, **place
            )
    except (OSError, ValueError, LookupError, RuntimeError, struct.error) as error:
        raise ValueError(
            f"{source.name} cannot be read as a language model in GGUF ({type(error).__name__}: "
            f"{error}); reinstall what it came from, or give the path of another model"
        ) from error
    # A model that came from GGUF refuses to be saved: a fresh one takes over its weights.
    settings = read.config.to_dict()
    for name in ("quantization_config", "_name_or_path", "_model_name_or_path"):
        settings.pop(name, None)
    fresh = type(read)(type(read.config).from_dict(settings))
    fresh.load_state_dict(read.state_dict(), strict=True)
    fresh.tie_weights()
    with quiet_transformers():
        fresh.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
