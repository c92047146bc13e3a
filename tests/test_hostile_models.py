"""A model file loads and can be used, or it is refused: files with the right digest, changed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from model_mutations import array_mutations, header_mutations

import fastbayes as fb
from fastbayes.core import files

ROWS = 120
GIB = 1 << 30
RNG = np.random.default_rng(0)
WORDS = pa.table(
    {
        "a": RNG.choice(list("xyz"), ROWS),
        "b": RNG.choice(list("pq"), ROWS),
        "c": RNG.choice(list("uvw"), ROWS),
        "y": RNG.choice(["k", "l"], ROWS),
    }
)
NUMBERS = pa.table({"n": RNG.normal(size=ROWS), "m": RNG.normal(size=ROWS), "y": WORDS["y"]})
MIXED = WORDS.append_column("n", NUMBERS["n"]).append_column("m", NUMBERS["m"])
FEW = MIXED.drop_columns(["b", "c"])
HALF = pa.concat_tables([MIXED, MIXED.drop_columns("y")], promote_options="default")
CODES, LABELS = RNG.integers(0, 4, (ROWS, 3)), WORDS["y"].to_numpy(zero_copy_only=False)
EDGES = [("a", "b"), ("a", "y"), ("b", "y")]

MADE: dict[str, tuple[Callable[[], Any], Any]] = {
    "naive": (lambda: fb.NaiveBayes().fit(MIXED, "y"), MIXED),
    "loo": (lambda: fb.NaiveBayes(alpha="loo").fit(MIXED, "y"), MIXED),
    "student": (lambda: fb.NaiveBayes(numeric="student").fit(MIXED, "y"), MIXED),
    "kde": (lambda: fb.NaiveBayes(numeric="kde").fit(MIXED, "y"), MIXED),
    "mdl": (lambda: fb.NaiveBayes(numeric="mdl").fit(MIXED, "y"), MIXED),
    "auto": (lambda: fb.NaiveBayes(numeric="auto").fit(MIXED, "y"), MIXED),
    "em": (lambda: fb.NaiveBayes(unlabelled="em").fit(HALF, "y"), MIXED),
    "spode": (lambda: fb.SPODE().fit(WORDS, "y"), WORDS),
    "tan": (lambda: fb.TAN().fit(WORDS, "y"), WORDS),
    "kdb": (lambda: fb.KDB(k=2).fit(WORDS, "y"), WORDS),
    "aode": (lambda: fb.AODE().fit(WORDS, "y"), WORDS),
    "a2de": (lambda: fb.A2DE().fit(WORDS, "y"), WORDS),
    "joint": (lambda: fb.JointBayes().fit(WORDS, "y"), WORDS),
    "joint gaussian": (lambda: fb.JointGaussian().fit(FEW, "y"), FEW),
    "gaussian": (lambda: fb.GaussianBayes().fit(NUMBERS, "y"), NUMBERS),
    "weighted": (lambda: fb.WeightedNaiveBayes().fit(WORDS, "y"), WORDS),
    "logistic": (lambda: fb.LogisticRegression().fit(MIXED, "y"), MIXED),
    "classifier": (lambda: fb.NetworkClassifier().fit(WORDS, "y"), WORDS),
    "isotonic": (
        lambda: fb.Calibrated(fb.NaiveBayes(), method="isotonic").fit(WORDS, "y"),
        WORDS,
    ),
    "temperature": (lambda: fb.Calibrated(fb.TAN()).fit(WORDS, "y"), WORDS),
    "blend": (lambda: fb.Blend(["naive-bayes", "naive-bayes-bins", "tan"]).fit(MIXED, "y"), MIXED),
    "CategoricalNB": (lambda: fb.CategoricalNB().fit(CODES, LABELS), CODES),
    "MultinomialNB": (lambda: fb.MultinomialNB().fit(CODES, LABELS), CODES),
    "ComplementNB": (lambda: fb.ComplementNB().fit(CODES, LABELS), CODES),
    "BernoulliNB": (lambda: fb.BernoulliNB().fit(CODES > 1, LABELS), CODES > 1),
    "GaussianNB": (lambda: fb.GaussianNB().fit(CODES, LABELS), CODES),
    "network": (
        lambda: fb.BayesianNetwork.from_edges(EDGES).fit(WORDS.select(["a", "b", "y"])),
        None,
    ),
    "statistics": (
        lambda: fb.count(WORDS, "y", pairs=True, folds=3, families=[["a", "b"]]),
        None,
    ),
}


def use(held: Any, asked: Any) -> None:
    """Ask a loaded model; raises AssertionError where it answers what is no answer."""
    repr(held)
    if isinstance(held, fb.Statistics):
        assert held + held - held == held
    elif isinstance(held, fb.BayesianNetwork):
        node = next(iter(held.parents))
        assert np.isfinite(np.asarray(held.query(node).probabilities)).all()
    else:
        posterior = held.predict_proba(asked)
        assert np.isfinite(posterior).all()
        np.testing.assert_allclose(posterior.sum(axis=1), 1, rtol=1e-6)
        held.predict(asked)


# The model was made for other columns, or for less memory: it says so when it is asked.
FOREIGN = "is missing; the model needs it|over memory_limit=|stands more than once|not fitted yet"


@pytest.mark.filterwarnings("ignore")  # of what is strange, and usable
@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("n", [12, pytest.param(400, marks=pytest.mark.slow)])
def test_changed_model__is_usable_or_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, n: int
) -> None:
    monkeypatch.setenv("FASTBAYES_KERNELS", "never")
    make, asked = MADE[name]
    path, changed = tmp_path / "model.fb", tmp_path / "changed.fb"
    fb.save(make(), path)
    header, arrays = files.read(path)
    rng = np.random.default_rng(sum(map(ord, name)) + n)
    headers, contents = header_mutations(header, rng), array_mutations(arrays, rng)
    refused = 0
    for _ in range(n):
        if rng.integers(3):
            what, other = next(headers)
            files.write(changed, other, arrays, force=True)
        else:
            what, more = next(contents)
            files.write(changed, header, more, force=True)
        try:
            with at_most(GIB):
                held = fb.load(changed)
        except (fb.FileFormatError, fb.SchemaError, fb.MemoryLimitError, fb.DataError) as error:
            assert "changed.fb" in str(error) or not isinstance(error, fb.FileFormatError), what
            refused += 1
            continue
        try:
            use(held, asked)
        except Exception as error:
            # scikit-learn's own error of what is not fitted, where that is loaded
            ours = isinstance(error, fb.FastBayesError) or type(error).__name__ == "NotFittedError"
            if not (ours and any(part in str(error) for part in FOREIGN.split("|"))):
                raise AssertionError(f"{what}: {error}") from error
    assert refused


def memory(what: str) -> int:
    """Return bytes that this process holds (VmRSS), or has held (VmHWM)."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{what}:")[2].split()[0]) << 10


