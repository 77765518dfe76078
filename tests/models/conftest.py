"""Models for tests: a random one that loads in no time, and the real ones where they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from armillary import models
from armillary.models import inventory

TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama of 64 positions over a byte-level BPE that knows "ab" and " a"."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE

    folder = tmp_path_factory.mktemp("tiny")
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: at for at, token in enumerate(["<|end|>", *letters, "ab", "Ġa"])}
    tokenizer = Tokenizer(BPE(vocabulary, [("a", "b"), ("Ġ", "a")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore
    tokenizer.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        config = transformers.LlamaConfig(
            vocab_size=len(vocabulary),
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
            initializer_range=0.4,
            bos_token_id=None,
            eos_token_id=0,
            pad_token_id=0,
        )
        transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny(tiny_folder: Path) -> models.Embedded:
    return models.embedded(tiny_folder)


@pytest.fixture(scope="session")
def smollm(request: pytest.FixtureRequest) -> models.Embedded:
    """The embedded model, converted once into pytest's own cache."""
    if inventory.LANGUAGE_MODEL.path() is None:
        pytest.skip(
            f"{inventory.LANGUAGE_MODEL.name} is absent: {inventory.LANGUAGE_MODEL.command}"
        )
    home = request.config.cache.mkdir("armillary-models")  # pyright: ignore
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ARMILLARY_HOME", str(home))
        patch.delenv("ARMILLARY_MODEL", raising=False)
        return models.embedded()
