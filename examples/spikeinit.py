"""Spikeinit on real input."""

from armillary.neuro.spikeinit import Spikeinit

if __name__ == "__main__":
    print(Spikeinit().fit([1.0, 2.0, 3.0]).location_)
