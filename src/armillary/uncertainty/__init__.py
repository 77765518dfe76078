"""Uncertainty and calibration."""
