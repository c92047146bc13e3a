"""Numpy twins of `fastbayes.kernels.compiled.reading.order`, which sort domains of any size."""

from __future__ import annotations

from fastbayes.core.text_order import ascending_texts as ascending_texts
from fastbayes.core.text_order import take_texts as take_texts
