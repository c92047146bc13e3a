"""From log joints to posteriors and classes in numpy: what both back ends have."""

from fastbayes.kernels.shared.posterior import to_class, to_posterior, to_rows

__all__ = ["to_class", "to_posterior", "to_rows"]
