"""Plain twin of `fastbayes.kernels.compiled.zstd`: streams of bits are whole numbers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

_MAGIC = b"\x28\xb5\x2f\xfd"
_MOST = 1 << 17
# Symbols with the bits that follow each: lengths of literals, offsets, lengths of matches.
_BITS = (
    [*[0] * 16, 1, 1, 1, 1, 2, 2, 3, 3, 4, *range(6, 17)],
    [*range(32)],
    [*[0] * 32, 1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, *range(7, 17)],
)
_LEAST = (
    [*accumulate((1 << n for n in _BITS[0][:-1]), initial=0)],
    [1 << n for n in _BITS[1]],
    [*accumulate((1 << n for n in _BITS[2][:-1]), initial=3)],
)
_LOGS = 9, 8, 9
_GIVEN = (
    (6, [4, 3, *[2] * 11, 1, 1, 1, *[2] * 9, 3, 2, *[1] * 5, *[-1] * 4]),
    (5, [*[1] * 6, 2, 2, 2, *[1] * 15, *[-1] * 5]),
    (6, [1, 4, 3, *[2] * 6, *[1] * 37, *[-1] * 7]),
)
# For each state the symbol, the bits to read, and what these are added to.
Table = list[tuple[int, int, int]]


class _LeftError(Exception):
    """A frame is not sound, or not read here."""


def unpack(
    source: NDArray[np.uint8], frames: NDArray[np.int64], out: NDArray[np.uint8]
) -> NDArray[np.bool_]:
    """Unpack frames; return which were: the others are not sound, or not read here."""
    done = np.zeros(len(frames), np.bool_)
    for k, (begin, end, at, room) in enumerate(frames.tolist()):
        try:
            found = _Frame(source[begin:end].tobytes(), room).unpacked()
        except _LeftError:
            continue
        out[at : at + room] = np.frombuffer(found, np.uint8)
        done[k] = True
    return done


def _need(holds: object) -> None:
    if not holds:
        raise _LeftError


class _Bits:
    """A stream of bits that is read from its end; before its start are zeros."""

    def __init__(self, source: bytes) -> None:
        _need(source and source[-1])
        self.left = 8 * len(source) - 9 + source[-1].bit_length()
        self._bits = int.from_bytes(source, "little")

    def peek(self, n: int) -> int:
        low = self.left - n
        found = self._bits >> low if low >= 0 else self._bits << -low
        return found & ((1 << n) - 1) if self.left > 0 else 0

    def take(self, n: int) -> int:
        found = self.peek(n)
        self.left -= n
        return found


class _Frame:
    def __init__(self, source: bytes, room: int) -> None:
        self.source, self.room, self.out = source, room, bytearray()
        self.tree: list[tuple[int, int]] = []
        self.tables: list[Table] = [[], [], []]
        self.last = [1, 4, 8]

    def number(self, at: int, n: int) -> int:
        _need(0 <= at <= len(self.source) - n)
        return int.from_bytes(self.source[at : at + n], "little")

    def unpacked(self) -> bytes:
        _need(self.source[:4] == _MAGIC)
        head, at = self.number(4, 1), 5
        _need(head & 0b1111 == 0)
        single, most = head >> 5 & 1, min(self.room, _MOST)
        if not single:
            window = self.number(at, 1)
            least, at = 1 << 10 + (window >> 3), at + 1
            _need(window >> 3 <= 21)
            most = min(least + (least >> 3) * (window & 7), _MOST)
        width = 1 << (head >> 6) if head >> 6 or single else 0
        if width:
            _need(self.number(at, width) + 256 * (width == 2) == self.room)
        at, block = at + width, 0
        while not block & 1:
            block, at = self.number(at, 3), at + 3
            kind, size = block >> 1 & 3, block >> 3
            taken = self.source[at : at + (1 if kind == 1 else size)]
            _need(kind < 3 and size <= most and (len(taken) == size or (kind == 1 and taken)))
            at += len(taken)
            before = len(self.out)
            self.out += (taken, taken * size, b"")[kind]
            if kind == 2:
                self.block(taken)
                _need(len(self.out) - before <= most)
            _need(len(self.out) <= self.room)
        _need(at == len(self.source) and len(self.out) == self.room)
        return bytes(self.out)

    def block(self, block: bytes) -> None:
        literals, rest = self.literals(block)
        _need(rest)
        n, at = rest[0], 1
        if n > 127:
            at = 2 if n < 255 else 3
            _need(len(rest) >= at)
            n = (n - 128 << 8) + rest[1] if n < 255 else rest[1] + (rest[2] << 8) + 0x7F00
        if n == 0:
            _need(len(rest) == 1 or (rest[0] and len(rest) == at))
            self.out += literals
            return
        bits = _Bits(self.read_tables(rest[at:]))
        used, limit = 0, self.room
        for before, offset, length in self.sequences(bits, n):
            _need(before <= len(literals) - used)
            self.out += literals[used : used + before]
            used += before
            _need(0 < offset <= len(self.out) and len(self.out) + length <= limit)
            for _ in range(length):
                self.out.append(self.out[-offset])
        self.out += literals[used:]

    def literals(self, block: bytes) -> tuple[bytes, bytes]:
        """Return the literals of a block, and what comes behind them."""
        _need(block)
        head = int.from_bytes(block[:5], "little")
        kind, form = head & 3, head >> 2 & 3
        if kind < 2:
            lead = (1, 2, 1, 3)[form]
            n = head >> 3 & 31 if lead == 1 else head >> 4 & ((1 << 8 * lead - 4) - 1)
            size = 1 if kind else n
        else:
            lead, width = ((3, 10), (3, 10), (4, 14), (5, 18))[form]
            n, size = head >> 4 & ((1 << width) - 1), head >> 4 + width & ((1 << width) - 1)
        body, rest = block[lead : lead + size], block[lead + size :]
        _need(len(body) == size and n <= _MOST)
        if kind < 2:
            return body * n if kind else body, rest
        if kind == 2:
            body = self.read_tree(body)
        _need(self.tree)
        if form == 0:
            return self.read_literals(body, n), rest
        _need(len(body) >= 10 and n >= 6)
        ends = [6, *(int.from_bytes(body[k : k + 2], "little") for k in (0, 2, 4))]
        ends = [*accumulate(ends), len(body)]
        part = (n + 3) // 4
        _need(3 * part <= n and ends[3] < len(body))
        counts = [part, part, part, n - 3 * part]
        return b"".join(
            self.read_literals(body[first:last], count)
            for first, last, count in zip(ends, ends[1:], counts, strict=False)
        ), rest

    def read_literals(self, source: bytes, n: int) -> bytes:
        bits, found = _Bits(source), bytearray()
        log = len(self.tree).bit_length() - 1
        for _ in range(n):
            symbol, width = self.tree[bits.peek(log)]
            found.append(symbol)
            bits.left -= width
        _need(bits.left == 0)
        return bytes(found)

    def read_tree(self, source: bytes) -> bytes:
        """Read the tree of literals; return what comes behind it."""
        self.tree = []
        _need(source)
        n = source[0]
        if n > 127:
            stop = 1 + (n - 126) // 2
            both = [weight for byte in source[1:stop] for weight in (byte >> 4, byte & 15)]
            weights = both[: n - 127]
            _need(len(weights) == n - 127)
        else:
            stop = 1 + n
            _need(stop <= len(source))
            weights = _weights(source[1:stop])
        total = sum(1 << weight >> 1 for weight in weights)
        deepest = total.bit_length()
        left = (1 << deepest) - total
        _need(max(weights) <= 11 and 0 < deepest <= 11 and left & (left - 1) == 0)
        weights.append(left.bit_length())
        _need(weights.count(1) >= 2)
        for weight in range(1, deepest + 1):
            for symbol, own in enumerate(weights):
                if own == weight:
                    self.tree += [(symbol, deepest + 1 - weight)] * (1 << weight - 1)
        return source[stop:]

    def read_tables(self, source: bytes) -> bytes:
        """Read the tables of the codes of sequences; return what comes behind them."""
        _need(source and source[0] & 3 == 0)
        modes, source = source[0], source[1:]
        for code in range(3):
            mode = modes >> 6 - 2 * code & 3
            if mode == 0:
                self.tables[code] = _table(*_GIVEN[code])
            elif mode == 1:
                _need(source and source[0] < len(_BITS[code]))
                self.tables[code], source = [(source[0], 0, 0)], source[1:]
            elif mode == 2:
                log, counts, source = _counts(source, len(_BITS[code]), _LOGS[code])
                self.tables[code] = _table(log, counts)
            _need(self.tables[code])
        return source

    def sequences(self, bits: _Bits, n: int) -> Iterator[tuple[int, int, int]]:
        """Yield the number of literals, the offset and the length of each match."""
        states = [bits.take(len(table).bit_length() - 1) for table in self.tables]
        for k in range(n):
            symbols = [table[state][0] for table, state in zip(self.tables, states, strict=True)]
            numbers = [0, 0, 0]
            for code in (1, 2, 0):
                symbol = symbols[code]
                numbers[code] = _LEAST[code][symbol] + bits.take(_BITS[code][symbol])
            _need(bits.left >= 0)
            before, number, length = numbers
            if number > 3:
                self.last = [number - 3, *self.last[:2]]
            else:
                which = number - 1 + (before == 0)
                offset = [*self.last, self.last[0] - 1][which]
                del self.last[min(which, 2)]
                self.last.insert(0, offset)
            yield before, self.last[0], length
            for code in (0, 2, 1) if k + 1 < n else ():
                _, width, base = self.tables[code][states[code]]
                states[code] = base + bits.take(width)
        _need(bits.left == 0)


def _counts(source: bytes, n_symbols: int, deepest: int) -> tuple[int, list[int], bytes]:
    """Return the bits of a table, how often each symbol stands there, and what comes behind."""
    whole, bit = int.from_bytes(source, "little"), 4
    log = (whole & 15) + 5
    _need(source and log <= deepest)
    counts: list[int] = []
    left = 1 << log
    while left > 0:
        _need(len(counts) < n_symbols and bit < 8 * len(source))
        width = (left + 1).bit_length()
        value, short = whole >> bit & ((1 << width) - 1), (1 << width) - 2 - left
        low = value & ((1 << width - 1) - 1)
        bit += width - (low < short)
        if low < short:
            value = low
        elif value > low:
            value -= short
        counts.append(value - 1)
        left -= abs(value - 1)
        more = 3 if value == 1 else 0
        while more == 3:
            _need(bit < 8 * len(source))
            more, bit = whole >> bit & 3, bit + 2
            counts += [0] * more
            _need(len(counts) <= n_symbols)
    _need(left == 0 and bit <= 8 * len(source))
    return log, counts, source[(bit + 7) // 8 :]


def _table(log: int, counts: list[int]) -> Table:
    size = 1 << log
    rare = [symbol for symbol, count in enumerate(counts) if count < 0]
    symbols = [-1] * (size - len(rare)) + rare[::-1]
    at = 0
    for symbol, count in enumerate(counts):
        for _ in range(count):
            symbols[at] = symbol
            at = (at + (size >> 1) + (size >> 3) + 3) % size
            while at >= size - len(rare):
                at = (at + (size >> 1) + (size >> 3) + 3) % size
    seen = [abs(count) for count in counts]
    table = []
    for symbol in symbols:
        width = log + 1 - seen[symbol].bit_length()
        table.append((symbol, width, (seen[symbol] << width) - size))
        seen[symbol] += 1
    return table


def _weights(source: bytes) -> list[int]:
    """Return the weights of the literals, which two states give in turn."""
    log, counts, rest = _counts(source, 256, 6)
    table, bits = _table(log, counts), _Bits(rest)
    _need(bits.left >= 2 * log)
    states = [bits.take(log), bits.take(log)]
    found: list[int] = []
    while bits.left >= 0:
        symbol, width, base = table[states[0]]
        found.append(symbol)
        states = [states[1], base + bits.take(width)]
        _need(len(found) < 255)
    return [*found, table[states[0]][0]]
