from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastbayes.kernels.compiled.reading import order as compiled
from fastbayes.kernels.numpy.reading import order as numpy_twin

MODULES = [
    pytest.param(compiled, id="kernels"),
    pytest.param(numpy_twin, id="numpy"),
]
# Of every length around a word, of equal beginnings and ends, with zeros, with the highest bits.
PIECES = st.sampled_from(
    [b"", b"\0", b"a", b"b\0", b"abcdefgh", b"abcdefg", "é☃".encode(), b"\xff\xff\xff"]
)
TEXTS = st.lists(PIECES, max_size=7).map(b"".join)


def check(module, texts, before=b"", behind=b""):
    """Sort texts, those of a slice of an array."""
    offsets = len(before) + np.cumsum([0, *map(len, texts)], dtype=np.int32)
    data = np.frombuffer(before + b"".join(texts) + behind, np.uint8)
    places = module.ascending_texts(offsets, data)
    assert sorted(places.tolist()) == list(range(len(texts)))
    assert [texts[r] for r in places] == sorted(texts)
    ends, taken = module.take_texts(offsets, data, places)
    assert ends[0] == 0
    assert len(taken) == ends[-1]
    assert [taken[a:b].tobytes() for a, b in pairwise(ends.tolist())] == sorted(texts)


@pytest.mark.parametrize("module", MODULES)
@given(
    texts=st.lists(st.one_of(TEXTS, st.binary(max_size=30)), max_size=40),
    before=st.binary(max_size=3),
    behind=st.binary(max_size=20),
)
def test_ascending_texts(module, texts, before, behind):
    check(module, texts, before, behind)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("kind", ["digits", "random", "late", "zeros", "one", "in order"])
def test_ascending_texts__many(module, kind):
    rng = np.random.default_rng(0)
    texts = {
        "digits": [b"id%06d" % k for k in rng.permutation(20_000)],
        "random": [rng.bytes(n) for n in rng.integers(0, 20, 20_000)],
        # The first words are the same, or in groups; the last word of a text tells.
        "late": [b"same" * (k % 9) + b"%d" % (k // 9) for k in rng.permutation(20_000)],
        "zeros": [b"ab" + b"\0" * n for n in rng.permutation(300)],
        "one": [b"one text of several words"] * 3,
        "in order": [b"%08d" % k for k in range(5000)],
    }[kind]
    check(module, texts)