@contextmanager
def at_most(n_bytes: int) -> Iterator[None]:
    """Fail where the block, whatever comes of it, adds more to the process at its peak."""
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak is what is held now
    except OSError:
        yield
        return
    before = memory("VmRSS")
    try:
        yield
    finally:
        assert memory("VmHWM") - before < n_bytes


def rewritten(tmp_path: Path, name: str, change: Callable[[Any, Any], None]) -> Path:
    path = tmp_path / "model.fb"
    fb.save(MADE[name][0](), path)
    header, arrays = files.read(path)
    arrays = dict(arrays)
    change(header, arrays)
    files.write(path, header, arrays, force=True)
    return path


def put(place: str, value: Any) -> Callable[[Any, Any], None]:
    """Return what sets a value of the header, by the path of its keys."""

    def change(header: Any, _: Any) -> None:
        *above, last = place.split(".")
        for key in above:
            header = header[key]
        header[last] = value

    return change


def shorter(key: str) -> Callable[[Any, Any], None]:
    def change(_: Any, arrays: Any) -> None:
        arrays[key] = arrays[key][:-1]

    return change


def damaged(key: str, place: Any, value: float) -> Callable[[Any, Any], None]:
    def change(_: Any, arrays: Any) -> None:
        array = arrays[key].copy()
        array[place] = value
        arrays[key] = array

    return change


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("CategoricalNB", put("params.min_categories", 30_000_000), "min_categories=30000000"),
        ("MultinomialNB", put("state.n_numeric", 10**12), "does not fit"),
        ("CategoricalNB", put("state.n_numeric", 10**12), "nothing is held of"),
        ("CategoricalNB", damaged("sizes", 0, 10**9), "fewer counts than codes"),
        ("CategoricalNB", damaged("values.counts", 0, -(2**62)), "not a count"),
        ("naive", put("params.threads", "x"), "threads='x'"),
        ("a2de", put("params.memory_limit", [0]), r"memory_limit=\[0\]"),
        ("naive", put("state.width", 10**9), "features are not of 1000000000 columns"),
        ("GaussianNB", put("state.width", 10**9), "features are not of 1000000000 columns"),
        ("blend", put("state.width", 1), "features are not of 1 columns"),
        ("naive", put("state.dropped_rows", float("inf")), "do not fit together"),
        ("isotonic", shorter("map.share"), "the curves of a map end elsewhere"),
        ("isotonic", damaged("map.share", 0, 0.99), "does not rise"),
        ("temperature", damaged("map.temperature", 0, -1.0), "no temperature"),
        ("joint gaussian", damaged("cell_scatter.scatter", (0, 0, 1), np.inf), "not symmetric"),
        ("joint gaussian", damaged("cell_scatter.count", 0, 1e-320), "not a count"),
        ("gaussian", damaged("scatter.mean", (0, 0), np.nan), "not a number"),
    ],
)
def test_named_cases__are_refused(tmp_path: Path, name: str, change: Any, message: str) -> None:
    path = rewritten(tmp_path, name, change)
    with at_most(GIB), pytest.raises((fb.FileFormatError, fb.MemoryLimitError), match=message):
        fb.load(path)


