"""The command line. Every sub-command is loaded when it is asked for, not before."""

from armillary.cli.root import main

__all__ = ["main"]
