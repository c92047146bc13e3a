"""Fields of structs are columns, "device.os" of "device", whatever the rows come in."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.orc as pa_orc
import pyarrow.parquet as pq
import pytest

import fastbayes as fb
from fastbayes.core.errors import SchemaError
from fastbayes.data import text
from fastbayes.data.nested import flat, flat_row, flat_schema, roots
from fastbayes.data.source import open_source
from fastbayes.engines import pool

N = 400


def device(n: int = N) -> list[dict[str, Any] | None]:
    random = np.random.default_rng(4)
    return [
        None
        if i % 11 == 0
        else {
            "os": "abc"[random.integers(3)],
            "screen": {"width": float(random.integers(9)), "kind": "xy"[i % 2]},
        }
        for i in range(n)
    ]


def nested() -> pa.Table:
    random = np.random.default_rng(6)
    return pa.table({"device": device(), "a": random.choice([*"uv"], N).tolist(),
                     "y": random.choice([*"np"], N).tolist()})  # fmt: skip


NAMES = ["device.os", "device.screen.width", "device.screen.kind", "a", "y"]


def by_hand(rows: pa.Table) -> pa.Table:
    """Return the fields as Python has them."""
    lines = []
    for row in rows.to_pylist():
        held = row["device"] or {"os": None, "screen": {"width": None, "kind": None}}
        lines.append([held["os"], held["screen"]["width"], held["screen"]["kind"],
                      row["a"], row["y"]])  # fmt: skip
    return pa.table([pa.array(c) for c in zip(*lines, strict=True)], names=NAMES)


def test_flat__is_what_python_takes_apart() -> None:
    rows = nested()
    assert flat(rows).equals(by_hand(rows))
    part = rows.slice(13, 50).combine_chunks().to_batches()[0].slice(3, 40)
    assert pa.Table.from_batches([flat(part)]).equals(by_hand(rows.slice(16, 40)))
    assert flat_schema(rows.schema).names == NAMES
    assert flat(by_hand(rows)).equals(by_hand(rows))
    assert flat_row({"a": 1, "d": {"b": 2, "e": {"f": 3}}}) == {"a": 1, "d.b": 2, "d.e.f": 3}
    assert roots(["d.e.f", "d.b", "a", "x.y"], ["d", "a", "d.b"]) == ["d", "d.b", "a", "x.y"]


def sources(rows: pa.Table, folder: Path) -> dict[str, Any]:
    pq.write_table(rows, folder / "t.parquet", row_group_size=150)
    with pa.ipc.new_file(folder / "t.arrow", rows.schema) as writer:
        writer.write_table(rows, max_chunksize=70)
    with pa.ipc.new_stream(folder / "t.arrows", rows.schema) as stream:
        stream.write_table(rows, max_chunksize=70)
    pa_orc.write_table(rows, str(folder / "t.orc"))
    (folder / "t.jsonl").write_text("\n".join(map(json.dumps, rows.to_pylist())))
    found = {name: folder / f"t.{name}" for name in ("parquet", "arrow", "arrows", "orc", "jsonl")}
    return {
        **found,
        "reader": rows.to_reader(100),
        "batches": rows.to_batches(60),
        "dict": rows.to_pydict(),
        "dataset": ds.dataset(folder / "t.parquet"),
        "pool": pool.paths(folder / "t.parquet", processes=1),
    }


def test_count__is_equal_however_rows_arrive(tmp_path: Path) -> None:
    rows = nested()
    wanted = fb.count(by_hand(rows), "y")
    every = sources(rows, tmp_path)
    every["pandas"] = rows.to_pandas() if _has("pandas") else rows
    if _has("polars"):
        import polars as pl

        every |= {"polars": pl.from_arrow(rows), "lazy": pl.from_arrow(rows).lazy()}
    for name, source in every.items():
        found = fb.count(source, "y")
        assert found.schema == wanted.schema, name
        assert found.values == wanted.values, name
        assert found.moments.allclose(wanted.moments, 1e-12), name


def _has(module: str) -> bool:
    try:
        __import__(module)
    except ImportError:
        return False
    return True


@pytest.mark.parametrize(
    "given",
    [{"columns": ["device.screen.*", "a"]}, {"exclude": "*.os"}, {"exclude": ["device.os"]}],
    ids=str,
)
def test_fields__are_chosen_by_name(given: dict[str, Any], tmp_path: Path) -> None:
    rows = nested()
    wanted = fb.count(by_hand(rows).drop_columns("device.os"), "y")
    every = sources(rows, tmp_path)
    every["pandas"] = rows.to_pandas() if _has("pandas") else rows
    if _has("polars"):
        import polars as pl

        every["lazy"] = pl.from_arrow(rows).lazy()
    for name, source in every.items():
        found = fb.count(source, "y", **given)
        assert found.values == wanted.values, name
    model = fb.NaiveBayes(**given).fit(rows, "y")
    assert model.statistics_.values == wanted.values
    assert set(model.feature_names_in_) == {"device.screen.width", "device.screen.kind", "a"}


def test_a_field__is_the_class_the_weight_and_a_category(tmp_path: Path) -> None:
    rows, plain = nested(), by_hand(nested())
    pq.write_table(rows, tmp_path / "t.parquet")
    options: dict[str, Any] = {"sample_weight": "device.screen.width", "exclude": "device.s*.kind"}
    keep = [i for i in range(N) if plain["device.os"][i].as_py() is not None]
    wanted = fb.count(plain.take(keep).drop_columns("device.screen.kind"), "device.os",
                      sample_weight="device.screen.width")  # fmt: skip
    held = pq.read_table(tmp_path / "t.parquet").take(keep)
    assert fb.count(held, "device.os", **options).values == wanted.values
    model = fb.TAN(categorical="device.*.width").fit(tmp_path / "t.parquet", "device.os")
    assert model.schema_.features[0].kind == "categorical"


@pytest.mark.parametrize("form", ["table", "polars", "pandas", "batches"])
def test_a_field__is_the_class_that_scores_are_of(form: str) -> None:
    codes = np.arange(60) % 3
    of = [{"y": "pq"[code // 2]} for code in codes]
    rows = pa.table({"x": codes, "of": of})
    given: dict[str, Any] = {
        "table": rows,
        "polars": pl.from_arrow(rows),
        "pandas": rows.to_pandas(),
        "batches": rows.to_batches(),
    }
    model = fb.NaiveBayes().fit(given[form], "of.y")
    assert model.score(given[form], "of.y") == 1.0
    if form != "batches":
        assert fb.CategoricalNB().fit(given[form], "of.y").score(given[form], "of.y") == 1.0
    with pytest.raises(SchemaError, match=r"no column 'of\.z'.*of\.y"):
        model.score(given[form], "of.z")


def test_predict__opens_structs_too(tmp_path: Path) -> None:
    rows = nested()
    every = sources(rows.drop_columns("y"), tmp_path)
    plain = fb.NaiveBayes().fit(by_hand(rows), "y")
    wanted = plain.predict_proba(by_hand(rows).drop_columns("y"))
    model = fb.NaiveBayes().fit(rows, "y")
    for name in ("parquet", "arrow", "jsonl", "dict", "reader"):
        found = model.predict_proba(every[name])
        np.testing.assert_allclose(found, wanted, rtol=1e-12, err_msg=name)
    row = rows.slice(5, 1).to_pylist()[0]
    np.testing.assert_allclose(model.predictor().predict_proba(row), wanted[5], rtol=1e-12)
    fb.predict_to(model, tmp_path / "t.parquet", tmp_path / "out.parquet", keys=["device.os"])
    assert pq.read_table(tmp_path / "out.parquet")["device.os"].to_pylist() == (
        by_hand(rows)["device.os"].to_pylist()
    )


def test_predictor__takes_a_null_struct_as_the_model_does() -> None:
    rows = nested()
    model = fb.NaiveBayes().fit(rows, "y")
    predictor = model.predictor()
    held = rows["device"].to_pylist()[5]
    for device in (None, {"os": "a", "screen": None}, held):
        table = pa.table({"device": pa.array([device], rows["device"].type), "a": ["u"]})
        wanted = model.predict_proba(table)[0]
        assert predictor.predict_proba({"device": device, "a": "u"}).tolist() == wanted.tolist()
    null = predictor.predict_proba({"device": None, "a": "u"}).tolist()
    assert predictor.predict_proba({"device": float("nan"), "a": "u"}).tolist() == null
    for row in ({"device": 3.0, "a": "u"}, {"a": "u"}, {"device": {"os": "a"}, "a": "u"}):
        with pytest.raises(SchemaError, match=r"no column 'device\.(os|screen\.width)' in the row"):
            predictor.predict(row)


def test_a_field__declares_its_values_as_a_column_does() -> None:
    kind, values, y = pl.Enum(["b", "a", "z"]), list("ab") * 6, list("pqp") * 4
    inner = pl.Struct({"e": kind, "s": pl.Struct({"f": kind})})
    held = [{"e": value, "s": {"f": value}} for value in values]
    column = pl.Series("c", held, dtype=inner)
    frame = pl.DataFrame({"c": column, "y": y})
    for rows in (frame, frame.lazy(), {"c": column, "y": y}):
        schema = fb.count(rows, "y").schema
        assert schema.names == ("c.e", "c.s.f")
        for feature in schema.features:
            assert feature.declared
            assert feature.values is not None
            assert feature.values.to_pylist() == ["a", "b", "z"]


def test_a_column__is_no_struct_of_another() -> None:
    rows = pa.table({"s": [*"ab"] * 20, "s.p": [*"uuvv"] * 10, "y": [*"np"] * 20})
    predictor = fb.NaiveBayes().fit(rows, "y").predictor()
    with pytest.raises(SchemaError, match=r"no column 's\.p' in the row"):
        predictor.predict({"s": None})


def test_a_field__may_be_a_date() -> None:
    days = [{"when": dt.date(2020, 1, 1) + dt.timedelta(i * 5)} for i in range(100)]
    stats = fb.count({"event": days, "y": [*"np" * 50]}, "y")
    assert stats.schema.names == ("event.when.month", "event.when.weekday")


def test_two_columns_of_one_name__are_refused() -> None:
    rows = pa.table({"d": [{"os": 1}], "d.os": [2], "y": ["n"]})
    with pytest.raises(SchemaError, match=r"has two columns named 'd\.os'"):
        open_source(rows)


def test_json__a_later_file_may_begin_without_the_struct(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"d": {"os": "x"}, "y": "n"}\n')
    (tmp_path / "b.jsonl").write_text('{"y": "p"}\n' * 3 + '{"d": {"os": "z"}, "y": "n"}\n')
    assert fb.count(tmp_path, "y").schema.features[0].values.to_pylist() == ["x", "z"]


def test_inspect__names_fields(tmp_path: Path) -> None:
    pq.write_table(nested(), tmp_path / "t.parquet")
    source = open_source(tmp_path / "t.parquet")
    assert source.schema.names == NAMES
    assert {*source.handed_over()} == {*NAMES[:3]}


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "arrow"])
def test_fields__that_are_named_as_a_column(tmp_path: Path, kind: str) -> None:
    good = [{"x": {"p": i % 2}, "y": "uv"[i % 2]} for i in range(6)]
    bad = [{**row, "x.p": "ab"[i % 2]} for i, row in enumerate(good)]
    said = r"has two columns named 'x\.p'; rename or drop one"
    with pytest.raises(SchemaError, match=said):
        fb.count(pa.Table.from_pylist(bad), "y")
    for name, rows in (("a", good), ("b", bad)):
        path, table = tmp_path / f"{name}.{kind}", pa.Table.from_pylist(rows)
        if kind == "jsonl":
            path.write_text("\n".join(map(json.dumps, rows)))
        elif kind == "parquet":
            pq.write_table(table, path)
        else:
            with pa.ipc.new_file(path, table.schema) as writer:
                writer.write_table(table)
    for source in (path, str(tmp_path)):
        with pytest.raises(SchemaError, match=f"b.{kind} {said}"):
            fb.count(source, "y")
    with pytest.raises(SchemaError, match=f"b.{kind} {said}"):
        fb.count(fb.Files(path, on_error="skip"), "y")
    left_out = fb.count(fb.Files(str(tmp_path), on_error="skip"), "y", on_error="skip")
    assert left_out == fb.count(tmp_path / f"a.{kind}", "y")


def test_objects_too_deep_for_a_recursion(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    deep = '{"a":' * 600 + "1" + "}" * 600
    path.write_text(f'{{"x":1,"y":"p"}}\n{{"x":2,"z":{deep},"y":"q"}}\n{{"x":3,"y":"q"}}\n')
    with pytest.raises(fb.DataError, match="row 1: holds objects in objects over 200 deep"):
        open_source(path)


@pytest.mark.parametrize("inside", ["1", "{}", '{"a":1}'])
def test_depth_of_objects__is_one_for_types_and_rows(tmp_path: Path, inside: str) -> None:
    path = tmp_path / "a.jsonl"
    more = inside.count("{")
    for objects, good in ((text.NESTING, True), (text.NESTING + 1, False)):
        deep = '{"a":' * (objects - more) + inside + "}" * (objects - more)
        path.write_text(f'{{"x":1,"y":"p"}}\n{{"x":2,"z":{deep},"y":"q"}}\n{{"x":3,"y":"q"}}\n')
        files = fb.Files(path, on_error="skip-rows")
        if good:
            assert fb.count(files, "y", columns=["x"]).n_rows == 3
        else:
            assert fb.count(files, "y").n_rows == 2
            with pytest.raises(fb.DataError, match="row 1: holds objects in objects over 200 deep"):
                open_source(path)


TYPED = [{"d": {"u": u, "v": {"w": w}}, "s": s, "y": y}
         for u, w, s, y in zip("xzxz", "ccee", "abab", "pqpq", strict=True)]  # fmt: skip
UNKNOWN: dict[str, Any] = {"null": None, "no fields": {}, "null inside": {"u": None, "v": None}}


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("unknown", UNKNOWN)
@pytest.mark.parametrize("form", ["jsonl", "arrow", "list", "iterator"])
@pytest.mark.parametrize("first", ["typed", "untyped"])
def test_an_untyped_column__is_the_struct_that_it_is_elsewhere(
    tmp_path: Path, unknown: str, form: str, first: str
) -> None:
    bare = [{**row, "d": UNKNOWN[unknown]} for row in TYPED]
    each = [TYPED, bare] if first == "typed" else [bare, TYPED]
    tables = [pa.Table.from_pylist(rows) for rows in each]
    kind = pa.Table.from_pylist(TYPED).schema
    wanted = pa.concat_tables([pa.Table.from_pylist(rows, kind) for rows in each])
    source: Any = tables if form == "list" else iter(tables)
    if form == "jsonl":
        for i, rows in enumerate(each):
            lines(tmp_path / f"{i}.jsonl", rows)
    elif form == "arrow":
        for i, table in enumerate(tables):
            with pa.ipc.new_file(tmp_path / f"{i}.arrow", table.schema) as writer:
                writer.write_table(table)
    if form in ("jsonl", "arrow"):
        source = tmp_path
        for mode in ("strict", "first", "union"):
            found = fb.count(fb.Files(tmp_path, schema_mode=mode), "y")
            assert found.schema == fb.count(wanted, "y").schema, mode
        assert open_source(tmp_path).notes == []
    elif form == "iterator" and first == "untyped":
        with pytest.raises(
            SchemaError, match=r"'d\.\S*' that the first lacks|'d' has type struct<>"
        ):
            fb.count(source, "y")
        found = fb.count(iter(tables), "y", columns=["d.u", "d.v.w", "s"])
        assert found.values == fb.count(wanted, "y").values
        return
    model = fb.AODE(missing="category").fit(source, "y")
    same = fb.AODE(missing="category").fit(wanted, "y")
    assert model.schema_ == same.schema_
    assert model.predict_proba(wanted).tolist() == same.predict_proba(wanted).tolist()


@pytest.mark.parametrize("unknown", UNKNOWN)
def test_rows__whose_struct_is_untyped_are_scored(tmp_path: Path, unknown: str) -> None:
    kind = pa.Table.from_pylist(TYPED).schema
    bare = [{"d": UNKNOWN[unknown], "s": row["s"], "y": row["y"]} for row in TYPED]
    rows = pa.Table.from_pylist(bare)
    model = fb.NaiveBayes().fit(pa.Table.from_pylist(TYPED), "y")
    wanted = model.predict_proba(pa.Table.from_pylist(bare, kind)).tolist()
    given: dict[str, Any] = {
        "table": rows,
        "pandas": rows.to_pandas(),
        "polars": pl.from_arrow(rows),
        "lazy": pl.from_arrow(rows).lazy(),
        "dict": rows.to_pydict(),
        "reader": rows.to_reader(2),
        "batches": rows.to_batches(2),
        "json": lines(tmp_path / "a.jsonl", bare),
    }
    if unknown != "no fields":  # which Parquet has no structs without
        pq.write_table(rows, tmp_path / "a.parquet")
        given |= {"parquet": tmp_path / "a.parquet", "dataset": ds.dataset(tmp_path / "a.parquet")}
    for name, source in given.items():
        assert model.predict_proba(source).tolist() == wanted, name
    for columns in (None, ["s"]):  # all, or those named
        fb.predict_to(model, rows, tmp_path / "out.parquet", keys=columns, proba=True, force=True)
        found = pq.read_table(tmp_path / "out.parquet").select(["proba_p", "proba_q"])
        assert [[*row.values()] for row in found.to_pylist()] == wanted
    counted = fb.count(pa.Table.from_pylist(TYPED), "y")
    both = pa.concat_tables([pa.Table.from_pylist(each, kind) for each in (TYPED, bare)])
    assert counted + fb.count(rows, "y", schema=counted) == fb.count(both, "y")
    chosen = fb.count(rows, "y", categorical=["d.u"], exclude="d.v.w")
    assert chosen.schema.names == ("d.u", "s")


def test_a_null_column__is_no_struct_of_one_that_stands_beside_it() -> None:
    rows = pa.table({"s": pa.nulls(4), "s.p": [*"uuvv"], "y": [*"nppn"]})
    assert fb.count(rows, "y").schema.names == ("s", "s.p")
    both = [rows, rows.set_column(0, "s", pa.array([*"abab"]))]
    assert fb.count(both, "y").schema.names == ("s", "s.p")
    model = fb.NaiveBayes().fit(both, "y")
    with pytest.raises(SchemaError, match=r"column 's\.p' is missing"):
        model.predict(pa.table({"s": pa.nulls(4)}))


def test_pandas__a_column_that_no_model_asked_for_is_no_struct() -> None:
    rows = pa.Table.from_pylist(TYPED)
    model = fb.NaiveBayes().fit(rows, "y")
    frame = rows.to_pandas().assign(d=[*"abab"])
    with pytest.raises(SchemaError, match=r"column 'd\.u' is missing"):
        model.predict(frame)


def categories(stats: fb.Statistics) -> list[Any]:
    """Return the values of the first feature."""
    values = stats.schema.features[0].values
    assert values is not None
    return list(values.to_pylist())


def test_json__a_struct_that_the_head_of_a_file_does_not_tell(tmp_path: Path) -> None:
    head = [{"y": "p", "pad": "x" * 2000}] * 12_000  # more than is looked at
    null = [{**row, "d": None} for row in head]
    late = [{"y": "q", "pad": "z", "d": {"u": "late"}}]
    lines(tmp_path / "1.jsonl", [{"y": "p"}, {"y": "q"}])
    lines(tmp_path / "2.jsonl", [{"y": "p", "d": {"u": "x"}}])
    for rows in (head, null):
        path = lines(tmp_path / "3.jsonl", [*rows, *late])
        found = fb.count(tmp_path, "y", columns=["d.u"])
        assert categories(found) == ["late", "x"]
    with pytest.raises(
        SchemaError, match=r"'d' has fields here, 'd\.u', .* columns=\['d\.u', \.\.\.\]"
    ):
        fb.count(path, "y")
    assert categories(fb.count(path, "y", columns=["d.u"])) == ["late"]
