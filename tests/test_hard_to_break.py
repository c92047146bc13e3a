"""What users get wrong: one clear line that names column, value, row or file, and the remedy."""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import fastbayes as fb
from fastbayes.core.date_parts import holds
from fastbayes.core.errors import (
    DataError,
    FastBayesWarning,
    FileFormatError,
    MemoryLimitError,
    NotFittedError,
    SchemaError,
)

ROWS = 50_000  # a row in the third Parquet row group, the first block
GOOD = pa.table(
    {
        "colour": np.array(["red", "green", "blue"])[np.arange(ROWS) % 3],
        "size": np.arange(ROWS) % 7 / 2,
        "ripe": np.arange(ROWS) % 2 == 0,
        "kind": np.array(["apple", "pear"])[np.arange(ROWS) // 3 % 2],
    }
)
FEATURES = GOOD.drop_columns("kind")


def fit(source: Any, target: Any = "kind", **options: Any) -> Any:
    return fb.NaiveBayes().fit(source, target, **options)


def count(source: Any, target: Any = "kind", **options: Any) -> Any:
    return fb.count(source, target, **options)


def fit_some_more(source: Any, target: Any = "kind", **options: Any) -> Any:
    return fb.NaiveBayes().fit(GOOD, "kind").partial_fit(source, target, **options)


learning = pytest.mark.parametrize("learn", [fit, count, fit_some_more])


@contextmanager
def said(error: type[Exception], *words: str) -> Iterator[None]:
    """Expect an error of one line with these words in it, and the remedy among them."""
    with pytest.raises(error) as caught:
        yield
    message = str(caught.value)
    assert "\n" not in message
    assert [word for word in words if word not in message] == [], message


def changed(name: str, row: int, value: Any, table: pa.Table = GOOD, kind: Any = None) -> pa.Table:
    column = table[name].to_pylist()
    column[row] = value
    return table.set_column(table.column_names.index(name), name, pa.array(column, kind))


# Files


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    path = tmp_path / "fruit.parquet"
    pq.write_table(GOOD, path, row_group_size=20_000)
    return path


WRITERS: dict[str, Callable[[pa.Table, str], Any]] = {
    "parquet": pq.write_table,
    "arrow": lambda table, path: pa.feather.write_feather(table, path),
    "csv": pa.csv.write_csv,
}
FORMATS = ["parquet", "arrow", "csv", "json", "orc", "csv.gz"]


@learning
@pytest.mark.parametrize("suffix", FORMATS)
def test_missing_file(learn: Any, suffix: str, tmp_path: Path) -> None:
    path = str(tmp_path / f"nowhere.{suffix}")
    with said(DataError, path, "no such file"):
        learn(path)
    with said(DataError, "nowhere.*"):
        learn(str(tmp_path / "nowhere.*"))
    with said(DataError, str(tmp_path)):
        learn(tmp_path)  # a directory without files


@learning
@pytest.mark.parametrize("suffix", FORMATS)
def test_empty_file(learn: Any, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"empty.{suffix}"
    path.touch()
    with said(FileFormatError, str(path), "empty", "write it again or leave it out"):
        learn(path)


@learning
@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@pytest.mark.parametrize("share", [0.01, 0.5, 0.99, 0.9999])
def test_truncated_file(learn: Any, suffix: str, share: float, tmp_path: Path) -> None:
    path = tmp_path / f"cut.{suffix}"
    WRITERS[suffix](GOOD, str(path))
    blob = path.read_bytes()
    path.write_bytes(blob[: int(len(blob) * share)])
    with said(FileFormatError, str(path), "write"):
        learn(path)


@learning
def test_damaged_file(learn: Any, parquet: Path) -> None:
    blob = bytearray(parquet.read_bytes())
    blob[4 : len(blob) // 2] = b"\xff" * (len(blob) // 2 - 4)
    parquet.write_bytes(blob)
    with said(FileFormatError, str(parquet)):
        learn(parquet)


def test_file_of_another_kind(tmp_path: Path) -> None:
    for name, content in (("a.parquet", b"colour,kind\nred,apple\n"), ("b.csv", b"\x00\xff" * 50)):
        (tmp_path / name).write_bytes(content)
        with said(DataError, name):
            fit(tmp_path / name)


def test_one_broken_file_of_many(tmp_path: Path) -> None:
    for i in range(3):
        pq.write_table(GOOD.slice(i * 100, 100), tmp_path / f"part-{i}.parquet")
    later = GOOD.slice(0, 10).append_column("price", pa.array([1.0] * 10))
    pq.write_table(later, tmp_path / "part-3.parquet")
    strict = fb.Files(str(tmp_path), schema_mode="strict")
    with said(SchemaError, "part-3.parquet", "'price'", "columns="):
        fit(strict)
    pq.write_table(GOOD.slice(0, 10).drop_columns("size"), tmp_path / "part-3.parquet")
    with said(SchemaError, "part-3.parquet", "'size'"):
        fit(strict)


# Target


@learning
@pytest.mark.parametrize("where", ["memory", "parquet"])
def test_target_not_among_the_columns(learn: Any, where: str, parquet: Path) -> None:
    with said(SchemaError, "no column 'kinds'", "kind", "colour"):
        learn(GOOD if where == "memory" else parquet, "kinds")


@pytest.mark.parametrize("learn", [fit, count])
@pytest.mark.parametrize("kind", [pa.string(), pa.null(), pa.int64(), pa.float64()], ids=str)
def test_target_all_null(learn: Any, kind: Any) -> None:
    table = FEATURES.append_column("kind", pa.nulls(ROWS, kind))
    with said(DataError, "column 'kind'", "null", str(ROWS), "choose another target"):
        learn(table)


@pytest.mark.parametrize("learn", [fit, count])
def test_target_all_nan(learn: Any) -> None:
    table = FEATURES.append_column("kind", pa.array(np.full(ROWS, np.nan)))
    with said(DataError, "column 'kind'", "null", "choose another target"):
        learn(table)


def test_one_class_is_a_warning_and_fits() -> None:
    rows = GOOD.filter(pa.compute.equal(GOOD["kind"], "pear"))
    with pytest.warns(FastBayesWarning, match="only one class, 'pear'"):
        model = fit(rows)
    assert model.classes_.tolist() == ["pear"]
    assert (model.predict_proba(FEATURES) == 1).all()
    assert set(model.predict(FEATURES)) == {"pear"}
    assert count(rows).values.class_counts.tolist() == [len(rows)]


@learning
def test_no_rows(learn: Any) -> None:
    nothing = GOOD.slice(0, 0)
    if learn is fit:
        with said(DataError, "no rows"):
            learn(nothing)
    else:
        learn(nothing)


def test_target_with_as_many_classes_as_rows() -> None:
    table = pa.table({"x": ["p"] * 70_000, "id": np.arange(70_000)})
    with said(DataError, "column 'id'", "65535", "cannot be the target", "choose"):
        fit(table, "id")


# Columns


@learning
@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.array([[1, 2]] * ROWS), ("list<item: int64>", "leave it out", "explode it")),
        (
            pa.array([0] * ROWS, pa.timestamp("us")),
            ("timestamp[us]", "cast it to a number", "hour"),
        ),
        (pa.array([0] * ROWS, pa.date32()), ("date32", "cast it to a number", "month")),
        (pa.array([0] * ROWS, pa.duration("s")), ("duration", "cast it to a number")),
        (pa.array([b"x"] * ROWS), ("binary", "cast it to string")),
    ],
    ids=lambda v: v[0] if isinstance(v, tuple) else "",
)
@pytest.mark.parametrize("name", ["extra", "kind"])
def test_types_that_cannot_be_used(
    learn: Any, column: pa.Array, words: tuple[str, ...], name: str
) -> None:
    table = GOOD if name == "extra" else FEATURES
    if name == "extra" and (learn is fit_some_more or holds(column.type)):
        return  # a column that the model does not know, or whose parts are features
    if name == "kind":  # a class is no feature, and cannot be left out
        is_list = pa.types.is_list(column.type)
        words = words[0], "cannot be the class", "make a column" if is_list else "cast it to string"
    with said(SchemaError, f"column '{name}'", *words):
        learn(table.append_column(name, column))


