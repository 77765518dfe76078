"""Which filter breaks a pixel policy? Imitate an expert under one look, then change one axis.

Needs: pip install 'armillary[rl]'; no network.
"""

import jax

from armillary.rl.kage import Kage, check_pair, evaluate, imitation, load_config, suites

pairs = [suites()["filters"][i] for i in (0, 3)]  # brightness, hue
for pair in pairs:
    check_pair(pair.train, pair.eval)  # raises AxisLeakError if the world differed

# A look is data: one program draws every configuration with the same features.
look = load_config(pairs[0].train)
env = Kage(look.caps, size=32)
params = env.params(look)
states = jax.jit(env.reset_batch)(jax.random.split(jax.random.PRNGKey(0), 8), params)
frames = jax.jit(env.render_batch)(states, params)
print("frames", frames.shape, frames.dtype)

# Small on purpose: the defaults take some seconds more and give a better policy.
policy = imitation.train(env, params, imitation.Settings(walks=4, updates=60), seed=0)
report = evaluate(policy, pairs, episodes=4, seed=1)
columns = ["id", "success_train", "success_eval", "distance_eval", "policy_gap"]
print(report[columns].round(2).to_string(index=False))
