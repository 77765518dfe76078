"""Tango on real input."""

from armillary.graph.tango import Tango

if __name__ == "__main__":
    print(Tango().fit([1.0, 2.0, 3.0]).location_)
