"""Serving language models: the same bits at any size, adapters, quantised experts, fleets."""
