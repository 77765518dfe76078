"""Public data that users bring: what it is, where it is had, and what its bytes must be."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from armillary.output.checksums import remembered_sha256

DATA_VARIABLE = "ARMILLARY_DATA"


@dataclasses.dataclass(frozen=True)
class External:
    """A file of public data that is not shipped.

    Attributes:
        name: what it is asked for by.
        path: where it lies inside the folder of data.
        source: the public GitHub repository, as owner/name.
        inside: where in that repository.
        licence: its licence, as SPDX names it.
        sha256: the checksum of the file.
        about: what it holds.
        installed: where a system package puts the same file, or empty.
        package: that package.
    """

    name: str
    path: str
    source: str
    inside: str
    licence: str
    sha256: str
    about: str
    installed: str = ""
    package: str = ""

    @property
    def how(self) -> str:
        """How a user gets it, in one sentence."""
        system = f"apt install {self.package}, or " if self.package else ""
        return (
            f"{system}take it from {self.inside} of the GitHub repository {self.source} "
            f"({self.licence}) and put it at {self.path} inside a folder that {DATA_VARIABLE} "
            "(or data=, or --data) names"
        )


def _planetoid(name: str, sha256: str) -> External:
    about = (
        "a citation graph with its public split, converted from pickles to arrays: x_indptr, "
        "x_indices, x_data, x_shape (CSR features), y, edges (2, E), train, val, test"
    )
    inside = f"data/ind.{name}.*, converted to npz,"
    return External(name, f"graphs/{name}.npz", "kimiyoung/planetoid", inside, "MIT", sha256, about)


def _azure(kind: str, sha256: str) -> External:
    file = f"AzureLLMInferenceTrace_{kind}.csv"
    about = "arrivals of LLM requests: TIMESTAMP, ContextTokens, GeneratedTokens"
    source = "Azure/AzurePublicDataset"
    return External(
        f"azure-{kind}", f"traces/{file}", source, f"data/{file}", "CC-BY-4.0", sha256, about
    )


def _solubility(part: str, sha256: str) -> External:
    file = f"solubility.{part}.sdf"
    about = "molecules with their aqueous solubility"
    inside = f"Docs/Book/data/{file}"
    return External(
        f"solubility-{part}",
        f"molecules/{file}",
        "rdkit/rdkit",
        inside,
        "BSD-3-Clause",
        sha256,
        about,
    )


def _fashion(part: str, what: str, file: str, sha256: str) -> External:
    about = f"articles of clothing, 28 by 28 pixels, ten classes: {what} ({part}), gzipped IDX"
    return External(
        f"fashion-mnist-{part}-{what}",
        f"images/fashion-mnist/{file}",
        "zalandoresearch/fashion-mnist",
        f"data/fashion/{file}",
        "MIT",
        sha256,
        about,
        f"/usr/share/datasets/fashion-mnist/{file}",
        "dataset-fashion-mnist",
    )


def _vidur(chip: str, sha256: str) -> External:
    return External(
        f"vidur-{chip}",
        f"profiles/vidur_{chip}_llama-2-70b_mlp.csv",
        "microsoft/vidur",
        f"data/profiling/compute/{chip}/meta-llama/Llama-2-70b-hf/mlp.csv",
        "MIT",
        sha256,
        f"measured times of Llama-2-70b's operators on {chip.upper()}",
    )


#: Every file of public data that Armillary knows, in the order of their names.
EXTERNAL: tuple[External, ...] = (
    _azure("code", "54e9a6d2a4bd06ba1e060304b900abbc74cbea53de96506e60fe5bb4f2277fb6"),
    _azure("conv", "2f1e5b666d4e3055fdbba98598ce2ec307767b9064e03e2fa46676dbcc7d0bf8"),
    _planetoid("citeseer", "e3b2ce13394c286e0d981b427ef1332a5d1eabd5ce39c59cd5dbc80de5780929"),
    _planetoid("cora", "2999bc42f3f7fc79093db6e2bd07360f9e313e1ff19d2207e51b2f1f87a53f1a"),
    _fashion(
        "test",
        "images",
        "t10k-images-idx3-ubyte.gz",
        "cc1d090a38ace84dfa1aa66e3ada7c336ef481a96936906477e6dd344da56eaa",
    ),
    _fashion(
        "test",
        "labels",
        "t10k-labels-idx1-ubyte.gz",
        "8d3605d196f4be44669e46906da9733c8131fef761fdbfec72c424d5222f1a05",
    ),
    _fashion(
        "train",
        "images",
        "train-images-idx3-ubyte.gz",
        "b0564c3eedabfbf835052cff8503ea422014ce006caf5b757f851416ee8300c7",
    ),
    _fashion(
        "train",
        "labels",
        "train-labels-idx1-ubyte.gz",
        "0ae29f65d86684f32d1b9c85147786c547b9c6aebcaf235f0400a0cce308b056",
    ),
    External(
        "humaneval",
        "code/HumanEval.jsonl.gz",
        "openai/human-eval",
        "data/HumanEval.jsonl.gz",
        "MIT",
        "b796127e635a67f93fb35c04f4cb03cf06f38c8072ee7cee8833d7bee06979ef",
        "164 programming problems with their tests",
    ),
    External(
        "mooncake-conversation",
        "traces/mooncake_conversation.jsonl",
        "kvcache-ai/Mooncake",
        "FAST25-release/traces/conversation_trace.jsonl",
        "Apache-2.0",
        "b8cbb061a85206d729d91cdc2981f43c9e0d99209dce588d3af5f7934408b9df",
        "a conversation trace: timestamp (ms), input_length, output_length, hash_ids of prefixes",
    ),
    _solubility("test", "71fbac86a75146b2f7a142f8939c159435d20813fbc0022f9fce0510f0e7ee02"),
    _solubility("train", "184a7df425f4a5403d8572c7cf898d259801332f0b7f4fcfab91ccb9aba2994e"),
    _vidur("a100", "d690ce601f94ab80586e1d5a6a92ea0d64114dc3e0895bf32b3bee270f3d9b7f"),
    _vidur("a40", "a666d9463c0f6994f8103175cad6359bd738e6d4f8e66e56f1dcf88482f91485"),
    _vidur("h100", "fb3581ade7c02caab8a0f7d1ca1ad06a7b0fbac3d9f32a9ed46ae55d95fd6bb3"),
)


def external(
    name: str, data: str | os.PathLike[str] | None = None, *, unverified: bool = False
) -> Path:
    """The path of a file of public data, its checksum verified.

    Args:
        name: one of the names in ``EXTERNAL``.
        data: the folder of public data. Default: what ``ARMILLARY_DATA`` names.
        unverified: take the file whatever its checksum (another release, a file of your own in the
            same form).

    Returns:
        The file's path. The checksum is computed once for each state of the file.

    Raises:
        LookupError: there is no such name.
        FileNotFoundError: the file is not there; says where it is had.
        ValueError: the file's checksum is another one, and ``unverified`` is False.
    """
    entry = next((known for known in EXTERNAL if known.name == name), None)
    if entry is None:
        names = ", ".join(known.name for known in EXTERNAL)
        raise LookupError(f"name={name!r} is no public data set; there are: {names}")
    folder = os.fspath(data) if data is not None else os.environ.get(DATA_VARIABLE, "")
    path = Path(folder).expanduser() / entry.path if folder else Path(entry.installed)
    if entry.installed and not path.is_file():
        path = Path(entry.installed)
    if not folder and not path.is_file():
        raise FileNotFoundError(f"{name}: no folder of public data is named; {entry.how}")
    if not path.is_file():
        raise FileNotFoundError(f"{name}: no file {str(path)!r}; {entry.how}")
    if not unverified and (found := remembered_sha256(path)) != entry.sha256:
        raise ValueError(
            f"{name}: {str(path)!r} has the SHA-256 {found[:12]}…, expected "
            f"{entry.sha256[:12]}…: it is another release or damaged; {entry.how}, or pass "
            "unverified=True to take it as it is"
        )
    return path
