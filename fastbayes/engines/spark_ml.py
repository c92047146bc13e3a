"""A classifier as a stage of Spark's ML pipelines: its executors count, and score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.ml import Estimator, Model
from pyspark.ml.functions import array_to_vector
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import HasLabelCol, HasPredictionCol, HasProbabilityCol
from pyspark.ml.util import (
    DefaultParamsReadable,
    DefaultParamsReader,
    DefaultParamsWritable,
    DefaultParamsWriter,
    MLReadable,
    MLReader,
    MLWritable,
    MLWriter,
)

from fastbayes.core.errors import SchemaError
from fastbayes.core.picks import unknown_column
from fastbayes.data.source import frame_of_engine
from fastbayes.models.estimator.appended import LabelsAndPosteriors
from fastbayes.models.estimator.store import from_bytes, to_bytes
from fastbayes.models.registry import by_name

__all__ = ["FastBayesClassifier", "FastBayesModel"]


class FastBayesClassifier(
    Estimator["FastBayesModel"],
    HasLabelCol,
    HasPredictionCol,
    HasProbabilityCol,
    DefaultParamsReadable["FastBayesClassifier"],
    DefaultParamsWritable,
):
    """A classifier of fastbayes as an estimator for `pyspark.ml.Pipeline`.

    Columns are texts, numbers and booleans as they are: no indexer, encoder or assembler goes
    before it. It works over Spark Connect, too.

    Parameters
    ----------
    model
        Name of the classifier, as on the command line: "naive-bayes", "tan", "aode", ...
    labelCol
        Name of the class column, of any type that a class may have. Evaluators of Spark want
        doubles.
    featuresCols
        Names of the features; None takes all columns but the class.
    predictionCol
        Name of the column of labels that is appended, of the type of the class column; "" for none.
    probabilityCol
        Name of the column that is appended with a vector of the posteriors, in the order of
        `classifier.classes_`; "" for none.
    **parameters
        Those of the classifier's constructor, such as `alpha`; the param `parameters` holds them.

    Examples
    --------
    >>> from pyspark.ml import Pipeline  # doctest: +SKIP
    >>> stage = fb.engines.spark.FastBayesClassifier("tan", labelCol="delayed")  # doctest: +SKIP
    >>> Pipeline(stages=[stage]).fit(frame).transform(frame)  # doctest: +SKIP
    """

    model: Param[str] = Param(
        Params._dummy(), "model", "name of the classifier", TypeConverters.toString
    )
    featuresCols: Param[list[str]] = Param(
        Params._dummy(),
        "featuresCols",
        "names of the features; if not set, all columns but the class",
        TypeConverters.toListString,
    )
    parameters: Param[dict[str, Any]] = Param(
        Params._dummy(), "parameters", "parameters of the classifier by name"
    )

    def __init__(
        self,
        model: str = "naive-bayes",
        *,
        labelCol: str = "label",
        featuresCols: Sequence[str] | None = None,
        predictionCol: str = "prediction",
        probabilityCol: str = "probability",
        **parameters: Any,
    ) -> None:
        super().__init__()
        given = {"labelCol": labelCol, "predictionCol": predictionCol, "model": model}
        self._set(**given, probabilityCol=probabilityCol, parameters=parameters)
        if featuresCols is not None:
            self._set(featuresCols=[*featuresCols])

    def _fit(self, dataset: Any) -> FastBayesModel:
        name, label = self.getOrDefault(self.model), self.getLabelCol()
        if name not in (known := by_name()):
            raise ValueError(f"model={name!r}: use one of {[*known]}")
        if self.isDefined(self.featuresCols):
            wanted, columns = self.getOrDefault(self.featuresCols), dataset.columns
            if lacking := [column for column in wanted if column not in columns]:
                raise SchemaError(unknown_column(lacking[0], columns, "the frame"))
            dataset = dataset.drop(*({*columns} - {*wanted, label}))
        classifier = known[name].load()(**self.getOrDefault(self.parameters))
        return self._copyValues(FastBayesModel(classifier.fit(dataset, label)))


class FastBayesModel(
    Model,
    HasLabelCol,
    HasPredictionCol,
    HasProbabilityCol,
    MLReadable["FastBayesModel"],
    MLWritable,
):
    """A fitted `FastBayesClassifier`, which appends labels and posteriors to a frame.

    Parameters
    ----------
    classifier
        A fitted classifier of fastbayes.

    Attributes
    ----------
    classifier
        It: to `save` to a file that fastbayes reads without Spark, to explain, to go on learning.
    """

    def __init__(self, classifier: Any) -> None:
        super().__init__()
        self.classifier = classifier

    def _transform(self, dataset: Any) -> Any:
        names = self.getPredictionCol(), self.getProbabilityCol()
        scored = LabelsAndPosteriors(self.classifier, dataset.columns, *names)
        found = frame_of_engine(dataset).append_to(dataset, scored)
        if not names[1]:
            return found
        quoted = names[1].replace("`", "``")
        return found.withColumn(names[1], array_to_vector(found[f"`{quoted}`"]))

    def write(self) -> MLWriter:
        """Return what writes the params and the classifier, by `save(path)`."""
        return _ModelWriter(self)

    @classmethod
    def read(cls) -> MLReader[FastBayesModel]:
        """Return what reads a model that was written, by `load(path)`."""
        return _ModelReader()


class _ModelWriter(MLWriter):
    def __init__(self, instance: FastBayesModel) -> None:
        super().__init__()
        self._instance = instance

    def saveImpl(self, path: str) -> None:
        """Write the params as Spark does, and beside them the bytes of the classifier."""
        session: Any = self.sparkSession
        DefaultParamsWriter.saveMetadata(self._instance, path, session)
        data = bytearray(to_bytes(self._instance.classifier))
        session.createDataFrame([(data,)], "classifier binary").write.parquet(f"{path}/classifier")


class _ModelReader(MLReader[FastBayesModel]):
    def load(self, path: str) -> FastBayesModel:
        """Return the model of a directory."""
        session: Any = self.sparkSession
        metadata = DefaultParamsReader.loadMetadata(path, session)
        (row,) = session.read.parquet(f"{path}/classifier").collect()
        found = FastBayesModel(from_bytes(bytes(row[0])))._resetUid(metadata["uid"])
        DefaultParamsReader.getAndSetParams(found, metadata)
        return found
