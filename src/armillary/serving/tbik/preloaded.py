"""What the server of forks imports once for all ranks; nothing here starts a thread."""

import torch
import torch.distributed
import transformers.generation.utils
import transformers.models.llama.modeling_llama
import transformers.models.qwen2.modeling_qwen2
import transformers.models.qwen3.modeling_qwen3  # noqa: F401

import armillary.serving.tbik.hf
import armillary.serving.tbik.peers  # noqa: F401

torch.set_num_threads(1)