def nested(deep: int) -> Any:
    value: Any = 0
    for _ in range(deep):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("naive", put("params.domains", nested(40)), "nested more than 32 deep"),
        ("naive", put("params.domains", nested(900)), "nested more than 32 deep"),
        ("statistics", put("provenance", nested(40)), "nested more than 32 deep"),
        ("network", put("kind", nested(40)), "nested more than 32 deep"),
        ("naive", put("params.domains", [[] for _ in range(1 << 14)]), "32,8.. values, over"),
        ("naive", put("params.unseen", "x" * (1 << 20)), "header of 1,04.* bytes, over"),
    ],
)
def test_what_would_grow__is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, change: Any, message: str
) -> None:
    with monkeypatch.context() as patch:  # who wrote it was bound by nothing
        patch.setattr(files, "_check_json", lambda *_: None)
        patch.setattr(files, "_parsed", json.loads)
        path = rewritten(tmp_path, name, change)
    monkeypatch.setattr(files, "HEADER_BYTES", 1 << 20)  # the real ones take seconds to reach
    monkeypatch.setattr(files, "HEADER_VALUES", 1 << 14)
    with at_most(GIB), pytest.raises(fb.FileFormatError, match=f"model.fb: .*{message}"):
        fb.load(path)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"a": nested(40)}, "nested more than 32 deep"),
        ({"a": "x" * (1 << 20)}, "header of 1,04.* bytes"),
        ({"a": [0] * (1 << 14)}, "16,3.. values"),
    ],
)
def test_what_could_not_be_read__is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: Any, message: str
) -> None:
    monkeypatch.setattr(files, "HEADER_BYTES", 1 << 20)
    monkeypatch.setattr(files, "HEADER_VALUES", 1 << 14)
    with pytest.raises((fb.DataError, TypeError), match=message):
        files.write(tmp_path / "a.fb", header, {})
    assert not (tmp_path / "a.fb").exists()


