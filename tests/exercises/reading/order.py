"""Call every driver of a module of orders on texts that differ late, and only in length."""

from __future__ import annotations

import numpy as np


def exercise(order):
    texts = [b"%d" % (k * 7919 % 1000) * (1 + k % 7) + b"\0" * (k % 3) for k in range(300)]
    offsets = np.cumsum([0, *map(len, texts)], dtype=np.int32)
    data = np.frombuffer(b"".join(texts), np.uint8)
    places = order.ascending_texts(offsets, data)
    assert [texts[r] for r in places] == sorted(texts)
    ends, taken = order.take_texts(offsets, data, places)
    assert ends.tolist() == [0, *np.cumsum([len(texts[r]) for r in places])]
    assert taken.tobytes() == b"".join(sorted(texts))
