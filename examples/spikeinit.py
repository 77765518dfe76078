"""Digits through 31 spiking layers without any normalisation: torch's default dies, `init_` trains.

Needs: pip install 'armillary[neuro]'; no network.
"""

import torch

from armillary.corpora import images
from armillary.neuro.spikeinit import deep_ms_resnet, depth_profile, init_, plain_mlp, solve
from armillary.neuro.spikeinit.training import Recipe, accuracy, train

torch.set_num_threads(1)  # layers as small as these are slower on several
pixels, labels = images.digits()
x, y = torch.from_numpy(pixels).unsqueeze(1), torch.from_numpy(labels)
x = (x - x.mean()) / x.std()
train_rows, test_rows = torch.randperm(len(y), generator=torch.Generator().manual_seed(0)).split(
    [1400, 397]
)

# The numbers alone: the scale of weights and the width of the surrogate that keep 10 % spikes.
params = solve(kappa=0.5, lam=0.5, theta=0.5, rate=0.1)
print(f"sigma {params.sigma:.3f}, alpha {params.alpha:.3f}, slope of the rate {params.slope:.2f}")

# A plain network of 40 layers: where do spikes die?
torch.manual_seed(0)
plain = plain_mlp(40, 128, inputs=64)
before = depth_profile(plain, x[:256])
init_(plain, params, sample=x[:256], generator=torch.Generator().manual_seed(0))
after = depth_profile(plain, x[:256])
print("\nlayer  rate with torch's default  after init_")
for layer in (0, 4, 9, 19, 39):
    print(f"{layer + 1:5d}  {before.rate[layer]:25.4f}  {after.rate[layer]:11.4f}")

# A residual network of 31 layers learns to read within 30 steps.
network = deep_ms_resnet(31, 8, T=2, strides=(2, 1, 1), grid=4)
init_(network, sample=x[train_rows[:64]], generator=torch.Generator().manual_seed(0))
losses = train(network, x[train_rows], y[train_rows], Recipe("adam", 3e-3, 30, 32), seed=0)
right = accuracy(network, x[test_rows], y[test_rows])
print(f"\n31 layers: loss {losses[0]:.2f} -> {losses[-1]:.2f}, {100 * right:.1f} % of digits read")
