"""SpikeInit: deep spiking networks that train without any normalisation.

    from armillary.neuro.spikeinit import depth_profile, init_

    report = init_(model, sample=batch)                  # weights and surrogates, in place
    depth_profile(model, batch, loss_fn)                 # where spikes die, a row a layer

The model may be made of SpikingJelly's, snnTorch's or this package's neurons. `solve` gives the
numbers alone: the scale of weights and the width of the surrogate for a neuron and a firing rate.

Source: Shi and Yu, "Training Deep Spiking Neural Networks without Normalization", ICML 2026.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.lazy import attach

if TYPE_CHECKING:
    from armillary.neuro.spikeinit.adapters import UnsupportedNeuron as UnsupportedNeuron
    from armillary.neuro.spikeinit.apply import InitReport as InitReport
    from armillary.neuro.spikeinit.apply import LayerReport as LayerReport
    from armillary.neuro.spikeinit.apply import NormalisationFound as NormalisationFound
    from armillary.neuro.spikeinit.apply import UnstandardisedInput as UnstandardisedInput
    from armillary.neuro.spikeinit.apply import init_ as init_
    from armillary.neuro.spikeinit.apply import spiking_normal_ as spiking_normal_
    from armillary.neuro.spikeinit.calibration import calibrate as calibrate
    from armillary.neuro.spikeinit.models import deep_ms_resnet as deep_ms_resnet
    from armillary.neuro.spikeinit.models import deep_sew_resnet as deep_sew_resnet
    from armillary.neuro.spikeinit.models import plain_mlp as plain_mlp
    from armillary.neuro.spikeinit.models import vgg9_snn as vgg9_snn
    from armillary.neuro.spikeinit.neurons import LIF as LIF
    from armillary.neuro.spikeinit.neurons import AdaptiveLIF as AdaptiveLIF
    from armillary.neuro.spikeinit.neurons import SurrogateSpike as SurrogateSpike
    from armillary.neuro.spikeinit.profile import depth_profile as depth_profile
    from armillary.neuro.spikeinit.solving import SpikeInitParams as SpikeInitParams
    from armillary.neuro.spikeinit.solving import solve as solve
    from armillary.neuro.spikeinit.theory import Neuron as Neuron
    from armillary.neuro.spikeinit.theory import UnstableRate as UnstableRate
    from armillary.neuro.spikeinit.theory import max_rate as max_rate

_HOMES = {
    "AdaptiveLIF": "neurons",
    "InitReport": "apply",
    "LIF": "neurons",
    "LayerReport": "apply",
    "Neuron": "theory",
    "NormalisationFound": "apply",
    "SpikeInitParams": "solving",
    "SurrogateSpike": "neurons",
    "UnstableRate": "theory",
    "UnstandardisedInput": "apply",
    "UnsupportedNeuron": "adapters",
    "calibrate": "calibration",
    "deep_ms_resnet": "models",
    "deep_sew_resnet": "models",
    "depth_profile": "profile",
    "init_": "apply",
    "max_rate": "theory",
    "plain_mlp": "models",
    "solve": "solving",
    "spiking_normal_": "apply",
    "vgg9_snn": "models",
}

__all__ = list(_HOMES)

__getattr__ = attach(__name__, _HOMES, slug="spikeinit", extra="neuro")
