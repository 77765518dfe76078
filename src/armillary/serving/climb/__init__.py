"""CLIMB."""
