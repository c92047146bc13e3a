"""Dates and times become parts: the same whatever they come in, as Python's calendar tells them."""

from __future__ import annotations

import ast
import datetime as dt
import json
import re
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastbayes as fb
from fastbayes.core.date_parts import CYCLES, DAY, PARTS, DatePart, Span, parts_by_span, parts_of
from fastbayes.core.errors import DataError, SchemaError
from fastbayes.core.schema import from_header, to_header
from fastbayes.core.schema_file import packed, unpacked
from fastbayes.core.text_tables import cell
from fastbayes.data import dates as module
from fastbayes.data.dates import PER_SECOND, DateParts, by_python, span_of
from fastbayes.engines import pool
from tests.commands import run

EPOCH = dt.datetime(1970, 1, 1)
ZONES = [None, "UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Asia/Kathmandu",
         "Australia/Lord_Howe", "Africa/Monrovia", "+05:30"]  # fmt: skip


def told(seconds: Fraction, part: DatePart) -> float:
    """Return a part of a moment by Python's calendar."""
    if part.part == "elapsed":
        days = part.unit == "days"
        return float(seconds / DAY if days else seconds) - part.origin
    moment = EPOCH + dt.timedelta(seconds=int(seconds // 1))
    if part.zone == "+05:30":
        moment += dt.timedelta(hours=5, minutes=30)
    elif part.zone is not None:
        known = moment.replace(tzinfo=dt.UTC).astimezone(ZoneInfo(part.zone))
        moment = known.replace(tzinfo=None)
    if part.part == "weekday":
        return moment.isoweekday()
    return int(getattr(moment, part.part))


def values(column: pa.Array, parts: Sequence[DatePart]) -> dict[str, list[Any]]:
    """Return parts by their names: by tables and without, of one array and of two, the same."""
    rows = pa.record_batch([column], names=["when"])
    whole = DateParts(parts).of(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FEW_ROWS", 0)
        by_table = DateParts(parts)
        half = len(column) // 2
        halves = [by_table.of(rows.slice(half)), by_table.of(rows.slice(0, half))]
        assert by_table.of(rows).equals(whole)
        assert pa.Table.from_batches(halves[::-1]).equals(pa.Table.from_batches([whole]))
    for part in parts:
        of_one = by_python(part)
        for value, told_part in zip(column.to_pylist(), whole[part.name].to_pylist(), strict=True):
            known = None if isinstance(value, int) else of_one(value)
            assert known is None or known == told_part
    return {part.part: whole.column(part.name).to_pylist() for part in parts}


MOMENTS = st.lists(
    st.none() | st.integers(-(10**9), 2 * 10**9) | st.integers(-(10**10), 3 * 10**11),
    min_size=1,
    max_size=40,
)


@pytest.mark.parametrize("zone", ZONES)
@given(ticks=MOMENTS, unit=st.sampled_from(sorted(PER_SECOND)), cut=st.integers(0, 9))
@settings(max_examples=40, deadline=None)
def test_timestamps(zone: str | None, ticks: list[int | None], unit: str, cut: int) -> None:
    per_second = PER_SECOND[unit]
    most = min(2**62 // per_second, 2 * 10**11)  # what Python's calendar holds
    ticks = [None if t is None else max(min(t, most), -(6 * 10**10)) for t in ticks]
    if zone not in (None, "UTC", "+05:30"):
        ticks = [None if t is None else max(min(t, 10**10), -(10**9)) for t in ticks]
    given_ticks = [None if t is None else t * per_second + t % per_second for t in ticks]
    if unit == "ns":
        given_ticks = [None if t is None else max(min(t, 2**62), -(2**62)) for t in given_ticks]
    column = pa.array(given_ticks, pa.int64()).cast(pa.timestamp(unit, zone)).slice(cut)
    parts = parts_of("when", column.type, PARTS["timestamp"])
    found = values(column, parts)
    for part in parts:
        wanted = [
            None if t is None else told(Fraction(t, per_second), part) for t in given_ticks[cut:]
        ]
        assert found[part.part] == wanted


@given(days=st.lists(st.none() | st.integers(-700_000, 2_000_000), min_size=1))
@settings(max_examples=50, deadline=None)
def test_dates(days: list[int | None]) -> None:
    parts = parts_of("when", pa.date32(), PARTS["date"])
    for column in (
        pa.array(days, pa.date32()),
        pa.array([None if d is None else d * 1000 * DAY for d in days], pa.date64()),
        pa.array([None if d is None else d * 1000 * DAY for d in days], pa.timestamp("ms")),
        pa.array(days, pa.date32()).dictionary_encode(),
    ):
        found = values(column, parts)
        for part in parts:
            wanted = [None if d is None else told(Fraction(d * DAY), part) for d in days]
            assert found[part.part] == wanted


@pytest.mark.parametrize(
    "kind", [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]
)
def test_times_of_day(kind: pa.DataType) -> None:
    column = pa.array([0, 3599, None, 3600, 86_399], pa.time32("s")).cast(kind)
    found = values(column, parts_of("when", kind, ["hour", "number"]))
    assert found == {"hour": [0, 0, None, 1, 23], "elapsed": [0, 3599, None, 3600, 86_399]}


@pytest.mark.parametrize("unit", sorted(PER_SECOND))
def test_durations(unit: str) -> None:
    column = pa.array([-5, None, 90], pa.duration("s")).cast(pa.duration(unit))
    assert values(column, parts_of("when", column.type, "number")) == {"elapsed": [-5, None, 90]}


def test_elapsed__of_a_moment_is_the_same_in_all_units() -> None:
    moments = np.random.default_rng(3).integers(0, 2 * 10**15, 1000)
    micro = pa.array(moments, pa.timestamp("us"))
    parts = parts_of("when", micro.type, "number")
    assert values(micro, parts) == values(micro.cast(pa.timestamp("ns")), parts)


def test_tables__grow_with_what_is_met(monkeypatch: pytest.MonkeyPatch) -> None:
    column = pa.array(np.arange(-50, 50) * 86_400_000 * 400, pa.timestamp("ms", "Europe/Berlin"))
    parts = parts_of("when", column.type, PARTS["timestamp"])
    monkeypatch.setattr(module, "FEW_ROWS", 0)
    derive = DateParts(parts)
    whole = derive.of(pa.record_batch([column], names=["when"]))
    one_by_one = DateParts(parts)
    pieces = [one_by_one.of(pa.record_batch([column.slice(i, 1)], names=["when"]))
              for i in np.random.default_rng(0).permutation(100).tolist()]  # fmt: skip
    joined = pa.Table.from_batches(pieces).sort_by("when.elapsed")
    assert joined.equals(pa.Table.from_batches([whole]))
    monkeypatch.setattr(module, "MOST_STRETCHES", 10)  # without a table
    assert DateParts(parts).of(pa.record_batch([column], names=["when"])).equals(whole)


def test_an_unknown_zone__is_named() -> None:
    column = pa.array([0], pa.timestamp("s", "Mars/Olympus"))
    with pytest.raises(DataError, match="column 'when': time zone 'Mars/Olympus' is not known"):
        values(column, parts_of("when", column.type, ["hour"]))


@pytest.mark.parametrize(
    ("held", "days", "times", "wanted"),
    [
        ("timestamp", 0.9, True, ("hour", "elapsed")),
        ("timestamp", 0.9, False, ("weekday",)),
        ("timestamp", 1, True, ("weekday", "hour")),
        ("timestamp", 59.9, False, ("weekday",)),
        ("date", 60, False, ("month", "weekday")),
        ("timestamp", 729, True, ("month", "weekday", "hour")),
        ("timestamp", 730, True, ("year", "month", "weekday", "hour")),
        ("time", 0.1, False, ("hour", "elapsed")),
        ("duration", 9000, False, ("elapsed",)),
    ],
)
def test_parts__are_chosen_by_the_span(
    held: str, days: float, times: bool, wanted: tuple[str, ...]
) -> None:
    assert parts_by_span(held, Span(7, 7 + int(days * DAY), times)) == wanted


def test_span() -> None:
    column = pa.chunked_array(
        [pa.array([None, 5 * DAY], pa.timestamp("s")), pa.array([-DAY, 2 * DAY], pa.timestamp("s"))]
    )
    assert span_of(column, "when") == Span(-DAY, 5 * DAY, has_times=False)
    assert Span() | Span(1, 2) | Span(0, 1, True) == Span(0, 2, True)
    local = pa.array([23 * 3600], pa.timestamp("s", "Europe/Berlin"))  # midnight there
    assert not span_of(local, "when").has_times
    assert span_of(local.cast(pa.timestamp("s", "UTC")), "when").has_times


def table(n: int = 3000, days: int = 900, zone: str | None = "Europe/Berlin") -> pa.Table:
    random = np.random.default_rng(5)
    micro = random.integers(0, days * DAY, n) * 10**6 + 1_600_000_000 * 10**6
    when = pa.array(micro, pa.timestamp("us", zone), mask=random.random(n) < 0.05)
    night = pa.array(micro // 10**6 // 3600 % 24 < 6)
    return pa.table(
        {
            "when": when,
            "a": random.choice([*"uv"], n),
            "y": pa.array(np.where(random.random(n) < 0.2, "p", np.where(night, "p", "n"))),
        }
    )


def by_hand(rows: pa.Table) -> pa.Table:
    """Return rows whose parts are columns already."""
    part = parts_of("when", rows.schema.field("when").type, ["year", "month", "weekday", "hour"])
    whole = pa.record_batch([rows["when"].combine_chunks()], names=["when"])
    told_parts = DateParts(part).of(whole)
    return pa.table({**{n: told_parts[n] for n in told_parts.schema.names},
                     **{n: rows[n] for n in rows.column_names if n != "when"}})  # fmt: skip


def test_dates__take_names_and_no_patterns() -> None:
    told = (
        r"^dates: no column 'wh\*' in .*; its columns are: when, a; "
        r"`dates` takes names, not patterns$"
    )
    with pytest.raises(SchemaError, match=told):
        fb.count(table(20), "y", dates={"wh*": ["hour"]})
    with pytest.raises(SchemaError, match=r"no column 'x'(?!.*pattern)"):
        fb.count(table(20), "y", dates={"x": ["hour"]})


def test_count__is_that_of_columns_made_by_hand() -> None:
    rows = table()
    stats = fb.count(rows, "y", pairs=True)
    cycles = {"when.month": range(1, 13), "when.weekday": range(1, 8), "when.hour": range(24)}
    wanted = fb.count(by_hand(rows), "y", pairs=True, domains=cycles)
    assert stats.schema.names == wanted.schema.names
    assert stats.schema.columns == ("when", "a")
    for name, part in stats.parts.items():
        assert (
            part == wanted.parts[name]
            if name != "moments"
            else part.allclose(wanted.parts[name], 1e-12)
        )


def test_count__is_equal_however_rows_arrive(tmp_path: Path) -> None:
    rows = table(zone=None)
    wanted = fb.count(rows, "y")
    pq.write_table(rows, tmp_path / "t.parquet", row_group_size=700)
    with pa.ipc.new_file(tmp_path / "t.arrow", rows.schema) as writer:
        writer.write_table(rows, max_chunksize=500)
    pa_csv.write_csv(rows, tmp_path / "t.csv")
    lines = [json.dumps({**row, "when": row["when"] and row["when"].isoformat(" ")})
             for row in rows.to_pylist()]  # fmt: skip
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    sources: list[Any] = [tmp_path / f"t.{s}" for s in ("parquet", "arrow", "csv", "jsonl")]
    sources += [pa.table(rows).to_reader(), rows.to_batches(100), rows.to_pydict()]
    sources.append(pool.paths(tmp_path / "t.parquet", processes=2))
    for importing in ("pandas", "polars"):
        library = pytest.importorskip(importing)
        sources.append(rows.to_pandas() if importing == "pandas" else library.from_arrow(rows))
    sources[-2] = sources[-2].astype({"when": "datetime64[ns]"})
    dates = {"when": ["year", "month", "weekday", "hour"]}
    for source in sources:
        once = isinstance(source, pa.RecordBatchReader)
        found = fb.count(source, "y", dates=dates if once else None)
        assert found.schema == wanted.schema, source
        assert found.values == wanted.values, source
        assert found.moments.allclose(wanted.moments, 1e-12), source


def test_instants_of_spark__are_the_moments_that_they_were(tmp_path: Path) -> None:
    """INT96 from the year 1 to 9999, where nanoseconds wrap around; models of these go on."""
    years = [1, 1582, 1900, 1970, 2024, 9999]
    moments = [
        dt.datetime(years[i % 6], 1 + i % 12, 1 + i % 28, i % 24, 0, i % 7, 1) for i in range(600)
    ]
    y = pa.array(["no" if i % 6 < 5 else "yes" for i in range(600)])
    rows = pa.table({"when": pa.array(moments, pa.timestamp("us")), "y": y})
    pq.write_table(rows, tmp_path / "t.parquet", use_deprecated_int96_timestamps=True)
    dates = {"when": ["year", "month", "weekday", "hour", "elapsed"]}
    wanted = fb.count(rows, "y", dates=dates)
    sources = [tmp_path / "t.parquet", fb.Files(tmp_path), pool.paths(tmp_path, processes=2)]
    for source in sources:
        found = fb.count(source, "y", dates=dates)
        assert found.schema == wanted.schema
        assert found.values == wanted.values
        assert found.moments.allclose(wanted.moments, 1e-12)
    model = fb.NaiveBayes(dates=dates).fit(rows, "y")
    fb.predict_to(model, tmp_path / "t.parquet", tmp_path / "out.arrow", keys=["when"])
    with pa.ipc.open_file(tmp_path / "out.arrow") as file:
        assert file.read_all()["when"].to_pylist() == moments


def test_instants_of_spark__go_on_with_models_of_nanoseconds(tmp_path: Path) -> None:
    """The unit is no part of a schema: columns that were of nanoseconds have the same parts."""
    rows = table(zone=None)
    fine = rows.set_column(0, "when", rows["when"].cast(pa.timestamp("ns")))
    pq.write_table(fine, tmp_path / "t.parquet", use_deprecated_int96_timestamps=True)
    model = fb.NaiveBayes().fit(fine, "y")
    model.save(tmp_path / "m.fb")
    again = fb.load(tmp_path / "m.fb")
    assert (
        fb.evaluate(again, tmp_path / "t.parquet").to_dict() == fb.evaluate(model, fine).to_dict()
    )
    stats = fb.count(tmp_path / "t.parquet", "y", schema=model.statistics_)
    assert stats.values == model.statistics_.values
    assert stats.moments.allclose(model.statistics_.moments, 1e-12)
    assert (stats + model.statistics_).n_rows == 2 * stats.n_rows


MODELS = [fb.NaiveBayes, fb.TAN, fb.AODE, fb.KDB, fb.JointGaussian, fb.LogisticRegression,
          fb.NetworkClassifier, fb.WeightedNaiveBayes]  # fmt: skip


@pytest.mark.parametrize("cls", MODELS)
def test_model__tells_the_same_parts_at_predict(cls: Any, tmp_path: Path) -> None:
    rows = table()
    model = cls().fit(rows, "y")
    X = rows.drop_columns("y")
    few = X.slice(7, 5)  # a span of their own says nothing
    wanted = model.predict_proba(X)
    np.testing.assert_array_equal(model.predict_proba(few), wanted[7:12])
    elsewhere = X.set_column(0, "when", X["when"].cast(pa.timestamp("ms", "Asia/Tokyo")))
    np.testing.assert_array_equal(model.predict_proba(elsewhere), wanted)
    model.save(tmp_path / "m.fb")
    again = fb.load(tmp_path / "m.fb")
    assert again.schema_ == model.schema_
    assert again.feature_names_in_.tolist() == ["when", "a"]
    np.testing.assert_array_equal(again.predict_proba(X), wanted)
    row = X.slice(3, 1).to_pylist()[0]
    np.testing.assert_allclose(model.predictor().predict_proba(row), wanted[3], rtol=1e-12)
    if cls not in (fb.LogisticRegression, fb.WeightedNaiveBayes):
        drawn = model.sample(20, seed=1)  # parts instead of the column
        assert len(model.predict(drawn)) == 20


def test_predict_to_and_evaluate(tmp_path: Path) -> None:
    rows = table()
    pq.write_table(rows.append_column("key", pa.array(range(len(rows)))), tmp_path / "t.parquet")
    model = fb.NaiveBayes().fit(rows, "y")
    fb.predict_to(model, tmp_path / "t.parquet", tmp_path / "out.parquet", explain=True)
    out = pq.read_table(tmp_path / "out.parquet")
    assert out.column_names[:2] == ["key", "prediction"]
    assert {*out["because"].unique().to_pylist()} <= {*model.schema_.names}
    figures = fb.evaluate(model, tmp_path / "t.parquet")
    assert figures.accuracy == model.score(rows.drop_columns("y"), rows["y"])


def test_validation__of_parts_and_of_columns_made_by_hand_is_equal() -> None:
    rows = table(600)
    cycles = {"when.month": range(1, 13), "when.weekday": range(1, 8), "when.hour": range(24)}
    wanted = fb.k_fold(fb.TAN(domains=cycles), by_hand(rows), "y", folds=3).log_loss
    assert fb.k_fold(fb.TAN(), rows, "y", folds=3).log_loss == wanted
    board = fb.compare(rows, "y", models=["naive-bayes", "tan", "joint-gaussian"])
    others = fb.compare(by_hand(rows), "y", models=["naive-bayes", "tan", "joint-gaussian"],
                        domains=cycles)  # fmt: skip
    for one, other in zip(board.entries, others.entries, strict=True):
        assert one.figures is not None
        assert other.figures is not None
        assert one.figures.log_loss == pytest.approx(other.figures.log_loss, rel=1e-12)
    curve = fb.learning_curve(["naive-bayes", "logistic"], rows, "y", sizes=[50], repeats=2)
    assert np.isfinite(curve.log_loss).all()


def test_partial_fit__keeps_the_parts_of_the_first_batch() -> None:
    rows = table(400)
    model = fb.NaiveBayes().partial_fit(rows, "y")
    model.partial_fit(rows.slice(0, 3), "y")
    nulls = rows.set_column(0, "when", pa.nulls(len(rows)))
    model.partial_fit(nulls, "y")
    assert model.schema_.parts == fb.count(rows, "y").schema.parts
    assert model.statistics_.n_rows == 803


def test_rows_without_a_class__have_parts_too() -> None:
    rows = table(300)
    few = pa.array([*rows["y"].to_pylist()[:250], *[None] * 50])
    model = fb.NaiveBayes(unlabelled="em").fit(rows.set_column(2, "y", few), "y")
    assert model.statistics_.n_rows == pytest.approx(300)


def test_dates__says_which_parts(tmp_path: Path) -> None:
    rows = table(100)
    for asked, names in (
        ("number", ("when.elapsed", "a")),
        (["weekday", "hour"], ("when.weekday", "when.hour", "a")),
    ):
        assert fb.count(rows, "y", dates={"when": asked}).schema.names == names
        assert fb.NaiveBayes(dates={"when": asked}).fit(rows, "y").schema_.names == names
    assert fb.count(rows, "y", exclude="when").schema.names == ("a",)
    years = fb.count(rows, "y", dates={"when": ["year"]}, categorical="*.year")
    assert years.schema.features[0].kind == "categorical"
    assert years.schema.features[0].values.to_pylist() == [2020.0, 2021.0, 2022.0, 2023.0]


def test_statistics__add_where_parts_are_the_same(tmp_path: Path) -> None:
    rows = table(800)
    whole = fb.count(rows, "y")
    first = fb.count(rows.slice(0, 300), "y", schema=whole)
    rest = fb.count(rows.slice(300), "y", schema=whole)
    assert (first + rest).values == whole.values
    whole.save(tmp_path / "s.fbs")
    assert fb.load(tmp_path / "s.fbs") == whole
    other = rows.set_column(0, "when", rows["when"].cast(pa.timestamp("us", "Asia/Tokyo")))
    with pytest.raises(SchemaError, match=r"column 'when': 'when\.year' is not the same of it"):
        whole + fb.count(other, "y")
    with pytest.raises(SchemaError, match=r"not counted with the model's dates\['when'\]"):
        fb.NaiveBayes(dates={"when": "number"}).fit_statistics(whole)
    model = fb.NaiveBayes(dates={"when": ["hour", "weekday", "year", "month"]})
    model.fit_statistics(whole)
    assert model.feature_names_in_.tolist() == ["when", "a"]


def test_columns_after_others__where_memory_is_short(tmp_path: Path) -> None:
    rows = table(200_000)
    pq.write_table(rows, tmp_path / "t.parquet")
    wanted = fb.count(tmp_path / "t.parquet", "y")
    found = fb.count(tmp_path / "t.parquet", "y", memory_limit=5_000_000, threads=1)
    assert found.values == wanted.values
    binned = [
        fb.count(tmp_path / "t.parquet", "y", numeric="mdl", memory_limit=limit, threads=1)
        for limit in (None, 9_000_000)
    ]
    assert binned[0] == binned[1]


def test_dask__frames_have_parts_too() -> None:
    dd, pandas = pytest.importorskip("dask.dataframe"), pytest.importorskip("pandas")
    rows = table(500)
    frame = dd.from_pandas(rows.to_pandas(), npartitions=3)
    stats = fb.count(frame, "y")
    assert stats.values == fb.count(rows, "y").values
    model = fb.NaiveBayes().fit(frame, "y")
    answers = model.predict(frame.drop(columns="y")).compute()["prediction"]
    assert pandas.Series(model.predict(rows.drop_columns("y"))).tolist() == answers.tolist()


def test_update__counts_new_files_in_the_same_parts(tmp_path: Path) -> None:
    rows = table(800)
    pq.write_table(rows.slice(0, 500), tmp_path / "a.parquet")
    stats = fb.count(tmp_path, "y")
    pq.write_table(rows.slice(500), tmp_path / "b.parquet")
    stats = fb.count(tmp_path, "y", update=stats)
    assert stats.values == fb.count(tmp_path, "y").values


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
@pytest.mark.parametrize("unit", PER_SECOND)
def test_json_lines__are_read_as_they_are_written_and_as_csv(
    tmp_path: Path, unit: str, zone: str | None
) -> None:
    whole = table(60)
    kind = pa.timestamp(unit, zone)
    moments = whole["when"].cast(pa.timestamp(unit, "UTC"), safe=False).cast(pa.int64()).cast(kind)
    rows = pa.table({"when": moments, "y": whole["y"]})
    model = fb.NaiveBayes().fit(rows, "y")
    path, other = tmp_path / "t.jsonl", tmp_path / "t.csv"
    fb.predict_to(model, rows, path, keys=["when", "y"])
    fb.predict_to(model, rows, other, keys=["when", "y"])
    fb.predict_to(model, path, tmp_path / "again.csv", keys=[])
    again = pa_csv.read_csv(tmp_path / "again.csv")["prediction"]
    assert again.to_pylist() == model.predict(rows.select(["when"])).tolist()
    columns = {"columns": ["when"]}
    assert fb.count(path, "y", **columns).values == fb.count(other, "y", **columns).values


@pytest.mark.filterwarnings("ignore:.*the model does not use")
@pytest.mark.parametrize(
    "kind", [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]
)
def test_text_files__times_of_day_are_read_as_they_are_written(
    tmp_path: Path, kind: pa.DataType
) -> None:
    ticks = pa.array([1_000_000 * 1357 * i + 250_000 * i for i in range(60)])
    times = ticks.cast(pa.time64("us")).cast(kind, safe=False)
    rows = pa.table({"t": times, "y": [*"ab"] * 30})
    model = fb.NaiveBayes().fit(rows, "y")
    for name in ("t.csv", "t.jsonl"):
        fb.predict_to(model, rows, tmp_path / name, keys=["t", "y"])
        assert np.array_equal(model.predict_proba(tmp_path / name), model.predict_proba(rows))
        assert fb.count(tmp_path / name, "y", columns="t").values == fb.count(rows, "y").values


def test_json_lines__times_with_and_without_zone_are_text_as_in_csv(tmp_path: Path) -> None:
    times = ["2024-01-01T10:00:00", "2024-02-03T10:00:00Z"]
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps({"t": t, "y": "a"}) + "\n" for t in times))
    assert fb.count(path, "y").schema.features[0].values.to_pylist() == times


def test_a_span_that_needs_a_scan__is_refused_where_there_is_none(tmp_path: Path) -> None:
    rows = table(50)
    with pytest.raises(SchemaError, match=r"read only once, and .*: pass a table or a path, name"):
        fb.count(rows.to_reader(), "y")
    pq.write_table(rows, tmp_path / "t.parquet")
    with pytest.raises(SchemaError, match="is a part of other rows"):
        fb.count(fb.engines.part(tmp_path / "t.parquet", 1, 2), "y")


def test_a_span_that_needs_a_scan__is_refused_with_parts_that_the_columns_have() -> None:
    rows = table(50).append_column("day", pa.array([dt.date(2024, 1, 1)] * 50))
    with pytest.raises(SchemaError) as refused:
        fb.count(rows.to_reader(), "y")
    said = re.search(r"dates=(\{.*?\})", str(refused.value))
    assert said is not None
    dates = ast.literal_eval(said[1])
    assert [*dates] == ["when", "day"]
    assert fb.count(rows.to_reader(), "y", dates=dates) == fb.count(rows, "y", dates=dates)


@pytest.mark.parametrize(
    ("dates", "says"),
    [
        ({"wen": "number"}, "dates: no column 'wen' in .*; did you mean 'when'"),
        ({"a": "number"}, "dates: column 'a' is string, no date or time"),
        ({"when": ["minute"]}, "'minute' is no part of a timestamp; use some of year, month"),
        ({"when": []}, r"dates\['when'\] is empty"),
        ({"when": None}, r"dates\['when'\]=None: use a list of parts"),
    ],
)
def test_dates__wrong(dates: dict[str, Any], says: str) -> None:
    with pytest.raises(SchemaError, match=says):
        fb.count(table(20), "y", dates=dates)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"categorical": "when"}, "categorical: column 'when' holds dates or times, .*'when.hour'"),
        ({"domains": {"when": ["a"]}}, "domains: column 'when' holds dates or times, .*`dates`"),
        (
            {"domains": {"when": [dt.date(2024, 1, 1)]}},
            r"domains\['when'\] holds dates or times: cast column and values to string, or, where",
        ),
        ({"numeric": {"when": "kde"}}, "numeric: there is no column 'when'; .*of 'when' there are"),
        (
            {"discretize": {"when": "width"}, "pairs": True},
            "discretize: there is no column 'when'; .*of 'when' there are 'when.hour'",
        ),
    ],
)
def test_a_date_that_is_taken_for_a_feature__has_its_parts_named(
    options: dict[str, Any], says: str
) -> None:
    with pytest.raises(SchemaError, match=says):
        fb.count(table(20), "y", dates={"when": ["hour", "month"]}, **options)


