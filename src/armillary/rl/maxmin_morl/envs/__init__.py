"""Environments with several objectives and a limit: buildings, traffic, a hopper's energy."""
