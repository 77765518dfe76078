"""Spiking and cortical networks."""