def test_pandas_dates() -> None:
    frame = pd.DataFrame({"when": [datetime.datetime(2020, 1, 1)] * 2, "kind": ["apple", "pear"]})
    assert fit(frame, "kind").schema_.columns == ("when",)
    mixed = pd.DataFrame({"what": ["a", 1], "kind": ["apple", "pear"]})
    with said(DataError, "column 'what'", "row 1", "1", "one type"):
        fit(mixed, "kind")
    nested = pd.DataFrame({"what": [object(), object()], "kind": ["apple", "pear"]})
    with said(DataError, "column 'what'", "row 0", "string or a real number"):
        fit(nested, "kind")


@learning
def test_duplicate_column_names(learn: Any, tmp_path: Path) -> None:
    twice = pa.Table.from_arrays([*GOOD.columns, GOOD["size"]], [*GOOD.column_names, "size"])
    with said(SchemaError, "two columns named 'size'", "rename"):
        learn(twice)
    frame = pd.DataFrame([["red", 1.0, 2.0, "pear"]], columns=["colour", "size", "size", "kind"])
    with said(SchemaError, "two columns named 'size'", "rename"):
        learn(frame)
    (tmp_path / "twice.csv").write_text("colour,size,size,kind\nred,1,2,pear\n")
    with said(SchemaError, "twice.csv", "two columns named 'size'", "rename"):
        learn(tmp_path / "twice.csv")


