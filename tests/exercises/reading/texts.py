"""Call every driver of a module of texts, short and long ones, in a table that must grow."""

from __future__ import annotations

import numpy as np

from fastbayes.kernels.shared.texts import UNSEEN, Texts, TextTable

ROWS = 200


def exercise(module):
    given = [b"%d" % r * (1 + r % 12) for r in range(ROWS)]
    texts = Texts(np.cumsum([0, *map(len, given)]), np.frombuffer(b"".join(given), np.uint8))
    codes = np.full(ROWS, UNSEEN)
    none = Texts(np.zeros(1, np.int64), np.zeros(0, np.uint8))
    table = module.add_texts(module.indexed(TextTable.of(none)), texts, codes)
    assert codes.tolist() == [given.index(text) for text in given]
    for times in (1, 50):  # so many rows that texts get places of their own
        ends = np.cumsum([0, *map(len, given * times)])
        again = np.full(ROWS * times, UNSEEN)
        many = Texts(ends, np.frombuffer(b"".join(given * times), np.uint8))
        assert module.find_texts(table, many, again)
        assert again.tolist() == codes.tolist() * times
