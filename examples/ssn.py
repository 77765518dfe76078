"""Photographs: how an encoder's code changes with contrast, and what it keeps of faint patches.

Needs: pip install 'armillary[neuro]'; no network.
"""

import numpy as np

from armillary.corpora import images
from armillary.neuro.ssn import SSNEncoder, contrast_response, degrade, draw_patches

names = ["astronaut", "brick", "chelsea", "china", "coffee", "flower", "grass", "gravel", "rocket"]
rng = np.random.default_rng(0)
patches = draw_patches([images.photo(name) for name in names], 10, 4000, rng)
unseen = draw_patches([images.photo("camera")], 10, 200, rng)

# Local plasticity, no labels; 120 batches show the switch, the default of 1200 gives better fields.
encoder = SSNEncoder(n_exc=96, n_inh=24, n_iter=120, random_state=0).fit(patches.astype(np.float32))

# The same patches at five contrasts: many units answer faint ones, few answer strong ones.
response = contrast_response(encoder, unseen, [0.1, 0.5, 1.0, 2.0, 4.0])
columns = ["contrast", "active", "sparseness", "energy", "energy_without", "exponent"]
print(response[columns].round(3).to_string(index=False))

# A faint, noisy copy: does its code still point where the clean patch's does?
faint = degrade(unseen, contrast=0.25, noise=0.1, random_state=0)
for label, model in (("lateral connections", encoder), ("none", encoder.ablate())):
    clean, poor = np.sqrt(model.transform(unseen)), np.sqrt(model.transform(faint))
    norms = np.linalg.norm(clean, axis=1) * np.linalg.norm(poor, axis=1)
    cosine = ((clean * poor).sum(axis=1) / np.where(norms > 0, norms, 1)).mean()
    size = np.linalg.norm(poor, axis=1).mean() / np.linalg.norm(clean, axis=1).mean()
    print(f"{label:20s} direction kept {cosine:.2f}, size kept {size:.2f}")

found = encoder.encode(faint)
print(f"{int((~found.converged).sum())} of {len(faint)} patches had not settled")
