"""Pages of Parquet column chunks in plain Python, one value after the other.

The functions are those of `fastbayes.kernels.compiled.reading.pages`, and take what these take.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from oracles import codecs

from fastbayes.kernels.shared import pages as p

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]

# Which number of a page a field of its header is: by type of page, outer field and field.
_FIELDS = {
    (kind, p.STRUCTURES[kind], field): name
    for kind, names in enumerate(p.PAGE_FIELDS)
    for field, name in enumerate(names)
    if name >= 0
}
_OUTER = {field: name for field, name in enumerate(p.HEADER_FIELDS) if name >= 0}
_DEEPEST = 3


class _Wrong(Exception):
    """A column is not sound; `args[0]` says why."""


class _CutOff(Exception):
    """The header of a page goes on behind the bytes that are there."""


def list_pages(source: Bytes, columns: Numbers, pages: Numbers) -> int:
    """Read the headers of the pages that hold the rows wanted; return how many they are."""
    n = 0
    for c, column in enumerate(columns):
        column[[p.LISTED, p.NEEDED, p.FURTHER, p.STATUS]] = 0
        column[p.FOUND] = column[p.ENTRIES]
        column[p.NEXT] = column[p.BEGIN]
        try:
            while column[p.HELD] + column[p.LISTED] < column[p.WANTED]:
                page = _next_page(source, column)
                if page is None:
                    break
                page[p.OF] = c
                if page[p.TYPE] in (p.DATA, p.DICTIONARY, p.DATA_2):
                    _check_page(column, page)
                    if n < len(pages):
                        pages[n] = page
                    n += 1
                column[p.NEXT] = page[p.AT] + page[p.PACKED]
        except _Wrong as wrong:
            column[p.STATUS] = wrong.args[0]
    return n


def _next_page(source: Bytes, column: Numbers) -> Numbers | None:
    """Return the next page; None if more of the file must be read."""
    at, end, more = (int(column[field]) for field in (p.NEXT, p.END, p.MORE))
    try:
        page = _header(source[:end], at)
    except _CutOff:
        if not more:
            raise _Wrong(p.HEADER if end > at else p.TRUNCATED) from None
        column[p.NEEDED] = min(2 * (end - at) + 1024, more)
        return None
    needed = int(page[p.AT] + page[p.PACKED]) - end
    if needed > more:
        raise _Wrong(p.SIZES)
    if needed > 0:
        column[p.NEEDED] = needed
        if page[p.TYPE] in (p.DATA, p.DATA_2):
            behind = int(column[p.WANTED] - column[p.HELD] - column[p.LISTED])
            n_more = (behind - 1) // max(int(page[p.VALUES]), 1)
            column[p.FURTHER] = n_more * int(page[p.AT] + page[p.PACKED] - at)
        elif page[p.TYPE] == p.DICTIONARY:
            column[p.SPACE] = page[p.RAW]
        return None
    return page


def _header(source: Bytes, at: int) -> Numbers:
    page = np.full(p.N_PAGE, -1, np.int64)
    page[p.COMPRESSED] = 1
    fields = [0]
    while fields:
        if at >= len(source):
            raise _CutOff
        kind, step = int(source[at]) & 15, int(source[at]) >> 4
        at += 1
        if kind == 0:
            _need(step == 0, p.HEADER)
            fields.pop()
            continue
        fields[-1] += step
        if step == 0:
            value, at = _varint(source, at)
            fields[-1] = _signed(value)
        value = int(kind == 1)
        if kind in (4, 5, 6, 8):
            value, at = _varint(source, at)
        if kind == 3 or kind == 7:
            at += 1 if kind == 3 else 8
        elif kind == 8:
            _need(value < 2**63, p.HEADER)
            if value > len(source) - at:
                raise _CutOff
            at += value
        elif kind == 12 and len(fields) <= _DEEPEST:
            fields.append(0)
            continue
        elif kind > 8:
            raise _Wrong(p.HEADER)
        name = _OUTER.get(fields[0]) if len(fields) == 1 else None
        if len(fields) == 2:
            name = _FIELDS.get((int(page[p.TYPE]), fields[0], fields[1]))
        if name == p.COMPRESSED and kind <= 2:
            page[name] = value
        elif name is not None and name != p.COMPRESSED and kind == 5:
            value = _signed(value)
            if not -(2**31) <= value < 2**31:
                raise _Wrong(p.HEADER)
            page[name] = value % 2**32 if name == p.CHECKSUM else value
    if min(page[[p.TYPE, p.RAW, p.PACKED]]) < 0:
        raise _Wrong(p.HEADER)
    page[p.AT] = at
    return page


def _check_page(column: Numbers, page: Numbers) -> None:
    n, kind = page[p.VALUES], column[p.KIND]
    given = [p.VALUES, p.ENCODING]
    if page[p.TYPE] == p.DATA_2:
        given += [p.NULL_COUNT, p.ROW_COUNT, p.LEVELS, p.REPEATED]
    else:
        page[[p.LEVELS, p.REPEATED]] = 0
    if page[p.TYPE] == p.DATA:
        given += [p.LEVEL_ENCODING, p.REPETITION_ENCODING]
    _need((page[given] >= 0).all(), p.HEADER)
    _need(not page[p.REPEATED], p.OTHER)
    _need(page[p.LEVELS] <= min(page[p.RAW], page[p.PACKED]), p.SIZES)
    if column[p.CODEC] == p.STORED:
        page[p.COMPRESSED] = 0
    _need(page[p.COMPRESSED] or page[p.RAW] == page[p.PACKED], p.SIZES)
    if column[p.CODEC] in (p.SNAPPY, p.LZ4):
        _need(page[p.RAW] <= p.MOST * (page[p.PACKED] + 1), p.SIZES)
    if page[p.TYPE] == p.DICTIONARY:
        _need(column[p.FOUND] < 0 and not column[p.LISTED], p.TWO_DICTIONARIES)
        _need(page[p.ENCODING] in (p.PLAIN, p.PLAIN_DICTIONARY) and kind != p.TRUTHS, p.OTHER)
        least = 4 if kind == p.STRINGS else column[p.WIDTH]
        _need(n * least <= page[p.RAW], p.ENTRY)
        column[p.FOUND], column[p.SPACE] = n, page[p.RAW]
        return
    _need(n <= column[p.ROWS] - column[p.LISTED], p.SIZES)
    if page[p.TYPE] == p.DATA and column[p.OPTIONAL]:
        _need(page[p.LEVEL_ENCODING] == p.RLE, p.OTHER)
    if kind == p.TRUTHS:
        _need(page[p.ENCODING] in (p.PLAIN, p.RLE), p.OTHER)
    elif page[p.ENCODING] in (p.PLAIN_DICTIONARY, p.RLE_DICTIONARY):
        _need(column[p.FOUND] >= 0, p.NO_DICTIONARY)
    else:
        _need(page[p.ENCODING] == p.PLAIN and kind != p.STRINGS, p.OTHER)
    column[p.LISTED] += n


def move(source: Bytes, parts: Numbers, out: Bytes) -> None:
    """Copy parts of memory into other memory."""
    for begin, to, size in parts.tolist():
        out[to : to + size] = source[begin : begin + size]


def read_parts(descriptor: int, parts: Numbers, out: Bytes) -> None:
    """Read parts of an open file."""
    for begin, to, size in parts.tolist():
        found = np.frombuffer(os.pread(descriptor, size, begin), np.uint8)
        out[to : to + len(found)] = found


def decode(
    source: Bytes,
    unpacked: Bytes,
    columns: Numbers,
    pages: Numbers,
    tables: Bytes,
    indices: Bytes,
    out: Bytes,
) -> None:
    """Decode pages; what is wrong with a column stands in its row."""
    for page in pages:
        column = columns[page[p.OF]]
        if column[p.STATUS] != p.SOUND:
            continue
        try:
            whole = source[page[p.AT] : page[p.AT] + page[p.PACKED]]
            if page[p.CHECKSUM] >= 0:
                _need(codecs.crc32(whole, 0, len(whole)) == page[p.CHECKSUM], p.CRC)
            levels, body = np.split(whole, [page[p.LEVELS]])
            raw = int(page[p.RAW] - page[p.LEVELS])
            body = body if raw else body[:0]  # nothing may be compressed to a byte
            if page[p.COMPRESSED] and raw and page[p.PLACE] >= 0:
                body = unpacked[page[p.PLACE] : page[p.PLACE] + raw]
            elif page[p.COMPRESSED] and raw:
                packed, body = body, np.empty(raw, np.uint8)
                unpack = codecs.snappy if column[p.CODEC] == p.SNAPPY else codecs.lz4
                _need(unpack(packed, 0, len(packed), body, 0, raw) == raw, p.CODED)
            _decode_page(levels, body, column, page, tables, out)
        except _Wrong as wrong:
            column[p.STATUS] = wrong.args[0]


def read_numbers(
    columns: Numbers,
    turn: Numbers,
    source: Bytes,
    unpacked: Bytes,
    flags: Bytes,
    tables: Bytes,
    before: Bytes,
    out: Bytes,
) -> None:
    """Read columns of float64 until the rows wanted are there, NaN where null.

    What is scratch to the kernels is not used, nor is more of it ever asked for.
    """
    for c in _turns(turn, len(columns)):
        column, old, own = columns[c], before[c], out[c]
        column[[p.NEEDED, p.SPACE, p.LISTED, p.TEXT]] = 0
        if column[p.STATUS] != p.SOUND:
            continue
        values = own[p.LEAD : len(own) - p.SLACK].view(np.float64)
        first, held = column[[p.NEXT, p.HELD]]
        if first:
            values[:held] = old[p.LEAD + 8 * first :][: 8 * held].view(np.float64).copy()
        column[p.NEXT] = 0
        try:
            while column[p.HELD] < column[p.WANTED] and column[p.STATUS] == p.SOUND:
                found = _next_numbers(column, tables[c], len(values))
                if column[p.LISTED] or column[p.TEXT]:
                    break
                values[column[p.HELD] :][: len(found)] = found
                column[p.HELD] += len(found)
        except _Wrong as wrong:
            column[p.STATUS] = wrong.args[0]
        if column[p.STATUS] == p.SOUND and column[p.HELD] >= column[p.WANTED]:
            column[p.NULLS] = not np.isfinite(values[: column[p.WANTED]]).all()


def want_numbers(columns: Numbers, turn: Numbers, n: int) -> None:
    """Let go of the numbers of columns that were wanted, and want the next n."""
    turn[0] = 0
    lacking = (columns[:, p.HELD] < columns[:, p.WANTED]) & (columns[:, p.STATUS] == p.SOUND)
    columns[lacking, p.STATUS] = p.OTHER
    columns[:, p.GAPS] |= columns[:, p.NULLS]
    columns[:, p.NEXT] = columns[:, p.WANTED]
    columns[:, p.HELD] -= columns[:, p.WANTED]
    columns[:, p.WANTED] = n


def _turns(turn: Numbers, n: int) -> Iterator[int]:
    """Yield the numbers below n that no other thread takes."""
    while True:
        with _TURN:
            c = int(turn[0])
            turn[0] += 1
        if c >= n:
            return
        yield c


_TURN = threading.Lock()


def _next_numbers(column: Numbers, table: Bytes, room: int) -> NDArray[np.float64]:
    """Return the numbers of the next page, none where it has none or there is no room for them."""
    chunk = column.copy()
    chunk[[p.NEXT, p.END, p.MORE, p.TABLE]] = 0, column[p.MORE], 0, 0
    chunk[p.ENTRIES] = column[p.FOUND]
    whole = os.pread(int(column[p.FILE]), column[p.MORE], column[p.BEGIN])
    _need(len(whole) == column[p.MORE], p.UNREAD)
    source = np.frombuffer(whole, np.uint8)
    page = _next_page(source, chunk)
    assert page is not None
    n, size, numbers = 0, int(page[p.AT] + page[p.PACKED]), np.zeros(0)
    if page[p.TYPE] in (p.DATA, p.DICTIONARY, p.DATA_2):
        _check_page(column.copy(), page)
    if page[p.TYPE] == p.DICTIONARY:
        _need(column[p.FURTHER] == 0, p.TWO_DICTIONARIES)
        if page[p.RAW] + 2 * p.SLACK > len(table):
            column[p.TEXT] = page[p.RAW] + 2 * p.SLACK
            return numbers
        decode(source, table, chunk[None], page[None], table, table, table)
        _need(chunk[p.STATUS] == p.SOUND, chunk[p.STATUS])
        column[p.FOUND] = page[p.VALUES]
    elif page[p.TYPE] in (p.DATA, p.DATA_2):
        n = int(page[p.VALUES])
        if column[p.HELD] + n > room:
            column[p.LISTED] = column[p.HELD] + n
            return numbers
        values = np.concatenate([np.zeros(8 * n, np.uint8), np.ones(n, np.uint8)])
        chunk[[p.OUT, p.HELD, p.KNOWN, p.NULLS]] = 0, 0, 8 * n, 0
        decode(source, values, chunk[None], page[None], table, values, values)
        _need(chunk[p.STATUS] == p.SOUND, chunk[p.STATUS])
        numbers = np.where(values[8 * n :] == 1, values[: 8 * n].view(np.float64), np.nan)
    column[[p.BEGIN, p.MORE, p.ROWS]] += size, -size, -n
    column[[p.ENTRIES, p.FURTHER]] = n, size
    return numbers


def _decode_page(
    levels: Bytes, body: Bytes, column: Numbers, page: Numbers, tables: Bytes, out: Bytes
) -> None:
    n = int(page[p.VALUES])
    if page[p.TYPE] == p.DICTIONARY:
        column[p.ENTRIES] = n
        if column[p.KIND] == p.STRINGS:
            _decode_strings(body, n, column, tables)
        else:
            values = _plain(body, n, column)
            tables[column[p.TABLE] :][: values.size] = values.ravel()
        return
    column[p.ENTRIES] = max(column[p.ENTRIES], 0)
    flags = np.ones(n, np.uint8)
    if column[p.OPTIONAL]:
        if page[p.TYPE] == p.DATA:
            levels, body = _behind_length(body, p.LEVEL)
        flags = _runs(levels, 1, n, p.LEVEL).astype(np.uint8)
        _need(flags.max(initial=0) <= 1, p.LEVEL)
        known = out[column[p.KNOWN] :]
        if not column[p.NULLS] and not flags.all():
            known[: column[p.HELD]] = 1
        if column[p.NULLS] or not flags.all():
            known[column[p.HELD] :][:n] = flags
        column[p.NULLS] += n - flags.sum()
    values = np.zeros((n, int(column[p.UNIT])), np.uint8)
    values[flags == 1] = _values(body, int(flags.sum()), column, page, tables)
    out[column[p.OUT] + column[p.HELD] * column[p.UNIT] :][: values.size] = values.ravel()
    column[p.HELD] += n
    column[p.ROWS] -= n


def _values(body: Bytes, n: int, column: Numbers, page: Numbers, tables: Bytes) -> Bytes:
    """Return the bytes of n values, a row each."""
    unit = int(column[p.UNIT])
    if column[p.KIND] == p.TRUTHS:
        if page[p.ENCODING] == p.PLAIN:
            _need(n <= 8 * len(body), p.VALUE)
            _need(len(body) == -(-n // 8), p.OTHER)
            return np.unpackbits(body, bitorder="little", count=n)[:, None]
        body, _ = _behind_length(body, p.VALUE if n else p.OTHER)
        values = _runs(body, 1, n, p.VALUE)
        _need(values.max(initial=0) <= 1, p.VALUE)
        return values.astype(np.uint8)[:, None]
    if page[p.ENCODING] == p.PLAIN:
        return _plain(body, n, column)
    _need(body[:1].max(initial=0) <= 32 and len(body) >= min(n, 1), p.VALUE)
    if n == 0:
        return np.zeros((0, unit), np.uint8)
    indices = _runs(body[1:], int(body[0]), n, p.VALUE)
    _need(indices.max() < column[p.ENTRIES], p.OUTSIDE)
    if column[p.KIND] == p.STRINGS:
        return indices.astype(f"<u{unit}").view(np.uint8).reshape(n, unit)
    table = tables[column[p.TABLE] :][: column[p.ENTRIES] * unit].reshape(-1, unit)
    return table[indices.astype(np.int64)]


def _plain(body: Bytes, n: int, column: Numbers) -> Bytes:
    width = int(column[p.WIDTH])
    _need(n * width <= len(body), p.VALUE)
    _need(n * width == len(body), p.OTHER)
    values, unit = body[: n * width].reshape(n, width), int(column[p.UNIT])
    if column[p.KIND] == p.NUMBERS:
        return values[:, :unit]
    if column[p.KIND] == p.INSTANTS:
        nanoseconds = values[:, :8].copy().view("<u8")
        days = values[:, 8:].copy().view("<u4").astype(np.uint64) - np.uint64(p.EPOCH)
        found = nanoseconds // np.uint64(p.MICROSECOND) + days * np.uint64(p.DAY)
        return found.astype("<u8").view(np.uint8)
    if column[p.KIND] == p.REVERSED:
        values = values[:, ::-1]
    signs = np.where(values[:, -1:] > 127, np.uint8(255), np.uint8(0))
    return np.concatenate([values, np.repeat(signs, unit - width, 1)], 1)


def _decode_strings(body: Bytes, n: int, column: Numbers, tables: Bytes) -> None:
    parts = []
    for _ in range(n):
        part, body = _behind_length(body, p.ENTRY)
        parts.append(part)
    ends = np.cumsum([0, *map(len, parts)]).astype("<i4").view(np.uint8)
    tables[column[p.TABLE] :][: len(ends)] = ends
    text = np.concatenate([*parts, body[:0]])
    tables[column[p.TEXT] :][: len(text)] = text


def _runs(body: Bytes, width: int, n: int, status: int) -> NDArray[np.uint64]:
    """Return n values in Parquet's hybrid of runs and packed groups of 8."""
    found = np.zeros(n, np.uint64)
    done = at = 0
    while done < n:
        try:
            run, at = _varint(body, at)
        except (_CutOff, _Wrong):
            raise _Wrong(status) from None
        count = run >> 1
        _need(0 < run < 2**32 and count > 0, status)
        if run & 1:
            taken = min(8 * count, n - done)
            n_bytes = -(-taken * width // 8)
            _need(n_bytes <= len(body) - at, status)
            _need(count * width <= len(body) - at, p.OTHER)
            bits = np.unpackbits(body[at : at + n_bytes], bitorder="little")[: taken * width]
            powers = np.uint64(1) << np.arange(width, dtype=np.uint64)
            found[done : done + taken] = bits.reshape(taken, width) @ powers
            at += count * width
        else:
            n_bytes = -(-width // 8)
            _need(n_bytes <= len(body) - at, status)
            taken = min(count, n - done)
            found[done : done + taken] = int.from_bytes(body[at : at + n_bytes].tobytes(), "little")
            at += n_bytes
        done += taken
    return found


def _behind_length(body: Bytes, status: int) -> tuple[Bytes, Bytes]:
    """Return the bytes of which the first four tell how many they are, and those behind."""
    length = int.from_bytes(body[:4].tobytes(), "little", signed=True)
    _need(len(body) >= 4 and 0 <= length <= len(body) - 4, status)
    return body[4 : 4 + length], body[4 + length :]


def _varint(body: Bytes, at: int) -> tuple[int, int]:
    found = 0
    for k in range(10):
        if at >= len(body):
            raise _CutOff
        found |= (int(body[at]) & 127) << 7 * k
        at += 1
        if body[at - 1] < 128:
            return found, at
    raise _Wrong(p.HEADER)


def _signed(number: int) -> int:
    return number >> 1 ^ -(number & 1)


def _need(holds: object, status: int) -> None:
    if not holds:
        raise _Wrong(status)
