"""Cut points: what they are, where they come from, and what becomes of a column that is cut."""

from __future__ import annotations

import csv
import decimal
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import run
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import discretize as naive

import fastbayes as fb
from fastbayes.core.errors import DataError, MemoryLimitError, SchemaError
from fastbayes.core.schema import Feature, Schema, from_header, to_header
from fastbayes.data.discretize import (
    FEW_ROWS,
    Method,
    Profile,
    ValueSketch,
    between,
    mdl_cuts,
    methods,
    quantile_cuts,
    width_cuts,
)
from fastbayes.data.encode import Encoder, Place
from fastbayes.data.order import sorted_values
from fastbayes.data.segments import Segment
from fastbayes.data.source import as_at_fit, open_source
from fastbayes.kernels.shared.sketch import bytes_needed, split
from fastbayes.models.estimator.sampling import drawn_values
from fastbayes.scan import engine
from fastbayes.scan.discretization import numeric_cuts


def cuts_of(data, discretize="mdl", target="y", *, weight=None, options=None, **arguments):
    source = open_source(data)
    encoder = Encoder.learning(source.schema, target, weight=weight, **(options or {}))
    found = numeric_cuts(source, encoder, discretize, **arguments)
    return {name: cuts.tolist() for name, cuts in found.items()}


def profile_of(values, labels, weights=None):
    """Return the values of rows with their class weights, exactly."""
    values, labels = np.asarray(values, np.float64), np.asarray(labels, np.int64)
    weights = np.ones(len(values)) if weights is None else np.asarray(weights, np.float64)
    distinct = np.unique(values[weights > 0])
    table = np.zeros((len(distinct), labels.max(initial=0) + 1))
    kept = weights > 0
    np.add.at(table, (np.searchsorted(distinct, values[kept]), labels[kept]), weights[kept])
    return Profile(distinct, distinct, table)


