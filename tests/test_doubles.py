"""Numbers of any type become the nearest float64, wherever they come from."""

from __future__ import annotations

import random
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fastbayes as fb
from fastbayes.core.doubles import doubles

# By the most digits of a type, and its bytes.
WIDTHS = ((pa.decimal32, 9, 4), (pa.decimal64, 18, 8), (pa.decimal128, 38, 16),
          (pa.decimal256, 76, 32))  # fmt: skip


def bits(values: Any) -> list[Any]:
    """Return numbers by their bits, None where there is none."""
    return [None if value is None else float(value).hex() for value in values]


def decimals(kind: pa.DataType, width: int, whole: list[int | None]) -> pa.Array:
    """Return decimals by their digits, of any scale."""
    data = b"".join((n or 0).to_bytes(width, "little", signed=True) for n in whole)
    known = pa.array([n is not None for n in whole]).buffers()[1]
    return pa.Array.from_buffers(kind, len(whole), [known, pa.py_buffer(data)])


@pytest.mark.parametrize(("make", "digits", "width"), WIDTHS)
def test_decimals__are_what_python_makes_of_them(make: Any, digits: int, width: int) -> None:
    draw = random.Random(digits)
    for _ in range(100):
        precision, scale = draw.randint(1, digits), draw.choice([draw.randint(-9, 30), 2, 60, 310])
        most = 10 ** draw.randint(1, precision)
        whole = [draw.choice([draw.randrange(-most, most), None, 0, most - 1]) for _ in range(20)]
        column = decimals(make(precision, scale), width, whole)
        with localcontext(prec=80):
            expected = bits(n if n is None else float(Decimal(n).scaleb(-scale)) for n in whole)
        assert bits(doubles(column).to_pylist()) == expected
        assert bits(doubles(column[3:17]).to_pylist()) == expected[3:17]
        chunked = pa.chunked_array([column[:3], column[3:]])
        assert bits(doubles(chunked).to_pylist()) == expected
        entries = pa.DictionaryArray.from_arrays(pa.array([2, None, 0, 19]), column)
        assert bits(doubles(entries).to_pylist()) == [expected[2], None, expected[0], expected[19]]


def test_decimals__of_nothing_or_nulls_alone() -> None:
    kind = pa.decimal128(9, 2)
    assert doubles(pa.array([], kind)).to_pylist() == []
    assert doubles(pa.chunked_array([], kind)).type == pa.float64()
    assert doubles(pa.nulls(3, kind)).to_pylist() == [None] * 3


def test_decimals__at_the_end_of_what_divides_exactly() -> None:
    around = [sign * ((1 << 53) + step) for sign in (1, -1) for step in (-1, 0, 1, 2, 3)]
    for scale in (0, 1, 22, 23):
        for kind, width in ((pa.decimal128(38, scale), 16), (pa.decimal256(76, scale), 32)):
            whole = [*around, 1 << 63, -(1 << 63), (1 << 64) + 5, -(1 << 64) + 5]
            with localcontext(prec=80):
                expected = bits(float(Decimal(n).scaleb(-scale)) for n in whole)
            assert bits(doubles(decimals(kind, width, whole)).to_pylist()) == expected


PRICES = [Decimal(k) / 100 for k in range(1, 801)]
KINDS = [pa.decimal32(6, 2), pa.decimal64(12, 2), pa.decimal128(8, 2), pa.decimal128(30, 2),
         pa.decimal256(50, 2), pa.dictionary(pa.int16(), pa.decimal128(8, 2))]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("stored", ["memory", "bytes", "integers"])
def test_decimals__count_as_the_doubles_they_are(
    kind: pa.DataType, stored: str, tmp_path: Path
) -> None:
    prices = pa.array(PRICES, pa.decimal128(8, 2))
    plain = pa.array([float(price) for price in PRICES])
    coded = pa.types.is_dictionary(kind)
    given = prices.dictionary_encode().cast(kind) if coded else prices.cast(kind)
    tables = []
    for column in (given, plain):
        few = column.take(pa.array(np.arange(len(column)) % 5))
        # A dictionary, which is no numeric column, can be all else.
        x = plain if coded else column
        table = pa.table({"x": x, "v": column, "y": few, "g": few, "w": x})
        if stored != "memory":
            path = tmp_path / f"{len(tables)}.parquet"
            pq.write_table(table, path, store_decimal_as_integer=stored == "integers")
            table = path
        tables.append(table)
    counts = [
        fb.count(t, "y", categorical=["v"], numeric={"x": sorted(map(float, PRICES[::7]))},
                 folds="g", columns=["x", "v"], sample_weight="w")
        for t in tables
    ]  # fmt: skip
    assert counts[0] == counts[1]
    assert counts[0].schema.classes.to_pylist() == sorted(map(float, PRICES[:5]))
    assert counts[0].fold_names == counts[1].fold_names


def test_decimals__beside_doubles_and_other_decimals(tmp_path: Path) -> None:
    plain = pa.array([float(price) for price in PRICES])
    columns = [plain, *(pa.array(PRICES, pa.decimal128(p, s)) for p, s in ((8, 2), (20, 3)))]
    files = []
    for column in (*columns, columns[1].dictionary_encode()):
        files.append(tmp_path / f"{len(files)}.parquet")
        pq.write_table(pa.table({"x": column, "y": [*"pq"] * 400}), files[-1])
    whole = pa.table({"x": pa.concat_arrays([plain] * 4), "y": [*"pq"] * 1600})
    kept: list[dict[str, Any]] = [{"categorical": ["x"]}, {"numeric": {"x": [3.03, 4.07]}}]
    for how in kept:
        for given in (files, files[::-1]):
            assert fb.count(given, "y", **how) == fb.count(whole, "y", **how)


def test_decimals__declared_or_counted_elsewhere() -> None:
    declared = {"x": pa.array([Decimal("8.03"), Decimal("3.03")])}
    rows = pa.table({"x": [3.03, 8.03], "y": [*"pq"]})
    counted = fb.count(rows, "y", categorical=["x"], domains=declared)
    assert counted.schema.categorical[0].values.to_pylist() == [3.03, 8.03]