def test_a_column_that_stands_beside_its_date__is_refused() -> None:
    rows = table(20).append_column("when.hour", pa.array(range(20)))
    with pytest.raises(SchemaError, match=r"column 'when\.hour' is there besides the date or time"):
        fb.count(rows, "y", dates={"when": ["hour"]})


@pytest.mark.parametrize(
    ("now", "says"),
    [
        (pa.array(["2020-01-01"] * 20), "held timestamps with a time zone at fit and is string"),
        (
            pa.array([0] * 20, pa.timestamp("s")),
            r"held .* with a time zone at fit and is .*\[s\]",
        ),
        (pa.array([0] * 20, pa.time32("s")), r"held .* at fit and is time32\[s\] now; cast it"),
    ],
)
def test_predict__of_another_type_is_refused(now: pa.Array, says: str) -> None:
    rows = table(20)
    model = fb.NaiveBayes().fit(rows, "y")
    with pytest.raises(SchemaError, match=f"column 'when' {says}"):
        model.predict(rows.drop_columns("y").set_column(0, "when", now))
    with pytest.raises(SchemaError, match="column 'when' is missing; the model needs it"):
        model.predict(rows.select(["a"]))


def test_predict__of_dates_has_no_hour_to_tell() -> None:
    rows = table(200, zone=None)
    days = rows.set_column(0, "when", rows["when"].cast(pa.date32())).drop_columns("y")
    model = fb.NaiveBayes(dates={"when": ["hour", "weekday"]}).fit(rows, "y")
    says = r"column 'when' held timestamps at fit and is date32\[day\] now, which has no hour; give"
    with pytest.raises(SchemaError, match=says):
        model.predict(days)
    with pytest.raises(SchemaError, match=says):
        model.predictor().predict({"when": dt.date(2020, 1, 5), "a": "x"})
    # What dates do have, they tell as timestamps do.
    model = fb.NaiveBayes(dates={"when": ["weekday", "month"]}).fit(rows, "y")
    np.testing.assert_array_equal(model.predict_proba(days), model.predict_proba(rows))


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64()], ids=str)
def test_learning__dates_after_timestamps_are_their_midnight(
    kind: pa.DataType, tmp_path: Path
) -> None:
    """As they are where both are read together; what was learned is not applied to them."""
    rows, dates = table(200, zone=None), {"when": PARTS["timestamp"]}
    days = rows.set_column(0, "when", rows["when"].cast(pa.date32()).cast(kind))
    both = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    pq.write_table(rows, both[0])
    pq.write_table(days, both[1])
    whole, some = (fb.count(source, "y", dates=dates) for source in (both, rows))
    assert (some + fb.count(both[1], "y", schema=some)).allclose(whole)
    model = fb.NaiveBayes(dates=dates).fit(rows, "y").partial_fit(days, "y")
    assert model.statistics_.allclose(whole)
    with pytest.raises(SchemaError, match="which has no hour"):
        model.predict(days.drop_columns("y"))


