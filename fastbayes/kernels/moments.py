"""Moments of one numeric column per class."""

from __future__ import annotations

from fastbayes.plain.moments import block_moments

__all__ = ["block_moments"]