@learning
@pytest.mark.parametrize("value", [np.inf, -np.inf])
@pytest.mark.parametrize("where", ["memory", "float32", "parquet", "csv", "stream"])
def test_infinite_numbers(learn: Any, value: float, where: str, tmp_path: Path) -> None:
    row = 41_234
    kind = pa.float32() if where == "float32" else pa.float64()
    table = changed("size", row, value, kind=kind)
    source: Any = table
    words = ["column 'size'", f"row {row}", str(value), "null to treat it as missing"]
    if where in ("parquet", "csv"):
        source = tmp_path / f"fruit.{where}"
        if where == "parquet":
            pq.write_table(table, source, row_group_size=20_000)
        else:
            pa.csv.write_csv(table, source)
        words.append(f"fruit.{where}")
    elif where == "stream":
        source = table.to_reader(1000)
    with said(DataError, *words):
        learn(source)


def test_infinite_classes() -> None:
    table = pa.table({"x": [*"uv"] * 2, "y": [0.0, np.inf] * 2})
    for learn in (fb.NaiveBayes().fit, fb.NaiveBayes().partial_fit, fb.TAN().fit):
        with said(DataError, "column 'y' holds infinity as a class", "cast the column to string"):
            learn(table, "y")


def test_numbers_whose_squares_overflow() -> None:
    table = pa.table({"x": [1e200, -1e200, 1.0, 2.0], "y": ["a", "a", "b", "b"]})
    with said(DataError, "column 'x'", "overflow", "rescale"):
        fit(table, "y")


# Weights


@learning
@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
@pytest.mark.parametrize("how", ["column", "array"])
def test_weights_that_are_none(learn: Any, value: float, how: str) -> None:
    weight = np.ones(ROWS)
    weight[1234] = value
    words = ["row 1234", str(value)]
    if how == "column":
        with said(DataError, "'w'", ">= 0", *words):
            learn(GOOD.append_column("w", pa.array(weight)), sample_weight="w")
    else:
        with said(DataError, "weight", *words):
            learn(GOOD, sample_weight=weight)


@learning
def test_weights_of_another_length_or_type(learn: Any) -> None:
    with said(DataError, "weight", "7", str(ROWS)):
        learn(GOOD, sample_weight=np.ones(7))
    with said(SchemaError, "'colour'", "numbers are needed", "cast"):
        learn(GOOD, sample_weight="colour")
    with said(SchemaError, "no column 'w'"):
        learn(GOOD, sample_weight="w")


def test_weights_all_zero() -> None:
    with said(DataError, "weight", "zero"):
        fit(GOOD, sample_weight=np.zeros(ROWS))


# Memory


