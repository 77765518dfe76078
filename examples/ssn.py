"""Ssn on real input."""

from armillary.neuro.ssn import Ssn

if __name__ == "__main__":
    print(Ssn().fit([1.0, 2.0, 3.0]).location_)
