"""Scoring of naive Bayes."""

from __future__ import annotations

from fastbayes.plain.log_joint import Scorer

__all__ = ["Scorer"]