@pytest.mark.parametrize("kind", ["text", "dictionary", "whole"])
def test_a_million_values_under_a_memory_limit(kind: str) -> None:
    n = 1_000_000
    values = pa.array(np.random.default_rng(0).permutation(n))
    if kind != "whole":
        values = values.cast(pa.string())
    if kind == "dictionary":
        values = values.dictionary_encode()
    table = pa.table({"few": np.arange(n) % 3, "id": values, "kind": np.arange(n) % 2})
    for learn in (
        lambda: fb.NaiveBayes(memory_limit=30_000_000, categorical=["id"]).fit(table, "kind"),
        lambda: fb.count(table, "kind", categorical=["id"], memory_limit=30_000_000),
    ):
        with said(MemoryLimitError, "column 'id'", "memory_limit=30,000,000", "leave it out"):
            learn()
    assert fb.count(table, "kind", columns=["few"], memory_limit=30_000_000).n_rows == n


# Rows to predict


@pytest.fixture(scope="module")
def model() -> fb.NaiveBayes:
    return fb.NaiveBayes().fit(GOOD, "kind")


ANSWERS = ["predict", "predict_proba", "log_joint", "decide", "explain", "log_evidence"]


@pytest.mark.parametrize("method", ANSWERS)
def test_predict__before_fit(method: str) -> None:
    with pytest.raises((NotFittedError, ValueError), match="not fitted"):
        getattr(fb.NaiveBayes(), method)(FEATURES)


