"""Language models and sentence embeddings that need no network, and one chat interface.

::

    from armillary import models

    chat = models.chat()                                   # the embedded model, in process
    chat.complete("What is the capital of France?", max_tokens=16).text
    chat.score_options("The capital of France is", [" Paris", " Rome"]).best

    models.chat("http://localhost:8000/v1", "my-model")    # any OpenAI-compatible endpoint
    models.encoder().encode(["a cat", "a kitten"])         # unit vectors, 384 wide

Nothing is downloaded. Importing this package loads nothing heavy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.lazy import attach

if TYPE_CHECKING:
    from armillary.models.conversation import CannotScore as CannotScore
    from armillary.models.conversation import Chat as Chat
    from armillary.models.conversation import Completion as Completion
    from armillary.models.conversation import Delta as Delta
    from armillary.models.conversation import Usage as Usage
    from armillary.models.endpoints import EndpointError as EndpointError
    from armillary.models.layers import LayerProfile as LayerProfile
    from armillary.models.layers import profile_layers as profile_layers
    from armillary.models.local_chat import chat as chat
    from armillary.models.local_model import Embedded as Embedded
    from armillary.models.local_model import embedded as embedded
    from armillary.models.option_scores import OptionScores as OptionScores
    from armillary.models.recordings import Recording as Recording
    from armillary.models.scripts import scripted as scripted
    from armillary.models.sentences import Encoder as Encoder
    from armillary.models.sentences import encoder as encoder

_HOMES = {
    "CannotScore": "conversation",
    "Chat": "conversation",
    "Completion": "conversation",
    "Delta": "conversation",
    "Embedded": "local_model",
    "Encoder": "sentences",
    "EndpointError": "endpoints",
    "LayerProfile": "layers",
    "OptionScores": "option_scores",
    "Recording": "recordings",
    "Usage": "conversation",
    "chat": "local_chat",
    "embedded": "local_model",
    "encoder": "sentences",
    "profile_layers": "layers",
    "scripted": "scripts",
}
__all__ = sorted(_HOMES)
__getattr__ = attach(__name__, _HOMES, slug="armillary.models", extra="models")


def __dir__() -> list[str]:
    return __all__
