"""Estimators of ``pyspark.ml`` whose statistics are released with differential privacy."""

from __future__ import annotations

from spark_rdp.ml.naive_bayes import PrivateNaiveBayes, PrivateNaiveBayesModel
from spark_rdp.ml.privacy_curve import privacy_curve

__all__ = ["PrivateNaiveBayes", "PrivateNaiveBayesModel", "privacy_curve"]