@pytest.mark.parametrize("method", ANSWERS)
@pytest.mark.parametrize(
    ("name", "column", "words"),
    [
        ("size", pa.array(["1.5"] * ROWS), ("string", "numbers are needed", "cast")),
        ("size", pa.array([[1.5]] * ROWS), ("list", "explode")),
        ("size", pa.array([0] * ROWS, pa.timestamp("s")), ("timestamp", "cast")),
        ("colour", pa.array([1] * ROWS), ("was string at fit and is int64 now", "cast")),
        ("colour", pa.array([0] * ROWS, pa.date32()), ("was string at fit and is date32", "cast")),
        ("colour", pa.array([True] * ROWS), ("was string at fit and is bool now", "cast")),
        ("ripe", pa.array([1] * ROWS), ("was bool at fit and is int64 now", "cast")),
        ("ripe", pa.array(["yes"] * ROWS), ("was bool at fit and is string now", "cast")),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_predict__wrong_types(
    model: fb.NaiveBayes, method: str, name: str, column: pa.Array, words: tuple[str, ...]
) -> None:
    table = FEATURES.set_column(FEATURES.column_names.index(name), name, column)
    with said(SchemaError, f"column '{name}'", *words):
        getattr(model, method)(table)


@pytest.mark.parametrize("method", ANSWERS)
def test_predict__missing_column(model: fb.NaiveBayes, method: str, parquet: Path) -> None:
    with said(SchemaError, "column 'size' is missing", "colour"):
        getattr(model, method)(FEATURES.drop_columns("size"))
    pq.write_table(FEATURES.drop_columns("size"), parquet)
    with said(SchemaError, "column 'size' is missing"):
        getattr(model, method)(parquet)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FastBayesWarning)  # that 'Colour' is not used
        with said(SchemaError, "column 'colour' is missing", "Colour"):
            getattr(model, method)(FEATURES.rename_columns(["Colour", "size", "ripe"]))


def test_predict__extra_columns_are_ignored_and_said_once(model: fb.NaiveBayes) -> None:
    more = FEATURES.append_column("when", pa.array([0] * ROWS, pa.timestamp("s")))
    more = more.append_column("what", pa.array([[1]] * ROWS))
    wanted = model.predict_proba(FEATURES)
    sources: list[Callable[[], Any]] = [lambda: more, lambda: more.to_reader(777)]
    for source in sources:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = model.predict_proba(source())
        assert len(caught) == 1
        assert issubclass(caught[0].category, FastBayesWarning)
        assert all(name in str(caught[0].message) for name in ("when", "what"))
        assert (found == wanted).all()


def test_predict__the_target_may_be_there(model: fb.NaiveBayes) -> None:
    assert (model.predict(GOOD) == model.predict(FEATURES)).all()


@pytest.mark.parametrize("method", ANSWERS)
def test_predict__infinite_numbers(model: fb.NaiveBayes, method: str) -> None:
    with said(DataError, "column 'size'", "row 41234", "inf", "null"):
        getattr(model, method)(changed("size", 41_234, np.inf, FEATURES))


@pytest.mark.parametrize("method", ANSWERS)
def test_predict__duplicate_names(model: fb.NaiveBayes, method: str) -> None:
    twice = pa.Table.from_arrays(
        [*FEATURES.columns, FEATURES["size"]], [*FEATURES.column_names, "size"]
    )
    with said(SchemaError, "two columns named 'size'", "rename"):
        getattr(model, method)(twice)


def test_predict__no_rows(model: fb.NaiveBayes) -> None:
    nothing = FEATURES.slice(0, 0)
    assert model.predict(nothing).shape == (0,)
    assert model.predict_proba(nothing).shape == (0, 2)
    assert model.explain(nothing).contributions.shape == (0, 3, 2)


def test_predict__changes_no_state(model: fb.NaiveBayes) -> None:
    before = {name: id(value) for name, value in vars(model).items()}
    for method in ANSWERS:
        getattr(model, method)(FEATURES)
    assert {name: id(value) for name, value in vars(model).items()} == before


def test_predict__unseen_value_when_that_is_an_error() -> None:
    strict = fb.NaiveBayes(unseen="error").fit(GOOD, "kind")
    with said(DataError, "column 'colour'", "row 41234", "'purple'", "not seen", "unseen="):
        strict.predict(changed("colour", 41_234, "purple", FEATURES))


# After an error nothing is left half done


def test_a_failed_fit_leaves_no_fitted_model() -> None:
    model = fb.NaiveBayes()
    with pytest.raises(DataError):
        model.fit(changed("size", 5, np.inf), "kind")
    with pytest.raises((NotFittedError, ValueError), match="not fitted"):
        model.predict(FEATURES)


def test_a_failed_partial_fit_leaves_the_model_as_it_was(model: fb.NaiveBayes) -> None:
    again = fb.NaiveBayes().fit(GOOD, "kind")
    with pytest.raises(DataError):
        again.partial_fit(changed("size", 5, np.inf), "kind")
    with pytest.raises(DataError):
        again.partial_fit(FEATURES.append_column("kind", pa.array(np.arange(ROWS) % 2)), "kind")
    assert again.statistics_ == model.statistics_
    assert again.predict_proba(FEATURES).tobytes() == model.predict_proba(FEATURES).tobytes()


@pytest.mark.parametrize("categorical", [None, ["n"]])
def test_a_column_that_begins_with_nulls_may_become_anything(categorical: Any) -> None:
    y = ["a", "b"]
    nothing = pa.table({"n": pa.nulls(2), "t": pa.nulls(2), "y": y})
    something = pa.table({"n": [1.5, 2.5], "t": ["p", "q"], "y": y})
    whole = fb.NaiveBayes(categorical=categorical).fit(
        pa.concat_tables([something, something]), "y"
    )
    parts = fb.NaiveBayes(categorical=categorical).fit(nothing, "y")
    parts.partial_fit(something, "y").partial_fit(something, "y").partial_fit(nothing, "y")
    assert [f.kind for f in parts.schema_.features] == [f.kind for f in whole.schema_.features]
    assert parts.statistics_.n_rows == 8
    X = something.drop_columns("y")
    np.testing.assert_allclose(parts.predict_proba(X), whole.predict_proba(X), rtol=1e-12)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"alpha": -1}, ("alpha=-1", "finite number >= 0")),
        ({"alpha": np.nan}, ("alpha=nan",)),
        ({"alpha": "much"}, ("alpha='much'", "'loo'")),
        ({"class_prior": "even"}, ("class_prior='even'", "uniform")),
        ({"class_prior": [0.5, 0.6]}, ("class_prior sums to 1.1",)),
        ({"class_prior": {"n": 0.2, "y": 0.8}}, ("class_prior={'n': 0.2", "in their order")),
        ({"columns": len}, ("columns=<built-in function len>: use a name, or a list of names",)),
        ({"exclude": len}, ("exclude=<built-in function len>: use a name, or a list of names",)),
        ({"categorical": len}, ("categorical=<built-in function len>: use a name",)),
        ({"class_prior": [0.2, 0.3, 0.5]}, ("class_prior has shape (3,)", "2 classes")),
        ({"variance": "none"}, ("variance='none'", "per_class")),
        ({"ddof": 2}, ("ddof=2", "one of 0, 1")),
        ({"var_floor": -1}, ("var_floor=-1", ">= 0")),
        ({"missing": "drop"}, ("missing='drop'", "marginalize")),
        ({"unseen": "drop"}, ("unseen='drop'", "ignore")),
        ({"precision": "half"}, ("precision='half'", "exact")),
        ({"unlabelled": "guess"}, ("unlabelled='guess'", "em")),
        ({"threads": 0}, ("threads=0", ">= 1")),
        ({"categorical": ["price"]}, ("no column 'price'", "colour")),
        ({"domains": {"price": ["a"]}}, ("no column 'price'", "colour")),
        ({"domains": {"colour": ["red", "green"]}}, ("'colour'", "row 2", "'blue'", "add it")),
    ],
    ids=lambda v: str(v) if isinstance(v, dict) else "",
)
def test_parameters(options: dict[str, Any], words: tuple[str, ...]) -> None:
    with said(ValueError, *words):
        fb.NaiveBayes(**options).fit(GOOD, "kind")