def test_schema__in_a_file() -> None:
    schema = fb.count(table(50), "y", dates={"when": PARTS["timestamp"]}).schema
    assert unpacked(*packed(schema)) == schema
    assert from_header(*to_header(schema)) == schema
    plain = fb.count(table(50), "y", exclude="when").schema
    assert "dates" not in packed(plain)[0]
    header, arrays = packed(schema)
    for wrong in ([0, "when", "minute"], [0, "x", *schema.features[0].part.to_json()[1:]],
                  [99, *schema.features[0].part.to_json()]):  # fmt: skip
        with pytest.raises((ValueError, TypeError)):
            unpacked({**header, "dates": [wrong]}, arrays)


def test_network__has_parts_as_nodes(tmp_path: Path) -> None:
    """They are those of classifiers, and a network of columns that hold them is the same."""
    rows, hand = table(600), by_hand(table(600))
    pq.write_table(rows, tmp_path / "t.parquet")
    how: dict[str, Any] = {"discretize": ("quantile", 4), "missing": "category", "restarts": 1}
    wanted = fb.count(rows, "y").schema.names
    domains = {f"when.{part}": [*values] for part, values in CYCLES.items()}
    by_columns = fb.BayesianNetwork.learn(hand, domains=domains, **how)
    for source in (rows, tmp_path / "t.parquet", pl.from_arrow(rows)):
        network = fb.BayesianNetwork.learn(source, **how)
        assert {*network.nodes} == {*wanted, "y"}
        assert network == by_columns
    asked = fb.BayesianNetwork.learn(rows, dates={"when": ["weekday", "elapsed"]}, **how)
    assert asked.nodes[:2] == ("when.weekday", "when.elapsed")
    with pytest.raises(SchemaError, match=r"column 'when.year' holds numbers"):
        fb.BayesianNetwork.learn(rows)
    with pytest.raises(SchemaError, match="dates: no column 'then'"):
        fb.BayesianNetwork.learn(rows, dates={"then": ["hour"]})
    assert [*fb.BayesianNetwork.learn(rows, exclude="when").nodes] == ["a", "y"]


