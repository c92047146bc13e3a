"""Files as a bad disk or a bad writer would leave them."""

from __future__ import annotations

import numpy as np


def mutations(data, seed, n, begin=0, end=None):
    """Yield n times what was done to bytes[begin:end] (all unless given), and the changed bytes.

    Cuts are the exception to the bounds: they take what is behind as well.
    """
    rng = np.random.default_rng(seed)
    end = len(data) if end is None else end
    for _ in range(n):
        kind = rng.choice(["bit", "byte", "several", "cut", "splice", "swap"])
        at, other = (int(place) for place in rng.integers(begin, end, 2))
        changed = bytearray(data)
        if kind == "bit":
            changed[at] ^= 1 << rng.integers(8)
        elif kind == "byte":
            changed[at] = rng.choice([0, 1, 127, 128, 255, rng.integers(256)])
        elif kind == "several":
            for place in rng.integers(at, min(at + 16, end), 4):
                changed[place] = rng.integers(256)
        elif kind == "cut":
            del changed[at:]
        else:
            size = int(min(rng.integers(1, 65), end - at, end - other))
            if kind == "swap":
                changed[at : at + size] = data[other : other + size]
                changed[other : other + size] = data[at : at + size]
            else:  # what is between the two pieces stays, and so does the length
                changed[at : at + size] = data[other : other + size]
        yield f"{kind} at {at} ({other})", bytes(changed)
