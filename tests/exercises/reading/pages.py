"""Call every driver of a module of pages: one page of three numbers, and a dictionary of two."""

from __future__ import annotations

import tempfile

import numpy as np

from fastbayes.kernels.shared import pages as p

# Fields of Thrift's compact protocol: a page of values (0), 12 bytes, of them 12 stored, then its
# own structure: 3 values, plain, levels in runs.
HEADER = bytes([0x15, 0, 0x15, 24, 0x15, 24, 0x2C, 0x15, 6, 0x15, 0, 0x15, 6, 0x15, 6, 0, 0])
# The same with 2 values of 8 bytes each.
OF_NUMBERS = bytes([0x15, 0, 0x15, 32, 0x15, 32, 0x2C, 0x15, 4, 0x15, 0, 0x15, 6, 0x15, 6, 0, 0])
# A dictionary (2) of 2 values of 8 bytes; and a page of 3 bytes, with 2 values by it (8): one group
# (3) of indices of 1 bit, the second entry and the first.
OF_ENTRIES = bytes([0x15, 4, 0x15, 32, 0x15, 32, 0x4C, 0x15, 4, 0x15, 0, 0, 0])
BY_ENTRIES = bytes([0x15, 0, 0x15, 6, 0x15, 6, 0x2C, 0x15, 4, 0x15, 16, 0x15, 6, 0x15, 6, 0, 0])
BY_ENTRIES += bytes([1, 3, 0b01])


def exercise(pages):
    values = np.array([3, 5, 7], np.int32)
    page = HEADER + values.tobytes()
    source = np.frombuffer(page + bytes(p.SLACK), np.uint8)
    columns = np.zeros((1, p.N_COLUMN), np.int64)
    columns[0, [p.END, p.ROWS, p.WANTED, p.KIND]] = len(page), 3, 3, p.NUMBERS
    columns[0, [p.WIDTH, p.UNIT, p.ENTRIES]] = 4, 4, -1
    listed = np.zeros((4, p.N_PAGE), np.int64)
    assert pages.list_pages(source, columns, listed) == 1
    assert columns[0, p.LISTED] == 3
    moved = np.zeros(4, np.uint8)
    pages.move(source, np.array([[1, 2, 2], [0, 0, 0]]), moved)
    assert moved.tolist() == [0, 0, *page[1:3]]
    scratch, out = np.zeros(64, np.uint8), np.zeros(64, np.uint8)
    pages.decode(source, scratch, columns, listed[:1], scratch.copy(), scratch.copy(), out)
    assert columns[0, p.STATUS] == p.SOUND
    np.testing.assert_array_equal(out[:12].view(np.int32), values)
    numbers = np.array([0.5, np.inf])
    columns[0] = 0
    columns[0, [p.MORE, p.ROWS, p.KIND]] = len(OF_NUMBERS) + 16, 2, p.NUMBERS
    columns[0, [p.WIDTH, p.UNIT, p.FOUND]] = 8, 8, -1
    out, rooms = np.zeros((1, 128), np.uint8), [np.zeros(1 << 13, np.uint8) for _ in range(3)]
    with tempfile.TemporaryFile() as file:
        file.write(OF_NUMBERS + numbers.tobytes())
        file.flush()
        moved[:] = 0
        pages.read_parts(file.fileno(), np.array([[1, 2, 2], [0, 0, 0]]), moved)
        assert moved.tolist() == [0, 0, *OF_NUMBERS[1:3]]
        turn = np.ones(1, np.int64)
        columns[0, p.FILE] = file.fileno()
        pages.want_numbers(columns, turn, 2)
        pages.read_numbers(columns, turn, *rooms, np.zeros((1, 64), np.uint8), out, out)
    assert columns[0, [p.STATUS, p.HELD, p.NULLS]].tolist() == [p.SOUND, 2, 1]
    np.testing.assert_array_equal(out[0, p.LEAD :][:16].view(np.float64), numbers)
    pages.want_numbers(columns, turn, 3)
    assert columns[0, [p.GAPS, p.NEXT, p.HELD, p.WANTED]].tolist() == [1, 2, 0, 3]
    pages.want_numbers(columns, turn, 1)
    assert columns[0, p.STATUS] == p.OTHER
    coded = OF_ENTRIES + numbers.tobytes() + BY_ENTRIES
    columns[0] = 0
    columns[0, [p.MORE, p.ROWS, p.KIND, p.TABLE]] = len(coded), 2, p.NUMBERS, p.CODED_ASIDE
    columns[0, [p.WIDTH, p.UNIT, p.FOUND]] = 8, 8, -1
    with tempfile.TemporaryFile() as file:
        file.write(coded)
        file.flush()
        columns[0, p.FILE] = file.fileno()
        pages.want_numbers(columns, turn, 2)
        pages.read_numbers(columns, turn, *rooms, np.zeros((1, 16), np.uint8), out, out)
        assert columns[0, [p.HELD, p.TEXT]].tolist() == [0, 32]
        turn[0] = 0
        pages.read_numbers(columns, turn, *rooms, np.zeros((1, 32), np.uint8), out, out)
    assert columns[0, [p.STATUS, p.HELD, p.NULLS]].tolist() == [p.SOUND, 2, 1]
    np.testing.assert_array_equal(out[0, p.LEAD :][:16].view(np.float64), numbers[::-1])