def test_network__reads_parts_of_dates_in_rows(tmp_path: Path) -> None:
    rows, hand = table(600), by_hand(table(600))
    edges = [("when.hour", "y"), ("when.weekday", "y"), ("y", "a")]
    network = fb.BayesianNetwork.from_edges(edges).fit(rows)
    assert network.states["when.weekday"] == tuple(range(1, 8))
    domains = {n: [*network.states[n]] for n in ("when.hour", "when.weekday")}
    assert network == fb.BayesianNetwork.from_edges(edges).fit(hand, domains=domains)
    network.save(tmp_path / "n.fb")
    pq.write_table(rows, tmp_path / "t.parquet")
    for held in (network, fb.load(tmp_path / "n.fb")):
        proba = held.predict_proba(rows.drop_columns("y"), "y")
        assert np.array_equal(proba, held.predict_proba(hand, "y"))
        assert np.array_equal(proba, held.predict_proba(tmp_path / "t.parquet", "y"))
        first = {n: hand[n][1].as_py() for n in ("when.hour", "when.weekday", "a")}
        asked = held.query("y", first)
        np.testing.assert_allclose(proba[1], asked.probabilities, rtol=1e-12)
        assert held.log_likelihood(rows) == held.log_likelihood(hand)
        drawn = held.sample(50, seed=1)
        assert np.isfinite(held.log_likelihood(drawn))
        scores = [held.score(some, missing="available") for some in (rows, hand)]
        assert scores[0] == scores[1]
        again = dict(held.tables)
        assert all(np.array_equal(t, again[n]) for n, t in held.fit(rows).tables.items())
    # Elapsed time keeps its unit: dates count days, timestamps seconds.
    days = pa.table({"when": rows["when"].cast(pa.date32()), "y": rows["y"]})
    cuts = {"when.elapsed": [18_700.5]}
    network = fb.BayesianNetwork.from_edges([("when.elapsed", "y")]).fit(days, discretize=cuts)
    late = network.states["when.elapsed"][1]
    found = network.predict_proba({"when": [dt.datetime(2023, 1, 1)]}, "y")[0]
    np.testing.assert_allclose(found, network.query("y", {"when.elapsed": late}).probabilities)
    moments = table(600, zone=None).select(["when", "y"])
    held = pc.cast(moments["when"], pa.int64()).drop_null().to_numpy() / (DAY * 10**6)
    share = network.fit(moments, alpha=0).tables["when.elapsed"]
    np.testing.assert_allclose(share, [np.mean(held <= 18_700.5), np.mean(held > 18_700.5)])
    assert 0.1 < share[0] < 0.9
    with pytest.raises(SchemaError, match=r"no column 'when\.minute'"):
        fb.BayesianNetwork.from_edges([("when.minute", "y")]).fit(rows)
    with pytest.raises(SchemaError, match=r"no column 'a\.hour', and column 'a' is string"):
        fb.BayesianNetwork.from_edges([("a.hour", "y")]).fit(rows)
    with pytest.raises(SchemaError, match="held timestamps with a time zone at fit"):
        fb.BayesianNetwork.from_edges(edges).fit(rows).predict_proba(table(9, zone=None), "y")


