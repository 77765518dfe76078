"""Zachary's karate club: who goes with whom, from one known member a side, and the energy's trace.

Needs: pip install 'armillary[graph]'; no network.
"""

import networkx as nx
import numpy as np
import torch

from armillary.graph.tango import Graph, SklearnTango, sensitivity

club = nx.karate_club_graph()
one_way = torch.tensor(list(club.edges)).T
edges = torch.cat([one_way, one_way.flip(0)], 1)
sides = np.array([club.nodes[i]["club"] for i in club])
graph = Graph(torch.eye(len(club)), edges)  # a member is known by its number alone

# The two leaders are known; all others are to be told.
known = np.zeros(len(club), dtype=bool)
known[[0, 33]] = True

model = SklearnTango(16, num_layers=4, epochs=40, validation_fraction=0, random_state=0)
model.fit(graph, sides, mask=known)
print(f"right about {np.mean(model.predict(graph)[~known] == sides[~known]):.0%} of the others")

trace = model.trace(graph)
print("\nstep  energy  |gradient|  |tangent|    cosine")
for i, (energy, slope, tangent, cosine) in enumerate(
    zip(trace.energy[:-1], trace.grad_norm, trace.tangent_norm, trace.cosine, strict=True)
):
    row = (float(value[0]) for value in (energy, slope, tangent, cosine))
    print("{:4d}  {:6.1f}  {:10.2f}  {:9.2f}  {:8.0e}".format(i, *row))
print(f"steps that raised the energy: {int(trace.rising.sum())}")

hops = nx.single_source_shortest_path_length(club, 16)
far = max(hops, key=lambda node: hops[node])
reach = sensitivity(model.model_, graph, src=16, dst=far)
print(f"\nfrom member 16 to member {far}, {hops[far]} hops away: sensitivity {reach:.1e}")
