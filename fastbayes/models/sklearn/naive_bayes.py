"""scikit-learn's five naive Bayes classes, with its parameters, attributes and numbers."""

from __future__ import annotations

from fastbayes.models.sklearn.drop_in_categorical import CategoricalNB
from fastbayes.models.sklearn.drop_in_discrete import BernoulliNB, ComplementNB, MultinomialNB
from fastbayes.models.sklearn.drop_in_gaussian import GaussianNB

__all__ = ["BernoulliNB", "CategoricalNB", "ComplementNB", "GaussianNB", "MultinomialNB"]