class ForeignTable:
    """A table of the Arrow protocol whose `columns` are data, as those of arro3 are."""

    def __init__(self, table: pa.Table) -> None:
        self._table, self.columns = table, table.columns

    def __len__(self) -> int:
        return len(self._table)

    def __arrow_c_schema__(self) -> Any:
        return self._table.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


FEW = pa.table({"x": [1.0, None, 3.0, 4.0], "y": ["n", "y", "y", "n"]})


@pytest.mark.parametrize("rows", [ForeignTable(FEW), [FEW[:1], FEW[1:]], (FEW,)])
def test_tables_have_their_names_however_they_come(rows: Any) -> None:
    model, wanted = fb.NaiveBayes().fit(rows, "y"), fb.NaiveBayes().fit(FEW, "y")
    assert model.feature_names_in_.tolist() == ["x"]
    assert model.predict(rows).tolist() == wanted.predict(FEW).tolist()


@pytest.mark.parametrize("labels", [[2**64 - 1, 0, 2**63], [2**63, 1, None]])
def test_whole_numbers_of_64_bits(labels: list[Any]) -> None:
    known = sorted(v for v in labels if v is not None)
    for rows, y in (({"x": ["a", "b", "a"], "y": labels}, "y"), ({"x": ["a", "b", "a"]}, labels)):
        assert fb.count(rows, y).schema.classes.to_pylist() == known
    with said(DataError, "row 0", "beside negative numbers or fractions"):
        fb.count({"x": ["a", "b"], "y": [2**63, -1]}, "y")
    with pytest.raises(DataError, match="row 0: 9223372036854775808 does not fit in 64 bits bes"):
        fb.count({"x": [np.uint64(2**63), 1.5], "y": ["a", "b"]}, "y")


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (pa.array([1] * 4, pa.duration("s")), "cast it to a number"),
        (pa.array([[1.0]] * 4), "make a column of one number a row of it"),
    ],
)
def test_weights_of_a_type_that_is_no_number(weights: pa.Array, words: str) -> None:
    with said(SchemaError, "'w'", "cannot be the weights", words):
        fb.count(FEW.append_column("w", weights), "y", sample_weight="w")


def test_counts_of_other_spans_of_dates_name_what_makes_them_alike() -> None:
    first, labels = datetime.datetime(2024, 1, 1), ["a", "b"] * 30
    days, hours = (
        pa.table({"t": [first + datetime.timedelta(hours=n * i) for i in range(60)], "y": labels})
        for n in (1, 60)
    )
    with said(SchemaError, "dates={'t': [", "`schema`"):
        fb.count(days, "y") + fb.count(hours, "y")


def test_a_bad_cell_at_predict_names_the_remedy_that_works(tmp_path: Path) -> None:
    first, later = tmp_path / "first.csv", tmp_path / "later.csv"
    first.write_text("x,y\n1.5,a\n2,b\n3,a\n")
    later.write_text("x,y\n1.5,a\nn/a,b\n")
    with said(DataError, "'n/a'", "give both to `count`"):
        fb.NaiveBayes().fit(first, "y").predict(later)
    counts = fb.count(first, "y", null_values=["n/a"])
    assert len(fb.NaiveBayes().fit_statistics(counts).predict(later)) == 2
