"""Reinforcement learning: environments and constrained control."""
