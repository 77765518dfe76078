"""Hexgen on real input."""

from armillary.serving.hexgen import Hexgen

if __name__ == "__main__":
    print(Hexgen().fit([1.0, 2.0, 3.0]).location_)