@st.composite
def labelled(draw):
    n, k = draw(st.integers(1, 60)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    values = rng.integers(0, draw(st.sampled_from([2, 8, 1_000])), n) / 4
    shift = draw(st.sampled_from([0.0, 0.01, 1.0]))
    labels = rng.integers(0, k, n)
    if draw(st.booleans()):
        labels = ((values * shift).astype(int) + labels * (rng.random(n) < 0.1)) % k
    kinds = [np.ones(n), rng.integers(0, 4, n) * 1.0, rng.random(n) * 2]
    return values, labels, kinds[draw(st.integers(0, 2))]


class TestMDL:
    @given(labelled())
    @settings(max_examples=200)
    def test_is_what_the_paper_says(self, rows):
        values, labels, weights = rows
        expected = naive.mdl_cuts(list(zip(*(a.tolist() for a in rows), strict=True)))
        assert mdl_cuts(profile_of(values, labels, weights)) == expected

    @given(labelled(), st.integers(0, 2**32))
    def test_names_of_classes_do_not_matter(self, rows, seed):
        values, labels, weights = rows
        profile = profile_of(values, labels, weights)
        order = np.random.default_rng(seed).permutation(profile.weight.shape[1])
        moved = profile._replace(weight=profile.weight[:, order])
        assert mdl_cuts(moved) == mdl_cuts(profile)

    @given(labelled())
    def test_cuts_only_where_the_class_may_change(self, rows):
        profile = profile_of(*rows)
        pure = [set(np.flatnonzero(w)) for w in profile.weight]
        for cut in mdl_cuts(profile):
            left = int(np.searchsorted(profile.least, cut)) - 1
            assert len(pure[left] | pure[left + 1]) > 1

    @given(labelled())
    def test_whole_weights_are_as_many_rows(self, rows):
        values, labels, _ = rows
        times = np.random.default_rng(0).integers(0, 4, len(values))
        again = np.repeat(np.arange(len(values)), times)
        repeated = mdl_cuts(profile_of(values[again], labels[again]))
        assert mdl_cuts(profile_of(values, labels, times)) == repeated

    def test_of_equal_cuts_the_lowest_is_taken(self):
        # 6 rows of one class, 2 of each, 6 of the other: cut once, left or right of the middle.
        weight = np.array([[0.0, 6.0], [2.0, 2.0], [6.0, 0.0]])
        values = np.arange(3.0)
        assert mdl_cuts(Profile(values, values, weight)) == [0.5]
        assert mdl_cuts(Profile(values, values, weight[::-1])) == [0.5]

    def test_by_hand(self):
        # Two rows of two classes: gain 1 > (log2(1) + log2(7) - 2)/2 = 0.40.
        assert mdl_cuts(profile_of([1, 3], [0, 1])) == [2.0]
        assert mdl_cuts(profile_of([1, 1], [0, 1])) == []
        assert mdl_cuts(profile_of([1, 3], [0, 0])) == []
        assert mdl_cuts(profile_of([1], [0])) == []
        assert mdl_cuts(profile_of([], [])) == []

    def test_weights_below_a_row_are_no_rows(self):
        assert mdl_cuts(profile_of([1, 3], [0, 1], [1e-3, 1e-3])) == []

    def test_many_classes(self):
        n = 2_000  # 3^k is beyond the range of floats
        assert len(mdl_cuts(profile_of(np.arange(n) // 2, np.arange(n) // 2))) < n

    def test_exact_on_reference_tables(self, shared_data):
        seen = 0
        for path in sorted((shared_data / "exact").glob("*.mdl_cutpoints.csv")):
            name = path.name.partition(".")[0]
            with path.open() as file:
                rows = list(csv.DictReader(file))
            expected = {
                row["attribute"]: [float(cut) for cut in row["cuts"].split(";") if cut]
                for row in rows
            }
            assert cuts_of(shared_data / "tables" / f"{name}.csv", target="class") == expected
            seen += len(expected)
        assert seen >= 19


class TestBins:
    def test_between(self):
        assert between(1.0, 2.0) == 1.5
        assert between(42.3, 42.4) == (42.3 + 42.4) / 2
        top = 1.7976931348623157e308
        assert between(1e308, top) == pytest.approx(1.4e308, rel=0.01)
        assert between(-top, top) == 0.0
        for low in (0.0, 1.0, -1.0, 5e-324, 1e308, -5e-324):
            high = math.nextafter(low, math.inf)
            assert low <= between(low, high) < high

    @given(labelled(), st.integers(2, 12))
    def test_quantiles_hold_equal_shares(self, rows, bins):
        profile = profile_of(*rows)
        cuts = quantile_cuts(profile, bins)
        below = profile.weight.sum(axis=1).cumsum()
        assert len(cuts) < bins
        assert cuts == sorted(set(cuts))
        for i in range(1, bins):
            share = i / bins * (below[-1] if len(below) else 0)
            behind = [k for k, n in enumerate(below) if n >= share * (1 - 1e-12)]
            if behind and behind[0] < len(below) - 1:
                assert between(profile.least[behind[0]], profile.least[behind[0] + 1]) in cuts

    def test_quantiles_by_hand(self):
        assert quantile_cuts(profile_of(range(1, 9), [0] * 8), 4) == [2.5, 4.5, 6.5]
        assert quantile_cuts(profile_of([1] * 7 + [2], [0] * 8), 4) == [1.5]
        assert quantile_cuts(profile_of([1, 2, 3], [0] * 3, [1, 6, 1]), 4) == [2.5]
        tenths = profile_of(range(10), [0] * 10, [0.1] * 10)  # sums of which are off by rounding
        assert quantile_cuts(tenths, 10) == [i + 0.5 for i in range(9)]
        assert quantile_cuts(profile_of(range(3), [0] * 3, [0.1] * 3), 3) == [0.5, 1.5]
        assert quantile_cuts(profile_of([5], [0]), 4) == []
        assert quantile_cuts(profile_of([], []), 4) == []

    def test_width_by_hand(self):
        assert width_cuts(profile_of([0, 1, 8], [0] * 3), 4) == [2.0, 4.0, 6.0]
        assert width_cuts(profile_of([3], [0]), 4) == []
        assert width_cuts(profile_of([], []), 4) == []
        top = 1.7976931348623157e308
        assert width_cuts(profile_of([-top, top], [0] * 2), 2) == [0.0]
        near = [1.0, math.nextafter(1.0, 2.0)]
        assert width_cuts(profile_of(near, [0] * 2), 10) == [1.0]

    def test_methods(self):
        names = ["a", "b"]
        assert methods("mdl", names) == dict.fromkeys(names, Method("mdl"))
        assert methods(("width", 3), names) == dict.fromkeys(names, Method("width", 3))
        asked = methods({"b": ("quantile", 7)}, names)
        assert asked == {"a": Method("mdl"), "b": Method("quantile", 7)}
        # As a model file gives it back.
        assert methods(["width", 3], names) == dict.fromkeys(names, Method("width", 3))
        assert methods({"b": ["quantile", 7]}, names) == asked
        assert methods({"a": [1, 2.5]}, names)["a"].tolist() == [1.0, 2.5]
        assert methods({"a": (1, 2)}, names)["a"].tolist() == [1.0, 2.0]
        assert methods({"a": []}, names)["a"].tolist() == []
        assert methods({"c": [0.5]}, names, ["c"], ["c"])["c"].tolist() == [0.5]

    @pytest.mark.parametrize(
        ("discretize", "words"),
        [
            ("entropy", ["discretize='entropy'", "'mdl'"]),
            (("quantile", 1), ["2"]),
            (("quantile", 2.5), ["whole number"]),
            (("mdl", 3), ["mdl"]),
            (None, ["None"]),
            ({"a": "kmeans"}, ["discretize['a']='kmeans'"]),
            ({"z": "mdl"}, ["'z'", "['a', 'b']"]),
            ({"c": [1.0]}, ["'c'", "categorical"]),
            ({"c": "mdl"}, ["'c'", "categorical"]),
            ({"a": [2, 1]}, ["'a'", "ascending"]),
            ({"a": [1, 1]}, ["'a'", "ascending"]),
            ({"a": [1, math.nan]}, ["'a'", "finite"]),
            ({"a": [math.inf]}, ["'a'", "finite"]),
            ({"a": ["x"]}, ["'a'", "numbers"]),
            ({"a": [[1.0]]}, ["'a'", "ascending"]),
            ({"a": 3.0}, ["'a'", "ascending"]),
        ],
    )
    def test_what_cannot_be_meant_is_refused(self, discretize, words):
        with pytest.raises(ValueError, match=r"discretize|column") as caught:
            methods(discretize, ["a", "b"], ["c"])
        for word in words:
            assert word in str(caught.value)


def table_of(n=400, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    x = rng.normal(size=n) + 3 * y
    return pa.table(
        {
            "x": pa.array(x, mask=rng.random(n) < 0.1),
            "whole": rng.integers(0, 50, n) + 20 * (y == 1),
            "noise": rng.normal(size=n),
            "text": rng.choice(["a", "b"], n),
            "y": np.array(["p", "q", "r"])[y],
            "w": rng.integers(0, 3, n) / 2,
        }
    )


class TestLearning:
    def test_every_numeric_column_is_cut(self):
        table = table_of().drop_columns("w")
        found = cuts_of(table)
        assert list(found) == ["x", "whole", "noise"]
        for name, cuts in found.items():
            rows = [
                (row[name], row["y"], 1.0) for row in table.to_pylist() if row[name] is not None
            ]
            assert cuts == naive.mdl_cuts(rows)
        assert len(found["x"]) >= 2
        assert found["noise"] == []

    def test_each_column_in_its_own_way(self):
        told = {"x": ("quantile", 3), "whole": [10, 20.5], "noise": "width"}
        found = cuts_of(table_of().drop_columns("w"), told)
        assert (len(found["x"]), found["whole"], len(found["noise"])) == (2, [10.0, 20.5], 9)

    def test_columns_that_are_categorical_by_choice_are_not_cut(self):
        table = table_of().drop_columns("w")
        options = {"categorical": ["whole"], "domains": {"noise": table["noise"].to_pylist()}}
        assert list(cuts_of(table, options=options)) == ["x"]

    def test_rows_without_a_class_or_of_weight_0_take_no_part(self):
        table = table_of()
        out = table.filter(pa.compute.greater(table["w"], 0))
        weighted = cuts_of(table, weight="w")
        assert weighted == cuts_of(out, weight="w")
        blank = pa.array([None, *table["y"].to_pylist()[1:]])
        blanked = table.set_column(4, "y", blank)
        assert cuts_of(blanked, weight="w") == cuts_of(table.slice(1), weight="w")

    def test_whole_weights_are_as_many_rows(self):
        table = table_of()
        doubled = table.set_column(5, "w", pa.compute.multiply(table["w"], 2.0))
        times = np.repeat(np.arange(len(table)), doubled["w"].to_numpy().astype(int))
        rows = table.take(times).drop_columns("w")
        assert cuts_of(doubled, weight="w") == cuts_of(rows)

    @pytest.mark.parametrize("how", ["mdl", "quantile", "width"])
    def test_order_threads_and_batches_do_not_matter(self, how, tmp_path, monkeypatch):
        monkeypatch.setattr("fastbayes.scan.discretization.BLOCK_ROWS", 1_000)
        rng = np.random.default_rng(0)
        table = table_of(70_000)
        one = cuts_of(table, how, weight="w", threads=1)
        assert cuts_of(table, how, weight="w", threads=4) == one
        shuffled = table.take(rng.permutation(len(table)))
        assert cuts_of(shuffled, how, weight="w", threads=2) == one
        pq.write_table(table, tmp_path / "t.parquet", row_group_size=9_000)
        assert cuts_of(tmp_path / "t.parquet", how, weight="w") == one
        monkeypatch.setenv("FASTBAYES_KERNELS", "never")
        assert cuts_of(table, how, weight="w") == one

    def test_of_many_rows_the_cuts_are_close_to_the_exact_ones(self):
        rng = np.random.default_rng(0)
        n = 200_000
        y = rng.integers(0, 2, n)
        x = rng.normal(size=n) + y
        (found,) = cuts_of({"x": x, "y": y.astype(str)}, ("quantile", 20)).values()
        expected = np.quantile(x, np.arange(1, 20) / 20)
        np.testing.assert_allclose(found, expected, atol=0.01)
        (found,) = cuts_of({"x": x, "y": y.astype(str)}).values()
        assert found
        exact = mdl_cuts(profile_of(x, y))
        np.testing.assert_allclose(found[len(found) // 2], exact[len(exact) // 2], atol=0.3)

    def test_types_of_numbers(self):
        y = ["a", "b"] * 20
        whole = [1, 3] * 20
        told = {
            "int": pa.array(whole, pa.int8()),
            "big": pa.array(whole, pa.uint64()),
            "float": pa.array(whole, pa.float32()),
            "decimal": pa.array([decimal.Decimal(v) for v in whole], pa.decimal128(5, 2)),
            "y": y,
        }
        assert cuts_of(told) == {name: [2.0] for name in ("int", "big", "float", "decimal")}
        assert cuts_of({"flag": [True, False] * 20, "x": whole, "y": y}) == {"x": [2.0]}
        found = cuts_of({"flag": [True, False], "x": [1, 2], "y": ["a", "b"]}, {"flag": [0.5]})
        assert found["flag"] == [0.5]

    def test_nothing_to_go_by(self):
        y = ["a", "b", "a"]
        nan = {"x": np.full(3, np.nan), "y": y}
        assert cuts_of(nan) == {"x": []}
        assert cuts_of(nan, "quantile") == cuts_of(nan, "width") == {"x": []}
        assert cuts_of({"x": [1.0] * 3, "y": y}) == {"x": []}
        assert cuts_of({"text": y, "y": y}) == {}

    def test_infinite_numbers_are_refused(self):
        with pytest.raises(DataError, match=r"'x', row 1.*infinite"):
            cuts_of({"x": [1.0, math.inf], "y": ["a", "b"]})

    def test_huge_weights_are_refused(self):
        with pytest.raises(DataError, match=r"'w'.*1e\+10"):
            cuts_of({"x": [1.0, 2.0], "w": [1e10, 1.0], "y": ["a", "b"]}, weight="w")

    def test_without_classes(self):
        table = {"x": np.arange(10.0)}
        assert cuts_of(table, ("width", 3), None) == {"x": [3.0, 6.0]}
        with pytest.raises(SchemaError, match=r"'x'.*class"):
            cuts_of(table, target=None)

    def test_a_stream_is_not_used_up(self):
        table = table_of().drop_columns("w")

        def stream():
            return pa.RecordBatchReader.from_batches(table.schema, table.to_batches())

        with pytest.raises(SchemaError, match=r"only once.*'x'.*categorical.*partial_fit"):
            cuts_of(stream())
        told = {"x": [1.0], "whole": [2.0], "noise": []}
        assert cuts_of(stream(), told) == told

    def test_cut_points_that_are_given_need_no_scan(self, monkeypatch):
        source = open_source({"x": [1.0, 2.0], "y": ["a", "b"]})
        monkeypatch.setattr(type(source), "segments", lambda *_: pytest.fail("scanned"))
        encoder = Encoder.learning(source.schema, "y")
        assert numeric_cuts(source, encoder, {"x": [1.5]})["x"].tolist() == [1.5]

    def test_the_encoder_is_left_as_it_was(self):
        source = open_source(table_of())
        encoder = Encoder.learning(source.schema, "y", domains={"y": ["r", "q", "p"]})
        before = encoder.schema()
        numeric_cuts(source, encoder)
        assert encoder.schema() == before

    def test_a_class_outside_the_declared_ones_is_refused(self):
        with pytest.raises(DataError, match="'r'"):
            cuts_of(table_of(), options={"domains": {"y": ["p", "q"]}})

    def test_a_memory_limit_takes_more_scans(self, monkeypatch):
        table = table_of(5_000).drop_columns("w")
        source = open_source(table)
        encoder = Encoder.learning(source.schema, "y")
        free = numeric_cuts(source, encoder)
        scans = []
        segments = type(source).segments
        monkeypatch.setattr(
            type(source), "segments", lambda *args: scans.append(1) or segments(*args)
        )
        need = bytes_needed(5_000, FEW_ROWS, weighted=False)
        for times, expected in ((1, 3), (2, 2), (3, 1), (9, 1)):
            scans.clear()
            found = numeric_cuts(source, encoder, memory_limit=times * need)
            assert len(scans) == expected
            assert {k: v.tolist() for k, v in found.items()} == {
                k: v.tolist() for k, v in free.items()
            }
        with pytest.raises(MemoryLimitError, match=r"'x' needs .* bytes, over memory_limit"):
            numeric_cuts(source, encoder, memory_limit=need - 1)

    def test_a_sketch_takes_no_more_than_foretold(self):
        rng = np.random.default_rng(0)
        for n in (100, 3_000, 65_536, 200_000):
            sketch = ValueSketch()
            for part in np.array_split(rng.normal(size=n), 1 + n // 50_000):
                sketch.update(part, np.zeros(len(part), np.uint16), split(None, len(part)))
                assert 2 * sketch.nbytes <= bytes_needed(n, FEW_ROWS, weighted=False)

    def test_other_columns_are_not_read(self, tmp_path):
        table = table_of().drop_columns("w")
        pq.write_table(table, tmp_path / "t.parquet")
        source = open_source(tmp_path / "t.parquet").only(["x", "y"])
        (segment,) = source.segments(1_000)
        (batch,) = segment.batches()
        assert batch.schema.names == ["x", "y"]
        assert batch.to_pydict() == table.select(["x", "y"]).to_pydict()
        assert cuts_of(tmp_path / "t.parquet") == cuts_of(table)
        (tmp_path / "t.csv").write_text("z,x,y\n-,1,a\n-,2,b\n")
        source = open_source(tmp_path / "t.csv", null_values=["-"])
        (segment,) = source.only(["y", "z"]).segments(1_000)
        (batch,) = segment.batches()
        assert batch.to_pydict() == {"y": ["a", "b"], "z": [None, None]}

    def test_damaged_files_are_left_out_whole(self, tmp_path):
        good, bad = table_of(seed=1).drop_columns("w"), table_of(seed=2).drop_columns("w")
        pq.write_table(good, tmp_path / "a.parquet")
        pq.write_table(bad, tmp_path / "b.parquet", compression=None)
        content = bytearray((tmp_path / "b.parquet").read_bytes())
        content[4:2_000] = b"\xff" * 1_996
        (tmp_path / "b.parquet").write_bytes(content)
        expected = cuts_of(good)
        with pytest.raises(DataError):
            cuts_of(str(tmp_path / "*.parquet"))
        assert cuts_of(str(tmp_path / "*.parquet"), on_error="skip") == expected

    def test_of_a_segment_that_breaks_off_nothing_stays(self):
        good, bad = table_of(seed=1).drop_columns("w"), table_of(seed=2).drop_columns("w")
        source = open_source(good)

        def broken():
            yield from bad.to_batches()
            raise DataError("the file ends here")

        class Half(type(source)):
            def segments(self, block_rows):
                yield from super().segments(block_rows)
                yield Segment(1, "", 400, None, broken)

        source.__class__ = Half
        encoder = Encoder.learning(source.schema, "y")
        found = numeric_cuts(source, encoder, on_error="skip")
        assert {name: cuts.tolist() for name, cuts in found.items()} == cuts_of(good)
        with pytest.raises(DataError, match="ends here"):
            numeric_cuts(source, encoder)


CUTS = {"x": [1.0, 2.5], "z": []}


def rows(**columns):
    return pa.table(columns).to_batches()[0]


class TestEncoding:
    def encoder(self, batch, **options):
        return Encoder.learning(batch.schema, "y", cuts=CUTS, **options)

    def test_bins(self):
        batch = rows(x=[1.0, 1.5, None, 2.5, 2.6, math.nan], z=[0.0] * 6, y=["a"] * 6)
        encoded = self.encoder(batch).encode(batch, Place("", 0)).batch
        (codes,) = encoded.codes
        assert codes.codes.tolist() == [[0, 1, 3, 1, 2, 3], [0] * 6]
        assert codes.sizes.tolist() == [4, 1]
        assert encoded.missing.tolist() == [True, False]
        assert encoded.numeric == ()

    def test_both_paths(self, kernels, monkeypatch):
        self.test_bins()

    def test_schema(self):
        batch = rows(x=[1.0], z=[0.0], y=["a"])
        encoder = self.encoder(batch)
        x, z = encoder.schema().features
        assert x == Feature.binned("x", [1.0, 2.5])
        assert (x.kind, x.values.to_pylist(), x.declared) == ("categorical", [0, 1, 2], True)
        assert z.size == 1
        schema = encoder.schema()
        every = [np.ones(3, np.bool_), np.ones(1, np.bool_)]
        found, _ = schema.in_order(every, np.ones(len(schema.classes), np.bool_), sorted_values)
        assert found == schema

    @pytest.mark.parametrize(
        "column",
        [
            pa.array([1, 2, 3, None], pa.int16()),
            pa.array([1, 2, 3, None], pa.uint64()),
            pa.array([1, 2, 3, None], pa.float32()),
            pa.array([decimal.Decimal(v) for v in (1, 2, 3)] + [None], pa.decimal128(5, 2)),
        ],
    )
    def test_types_of_numbers(self, column):
        batch = rows(x=column, z=column, y=["a"] * 4)
        for encoder in (
            self.encoder(batch),
            Encoder.applying_to(self.encoder(batch).schema(), batch.schema),
        ):
            (codes,) = encoder.encode(batch, Place("", 0)).batch.codes
            assert codes.codes.tolist() == [[0, 1, 2, 3], [0, 0, 0, 1]]

    def test_truth_values_and_nulls(self):
        cuts = {"x": [0.5], "z": [0.5]}
        batch = rows(x=[True, False], z=pa.nulls(2), y=["a", "a"])
        encoder = Encoder.learning(batch.schema, "y", cuts=cuts)
        (codes,) = encoder.encode(batch, Place("", 0)).batch.codes
        assert codes.codes.tolist() == [[1, 0], [2, 2]]

    def test_applying_knows_no_unseen_number(self):
        batch = rows(x=[1.0], z=[0.0], y=["a"])
        encoder = Encoder.applying_to(self.encoder(batch).schema(), batch.schema, unseen="error")
        new = rows(x=[-1e300, 1e300, None], z=[1e300, None, 2.0], y=["a"] * 3)
        encoded = encoder.encode(new, Place("", 0))
        (codes,) = encoded.batch.codes
        assert codes.codes.tolist() == [[0, 2, 3], [0, 1, 0]]
        assert codes.sizes.tolist() == [5, 3]
        assert encoded.unseen.tolist() == [0, 0]

    def test_infinite_numbers_are_refused(self):
        batch = rows(x=[1.0, -math.inf], z=[0.0, 0.0], y=["a", "a"])
        with pytest.raises(DataError, match=r"'x', row 8 .*infinite"):
            self.encoder(batch).encode(batch, Place("f.csv", 7))

    def test_text_is_refused(self):
        batch = rows(x=["1"], z=[0.0], y=["a"])
        with pytest.raises(SchemaError, match=r"'x'.*numbers"):
            self.encoder(batch)
        schema = Encoder.learning(rows(x=[1.0], z=[0.0]).schema, None, cuts=CUTS).schema()
        with pytest.raises(SchemaError, match=r"'x'.*numbers"):
            Encoder.applying_to(schema, batch.schema)

    def test_a_choice_of_the_user_goes_before_cuts(self):
        batch = rows(x=[1, 2], z=[0, 1], y=["a", "a"])
        schema = self.encoder(batch, categorical=["x"], domains={"z": [0, 1, 2]}).schema()
        assert [f.cuts for f in schema.features] == [None, None]

    def test_unknown_column(self):
        batch = rows(x=[1.0], y=["a"])
        with pytest.raises(SchemaError, match=r"cuts.*'z'.*\['x'\]"):
            self.encoder(batch)

    def test_many_bins(self):
        cuts = np.arange(1_000) / 2
        batch = rows(x=np.arange(600) / 1.0, y=["a"] * 600)
        encoder = Encoder.learning(batch.schema, "y", cuts={"x": cuts})
        (codes,) = encoder.encode(batch, Place("", 0)).batch.codes
        assert codes.codes.dtype == np.uint16
        expected = np.searchsorted(cuts, batch["x"].to_numpy())
        np.testing.assert_array_equal(codes.codes[0], expected)


def counted(table, cuts, target="y", **options):
    source = open_source(table)
    encoder = Encoder.learning(source.schema, target, cuts=cuts, **options)
    return engine.scan(source, encoder)


class TestSchema:
    def test_cuts_are_part_of_the_value(self):
        a = Feature.binned("x", [1, 2])
        assert a == Feature.binned("x", [1.0, 2.0])
        assert a != Feature.binned("x", [1, 3])
        assert a != Feature("x", "categorical", a.values, True)
        assert Feature.binned("x", [-0.0]) == Feature.binned("x", [0.0])
        with pytest.raises(ValueError, match="read-only"):
            a.cuts[0] = 7

    def test_repr_and_intervals(self):
        assert Feature.binned("x", [1, 2.5]).intervals == ["(-inf, 1]", "(1, 2.5]", "(2.5, inf)"]
        assert Feature.binned("x", []).intervals == ["(-inf, inf)"]
        assert Feature("x", "numeric").intervals == []
        assert repr(Feature.binned("x", [1, 2.5])) == "Feature('x', 3 bins cut at 1, 2.5)"
        assert repr(Feature.binned("x", [])) == "Feature('x', one bin)"
        assert "…" in repr(Feature.binned("x", range(50)))

    def test_other_cuts_do_not_add(self):
        table = {"x": [1.0, 2.0], "y": ["a", "b"]}
        stats = counted(table, {"x": [1.5]})
        assert stats + stats - stats == stats
        for cuts, word in (({"x": [1.2]}, "1.2"), ({}, "not cut"), ({"x": []}, "one bin")):
            other = counted(table, cuts)
            for a, b in ((stats, other), (other, stats)):
                with pytest.raises(SchemaError, match=rf"'x'.*{word}|{word}.*'x'") as caught:
                    a + b
                assert "count both with" in str(caught.value)
            if cuts:
                with pytest.raises(SchemaError, match="'x'"):
                    stats.aligned(other.schema)
        chosen = counted({"x": [0, 1], "y": ["a", "b"]}, {}, domains={"x": [0, 1]})
        with pytest.raises(SchemaError, match="'x'"):
            stats + chosen

    def test_nothing_but_nulls_goes_with_bins(self):
        stats = counted({"x": [1.0, 2.0], "y": ["a", "b"]}, {"x": [1.5]})
        nulls = counted({"x": pa.nulls(1), "y": ["a"]}, {})
        for both in (stats + nulls, nulls + stats):
            assert both.schema.features == stats.schema.features
            assert both.values.counts.tolist() == [[1, 0], [0, 1], [1, 0]]

    def test_bins_that_stay_empty_stay(self):
        stats = counted({"x": [1.0, 9.0], "y": ["a", "b"]}, {"x": [2.0, 3.0]})
        assert stats.values.of(0).tolist() == [[1, 0], [0, 0], [0, 1]]
        assert (stats - stats).schema.features == stats.schema.features

    def test_saving(self, tmp_path):
        stats = counted(table_of().drop_columns("w"), {"x": [0.1, 1 / 3], "noise": []})
        stats.save(tmp_path / "s.fbs")
        again = fb.Statistics.load(tmp_path / "s.fbs")
        assert again == stats
        assert again.schema.features[0].cuts.tolist() == [0.1, 1 / 3]
        assert again + stats == stats + stats

    def test_table(self):
        stats = counted(table_of().drop_columns("w"), {"x": [0.1, 1 / 3], "noise": []})
        again = fb.Statistics.from_table(stats.to_table())
        assert again == stats
        assert again.schema.features[0].cuts.tolist() == [0.1, 1 / 3]

    def schema(self):
        features = (Feature("t", "categorical", pa.array(["a"])), Feature.binned("x", [1, 2]))
        return Schema("y", pa.array(["p", "q"]), features)

    def test_header(self):
        header, arrays = to_header(self.schema())
        assert from_header(header, arrays) == self.schema()
        # What was written before columns could be cut has no cut points.
        del arrays["cuts.1"]
        assert from_header(header, arrays).features[1].cuts is None

    @pytest.mark.parametrize(
        "cuts",
        [
            pa.array([2.0, 1.0]),
            pa.array([1.0, math.nan]),
            pa.array([1.0, math.inf]),
            pa.array([1.0, None]),
            pa.array([1.0]),
            pa.array([1, 2]),
            pa.array(["1", "2"]),
        ],
    )
    def test_header__what_is_no_cut_is_refused(self, cuts):
        header, arrays = to_header(self.schema())
        with pytest.raises((ValueError, TypeError)):
            from_header(header, {**arrays, "cuts.1": cuts})

    def test_header__values_are_the_bins(self):
        header, arrays = to_header(self.schema())
        with pytest.raises(ValueError, match="'t'"):
            from_header(header, {**arrays, "cuts.0": pa.array([1.0])})

    def test_text_files_are_read_as_numbers(self, tmp_path):
        stats = counted({"x": [1, 2], "y": ["a", "b"]}, {"x": [1.5]})
        assert as_at_fit(stats.schema)["types"]["x"] == pa.float64()
        (tmp_path / "new.csv").write_text("x\n1.7\n")
        model = fb.NaiveBayes().fit_statistics(stats)
        assert model.predict(tmp_path / "new.csv").tolist() == ["b"]

    def test_predicting(self):
        stats = counted({"x": [1.0, 2.0, 5.0], "y": ["a", "a", "b"]}, {"x": [3.0]})
        model = fb.NaiveBayes(alpha=1).fit_statistics(stats)
        proba = model.predict_proba({"x": [-7.0, 3.0, 3.1, math.nan]})
        a, b = 3 / 5 * 3 / 4, 2 / 5 * 1 / 3
        np.testing.assert_allclose(proba[0], [a / (a + b), b / (a + b)])
        np.testing.assert_allclose(proba[1], proba[0])
        assert proba[2][1] > proba[2][0]
        np.testing.assert_allclose(proba[3], [3 / 5, 2 / 5])

    def test_inspect(self, tmp_path):
        stats = counted(table_of().drop_columns("w"), {"x": [1, 2.5], "noise": []})
        stats.save(tmp_path / "s.fbs")
        shown = run("inspect", tmp_path / "s.fbs").stdout
        assert "3 bins" in shown
        assert "(-inf, 1], (1, 2.5], (2.5, inf)" in shown


class TestSampling:
    def drawn(self, cuts, codes):
        feature = Feature.binned("x", cuts)
        codes = np.asarray(codes, dtype=np.int64)
        return drawn_values(feature, codes, np.random.default_rng(0))

    @given(
        st.lists(st.floats(-1.7e308, 1.7e308), max_size=6),  # nothing lies above the greatest
        st.integers(0, 2**32),
    )
    def test_numbers_fall_into_their_bins(self, cuts, seed):
        cuts = np.unique(np.array(cuts) + 0.0)
        codes = np.random.default_rng(seed).integers(0, len(cuts) + 1, 200)
        numbers = self.drawn(cuts, codes).to_numpy()
        assert np.isfinite(numbers).all()
        np.testing.assert_array_equal(np.searchsorted(cuts, numbers, side="left"), codes)

    def test_ends(self):
        numbers = self.drawn([1.0, 3.0, 4.0], np.repeat(range(4), 5_000)).to_numpy()
        for part, low, high in zip(np.split(numbers, 4), [-1, 1, 3, 4], [1, 3, 4, 5], strict=True):
            assert low < part.min() < low + 0.01 * (high - low)
            assert high - 0.01 * (high - low) < part.max() <= high
        numbers = self.drawn([2.0], np.repeat(range(2), 5_000)).to_numpy()
        assert 1.0 < numbers.min() < 1.01
        assert 2.99 < numbers.max() <= 3.0

    def test_no_cuts_and_missing(self):
        assert self.drawn([], [0, 1, 0]).to_pylist() == [0.0, None, 0.0]
        assert self.drawn([1.0], [2]).type == pa.float64()
