"""From rows to statistics: counts of values and pairs, moments, scatter matrices, sketches."""
