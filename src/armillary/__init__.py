"""Armillary: machine-learning methods for your own work, each with its evidence.

Importing this package loads nothing heavy; take a method from its own module::

    from armillary.uncertainty.recalibration import KernelRecalibrator
    from armillary import evidence

    evidence.run("recalibration", profile="quick")
"""

__version__ = "0.1.0"