# Models whose explanations and importance are made in different ways.
EXPLAINED = [
    fb.NaiveBayes(),
    fb.TAN(),
    fb.AODE(),
    fb.GaussianBayes(columns=["when", "x", "device.v"], dates={"when": ["elapsed"]}),
    fb.LogisticRegression(),
    fb.Blend(["naive-bayes", "tan"]),
    fb.Calibrated(fb.TAN()),
]


@pytest.mark.parametrize("model", EXPLAINED, ids=lambda model: type(model).__name__)
def test_what_drives_it__parts_count_as_if_they_stood_in_the_rows(model: Any) -> None:
    rng, n = np.random.default_rng(3), 120
    hours = rng.integers(0, 24 * 900, n).tolist()
    devices = [{"os": "ab"[i % 2], "v": v} for i, v in enumerate(rng.normal(size=n).tolist())]
    rows = pa.table(
        {
            "when": [dt.datetime(2020, 1, 1) + dt.timedelta(hours=h) for h in hours],
            "device": devices,
            "x": rng.normal(size=n),
            "y": [str(h // 24 % 7 > 3) for h in hours],
        }
    )
    model = model.fit(rows, "y")
    flat = rows.flatten()
    names = [*rows.column_names[:1], *(f"device.{n}" for n in ("os", "v")), *("x", "y")]
    derived = module.with_parts(flat.rename_columns(names), model.schema_)
    assert "when" not in derived.column_names
    assert model.importance(rows).table.equals(model.importance(derived).table)
    said = model.explain(rows.drop_columns(["y"])).table(5)
    assert said.equals(model.explain(derived.drop_columns(["y"])).table(5))
    shown = dict(zip(said["column"].to_pylist(), said["value"].to_pylist(), strict=True))
    for name in model.schema_.names:
        assert shown[name] == cell(derived[name][5].as_py()), name


def test_plan__takes_all_parts() -> None:
    plan = fb.plan(table(50), "y")
    assert [*plan.columns][:5] == [f"when.{part}" for part in PARTS["timestamp"]]
    assert plan.unusable == {}


def test_command_line(tmp_path: Path) -> None:
    rows = table(500)
    data, model, stats = (str(tmp_path / name) for name in ("t.parquet", "m.fb", "s.fbs"))
    pq.write_table(rows, data)
    run("fit", data, "--target", "y", "-o", model)
    assert fb.load(model).schema_.names[:2] == ("when.year", "when.month")
    run("predict", model, data, "-o", str(tmp_path / "o.parquet"))
    run("count", data, "--target", "y", "--dates", "when=weekday+hour", "-o", stats)
    assert fb.load(stats).schema.names == ("when.weekday", "when.hour", "a")
    run("fit", data, "--target", "y", "--dates", "when=number", "-o", model, "--force")
    assert fb.load(model).schema_.names == ("when.elapsed", "a")
    assert json.loads(run("inspect", data, "--target", "y", "--json").stdout)["columns"]["when"][
        "kind"
    ] == "timestamp"  # fmt: skip
    network = str(tmp_path / "n.fb")
    run("network", "learn", data, "--dates", "when=weekday+hour", "-o", network)
    assert fb.load(network).nodes == ("when.weekday", "when.hour", "a", "y")
    wrong = run("fit", data, "--target", "y", "--dates", "when", "-o", model, "--force", code=2)
    assert "write parts after each = as when=weekday+hour" in wrong.stderr


def test_statistics__as_a_table_and_as_bytes() -> None:
    stats = fb.count(table(200), "y")
    assert fb.Statistics.from_table(stats.to_table()).schema == stats.schema
    assert fb.Statistics.from_bytes(stats.to_bytes()) == stats


def test_files_that_cannot_be_read__are_skipped_where_spans_are_looked_for(tmp_path: Path) -> None:
    rows = table(400)
    for name in "ab":
        pq.write_table(rows, tmp_path / f"{name}.parquet", use_dictionary=False)
    damaged = bytearray((tmp_path / "b.parquet").read_bytes())
    damaged[200:2000] = bytes(1800)
    (tmp_path / "b.parquet").write_bytes(damaged)
    with pytest.raises(DataError, match=r"b\.parquet"):
        fb.count(tmp_path, "y")
    stats = fb.count(tmp_path, "y", on_error="skip")
    assert stats.values == fb.count(rows, "y").values


def test_checkpoint__finds_the_same_parts(tmp_path: Path) -> None:
    rows = table(400)
    pq.write_table(rows, tmp_path / "t.parquet")
    first, again = (
        fb.count(tmp_path / "t.parquet", "y", checkpoint=tmp_path / "kept") for _ in range(2)
    )
    assert first == again
    other = fb.count(tmp_path / "t.parquet", "y", dates={"when": ["hour"]})
    assert other.schema != first.schema


@pytest.mark.parametrize(
    "zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago",
             "Africa/Casablanca", "Asia/Kolkata"]
)  # fmt: skip
def test_the_rules_of_a_zone_hold_after_the_last_year_that_its_file_lists(zone: str) -> None:
    first, last = (int(dt.datetime(y, 1, 1, tzinfo=dt.UTC).timestamp()) for y in (2036, 2101))
    end = int(dt.datetime(9990, 1, 1, tzinfo=dt.UTC).timestamp())
    rng = np.random.default_rng(0)
    at = np.concatenate([rng.integers(first, last, 4000), rng.integers(last, end, 2000)])
    changes = module._late_changes(zone, module.LISTED_UNTIL)
    at = np.append(at, changes.since[:, None] + [-1, 0])
    known = ZoneInfo(zone)
    wanted = [dt.datetime.fromtimestamp(s, known).replace(tzinfo=None) for s in at.tolist()]
    column = pa.array([*at.tolist(), None], pa.int64()).cast(pa.timestamp("s", zone))
    assert module.local_times(column, "t", zone).to_pylist() == [*wanted, None]
    parts = [DatePart("t", part, "timestamp", zone) for part in ("hour", "weekday")]
    few = DateParts(parts).of(pa.record_batch([column], names=["t"]))
    assert few.column("t.hour").to_pylist() == [*(moment.hour for moment in wanted), None]


def test_zone_files_that_list_no_change_where_a_rule_is_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    zone, of_arrow = "America/New_York", pc.local_timestamp
    rule_since = int(dt.datetime(2007, 11, 4, 6, tzinfo=dt.UTC).timestamp())

    def by_such_a_file(column: pa.Array) -> pa.Array:
        at = np.asarray(column.view(pa.int64()))
        before = np.asarray(of_arrow(column).view(pa.int64()))
        return pa.array(np.where(at < rule_since, before, at - 5 * 3600)).cast(pa.timestamp("s"))

    first, last = (int(dt.datetime(y, 1, 1, tzinfo=dt.UTC).timestamp()) for y in (1990, 2060))
    at = np.random.default_rng(0).integers(first, last, 4000)
    column = pa.array(at).cast(pa.timestamp("s", zone))
    monkeypatch.setattr(module.pc, "local_timestamp", by_such_a_file)
    for cached in (module._unread_from, module._late_changes):
        cached.cache_clear()
    try:
        found = module.local_times(column, "t", zone).to_pylist()
    finally:
        module._unread_from.cache_clear()
    known = ZoneInfo(zone)
    assert found == [dt.datetime.fromtimestamp(s, known).replace(tzinfo=None) for s in at.tolist()]


@pytest.mark.parametrize(
    ("learn", "need"),
    [
        (lambda rows, **dates: fb.fit(rows, "y", **dates), "Blend fits its members"),
        (lambda rows, **dates: fb.compare(rows, "y", **dates), "compare counts"),
        (lambda rows, **dates: fb.k_fold(fb.NaiveBayes(), rows, "y", **dates), "k_fold counts"),
        (
            lambda rows, **dates: fb.learning_curve("tan", rows, "y", **dates),
            "learning_curve reads",
        ),
    ],
    ids=["fit", "compare", "k_fold", "learning_curve"],
)
@pytest.mark.parametrize("dates", [{}, {"dates": {"when": ["weekday"]}}], ids=["by span", "named"])
def test_rows_that_come_once__are_told_at_once_what_helps(
    learn: Any, need: str, dates: dict[str, Any]
) -> None:
    """Parts that are named are no remedy where the rows are read again."""
    days = pa.array(np.datetime64("2024-01-01", "s") + 86_400 * np.arange(90))
    table = pa.table({"when": days, "y": list("ab") * 45})
    rows = pa.RecordBatchReader.from_batches(table.schema, table.to_batches())
    with pytest.raises(fb.SchemaError, match=f"only once, but {need}.*: pass a table or a path$"):
        learn(rows, **dates)
