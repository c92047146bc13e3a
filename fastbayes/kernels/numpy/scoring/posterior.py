"""From log joints and weights to posteriors and classes in numpy: what both back ends have."""

from fastbayes.kernels.shared.posterior import (
    heaviest,
    normalise,
    to_class,
    to_labels,
    to_posterior,
    to_rows,
)

__all__ = ["heaviest", "normalise", "to_class", "to_labels", "to_posterior", "to_rows"]