def test_deepest_header__comes_back(tmp_path: Path) -> None:
    header = {"a": nested(31)}
    files.write(tmp_path / "a.fb", header, {})
    assert files.read(tmp_path / "a.fb")[0] == header


def test_cut_after_the_magic__is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.fb"
    path.write_bytes(b"ARROW1\0\0" + b"\0" * 8 + b"ARROW1")
    with pytest.raises(fb.FileFormatError, match=r"model.fb: damaged"):
        fb.load(path)


def test_squares_that_overflow__are_refused_by_logistic_regression() -> None:
    X = np.array([[1e200, 1], [-1e200, 2], [5e199, 3], [3e199, 1]])
    with pytest.raises(fb.DataError, match="column 'x0': squares of its values overflow"):
        fb.LogisticRegression().fit(X, list("abab"))


@pytest.mark.slow
@pytest.mark.parametrize("items", ["[]", "{}", "0", '"é"', "1.5"])
def test_largest_header__stays_within_a_gibibyte(tmp_path: Path, items: str) -> None:
    n = (files.HEADER_VALUES - 100) // (2 if items in ("[]", "{}") else 1)
    header = {"a": [json.loads(items) for _ in range(n)], "b": "x" * (1 << 20) + "\U0001f600"}
    files.write(tmp_path / "a.fb", header, {})
    del header
    with at_most(GIB):
        files.read(tmp_path / "a.fb")


@pytest.mark.slow
def test_longest_text__stays_within_a_gibibyte(tmp_path: Path) -> None:
    files.write(tmp_path / "a.fb", {"b": "x" * (files.HEADER_BYTES - 200) + "\U0001f600"}, {})
    with at_most(GIB):
        files.read(tmp_path / "a.fb")


def test_label_of_millions_of_characters_among_hundreds__is_refused(tmp_path: Path) -> None:
    labels = [f"{i:03}" for i in range(300)]
    fb.NaiveBayes().fit({"a": labels, "y": labels}, "y").save(path := tmp_path / "model.fb")
    header, arrays = files.read(path)
    longer = [*labels[:-1], "z" * 10**7]
    (name,) = (key for key in arrays if key.endswith("schema.classes"))
    files.write(path, header, {**arrays, name: pa.array(longer)}, force=True)
    said = "300 labels, the longest of 10,000,000 characters"
    with at_most(GIB), pytest.raises(fb.FileFormatError, match=f"model.fb: .*{said}"):
        fb.load(path)
    with at_most(GIB), pytest.raises(fb.DataError, match=said):
        fb.NaiveBayes().fit({"a": labels, "y": longer}, "y")


@pytest.mark.parametrize("labels", [["a", "a\0"], ["a\0", "b"]])
def test_label_that_ends_in_nul__is_refused(labels: list[str]) -> None:
    """An array of text in numpy has no such labels: two of them would be one class."""
    y, said = labels * 6, re.escape(r"label 'a\x00' ends in NUL")
    with pytest.raises(fb.DataError, match=said):
        fb.NaiveBayes().fit({"a": list("pq") * 6, "y": y}, "y")
    with pytest.raises(fb.DataError, match=said):
        fb.NaiveBayes().fit({"a": list("pq") * 6}, y)
    with pytest.raises(fb.DataError, match=said):
        fb.GaussianNB().fit(np.ones((12, 1)), np.array(y, object))
    with pytest.raises(fb.DataError, match=said):
        fb.GaussianNB().fit(np.ones((12, 1)), y)
    with pytest.raises(fb.DataError, match=said):
        fb.GaussianNB().partial_fit(np.ones((12, 1)), ["b"] * 12, classes=[*labels, "b"])
