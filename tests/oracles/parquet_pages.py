"""Values of a column chunk of a Parquet file, page by page, from the words of the specification.

The footer is pyarrow's, and so is decompression. https://parquet.apache.org/docs/file-format
"""

from __future__ import annotations

import struct
import zlib

import pyarrow as pa

DATA_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = 0, 2, 3
PLAIN, PLAIN_DICTIONARY, RLE, RLE_DICTIONARY = 0, 2, 3, 8
NUMBERS = {"INT32": "<i", "INT64": "<q", "FLOAT": "<f", "DOUBLE": "<d"}
CODECS = {"LZ4": "lz4_raw"}  # what pyarrow names by two names


class Bytes:
    """Bytes that are taken from the front, never more than there are."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        if not 0 <= n <= len(self.data) - self.at:
            raise ValueError(f"{n} bytes from byte {self.at} on, of {len(self.data)}")
        self.at += n
        return self.data[self.at - n : self.at]

    def number(self, width):
        return int.from_bytes(self.take(width), "little")

    def varint(self):
        result = 0
        for k in range(10):
            byte = self.number(1)
            result |= (byte & 127) << 7 * k
            if byte < 128:
                return result
        raise ValueError("a varint of more than ten bytes")


def thrift_struct(source, depth=0):
    """Return the fields of a struct in Thrift's compact protocol, by their numbers."""
    if depth > 20:
        raise ValueError("structs too deep")
    fields, last = {}, 0
    while byte := source.number(1):
        last = last + (byte >> 4) if byte >> 4 else thrift_value(source, 4, depth)
        kind = byte & 15
        fields[last] = kind == 1 if kind in (1, 2) else thrift_value(source, kind, depth)
    return fields


def thrift_value(source, kind, depth):
    if kind in (1, 2):  # an element of a list
        return source.number(1) == 1
    if kind in (4, 5, 6):
        n = source.varint()
        return n >> 1 ^ -(n & 1)
    if kind in (3, 7, 8):  # a byte, a double, a string: nothing here needs them
        return source.take({3: 1, 7: 8}.get(kind) or source.varint())
    if kind in (9, 10):
        byte = source.number(1)
        size = byte >> 4 if byte >> 4 < 15 else source.varint()
        return [thrift_value(source, byte & 15, depth + 1) for _ in range(size)]
    if kind == 12:
        return thrift_struct(source, depth + 1)
    raise ValueError(f"type {kind} of Thrift in the header of a page")


def integer(fields, number):
    """Return a field that must be there, of a number that is not negative."""
    value = fields.get(number)
    if type(value) is not int or not 0 <= value < 2**31:
        raise ValueError(f"field {number} is {value!r}")
    return value


def part(fields, number):
    if not isinstance(fields.get(number), dict):
        raise ValueError(f"field {number} is no struct")
    return fields[number]


def hybrid(source, width, n):
    """Return n numbers of so many bits: runs of one number, or groups of eight side by side."""
    numbers = []
    while len(numbers) < n:
        header = source.varint()
        if header & 1:
            bits = source.number((header >> 1) * width)
            for k in range(min(8 * (header >> 1), n - len(numbers))):
                numbers.append(bits >> k * width & (1 << width) - 1)
        else:
            number = source.number((width + 7) // 8)
            if number >> width:
                raise ValueError(f"{number} repeated, in {width} bits")
            numbers += [number] * min(header >> 1, n - len(numbers))
    return numbers


def plain(source, kind, length, n):
    """Return n values of a physical type, one after the other."""
    if kind == "BOOLEAN":
        bits = source.number((n + 7) // 8)
        return [bool(bits >> k & 1) for k in range(n)]
    if kind in NUMBERS:
        code = NUMBERS[kind]
        return [struct.unpack(code, source.take(struct.calcsize(code)))[0] for _ in range(n)]
    if kind == "BYTE_ARRAY":
        return [source.take(source.number(4)) for _ in range(n)]
    return [source.take(12 if kind == "INT96" else length) for _ in range(n)]


def decompressed(data, codec, size):
    """Return exactly `size` bytes."""
    if codec == "UNCOMPRESSED":
        if len(data) != size:
            raise ValueError(f"{len(data)} bytes, not {size}")
        return data
    codec = pa.Codec(CODECS.get(codec, codec).lower())
    try:
        result = codec.decompress(data, size, asbytes=True) if data or size else b""
    except (OSError, pa.ArrowInvalid) as error:
        raise ValueError("does not decompress") from error
    if size:
        try:  # pyarrow fills what is missing, and does not say so
            codec.decompress(data, size - 1)
        except (OSError, pa.ArrowInvalid):
            return result
        raise ValueError(f"fewer than {size} bytes")
    return result


class ColumnChunk:
    """What its metadata say of a chunk; reads its pages."""

    def __init__(self, metadata, row_group, column):
        self.chunk = metadata.row_group(row_group).column(column)
        self.column = metadata.schema.column(column)
        if self.column.max_repetition_level:
            raise NotImplementedError("nested values")
        starts = self.chunk.dictionary_page_offset, self.chunk.data_page_offset
        self.begin = min((start for start in starts if start), default=0)
        self.end = self.begin + self.chunk.total_compressed_size
        self.dictionary = None

    def values(self, file):
        """Return all values, None for null."""
        source, values = Bytes(file[self.begin : self.end]), []
        while len(values) < self.chunk.num_values:
            header = thrift_struct(source)
            size = integer(header, 2)
            if size > self.chunk.total_uncompressed_size:
                raise ValueError(f"a page of {size} bytes is larger than its chunk")
            data = source.take(integer(header, 3))
            if 4 in header and header[4] not in (crc := zlib.crc32(data), crc - 2**32):
                raise ValueError("CRC-32 differs")
            kind = integer(header, 1)
            if kind == DICTIONARY_PAGE:
                self.read_dictionary(part(header, 7), data, size)
            elif kind in (DATA_PAGE, DATA_PAGE_V2):
                own = part(header, 5 if kind == DATA_PAGE else 8)
                if integer(own, 1) > self.chunk.num_values - len(values):
                    raise ValueError(f"{own[1]} values in a page, fewer left in its chunk")
                read = self.page if kind == DATA_PAGE else self.page_v2
                values += read(own, data, size, own[1])
        return values

    def read_dictionary(self, header, data, size):
        if self.dictionary is not None:
            raise ValueError("two dictionaries")
        if integer(header, 2) not in (PLAIN, PLAIN_DICTIONARY):
            raise ValueError(f"a dictionary in encoding {header[2]}")
        source = Bytes(decompressed(data, self.chunk.compression, size))
        self.dictionary = self.plain(source, integer(header, 1))

    def plain(self, source, n):
        return plain(source, self.column.physical_type, self.column.length, n)

    def page(self, header, data, size, n):
        source = Bytes(decompressed(data, self.chunk.compression, size))
        levels = None
        if self.column.max_definition_level:
            if integer(header, 3) != RLE:
                raise NotImplementedError(f"levels in encoding {header[3]}")
            levels = Bytes(source.take(source.number(4)))
        return self.with_nulls(levels, source, n, integer(header, 2))

    def page_v2(self, header, data, size, n):
        source = Bytes(data)
        if integer(header, 6):
            raise ValueError("repetition levels of a flat column")
        levels = Bytes(source.take(integer(header, 5)))
        values, size = data[source.at :], size - source.at
        if header.get(7, True):
            if size < 0:
                raise ValueError("levels are longer than their page")
            values = decompressed(values, self.chunk.compression, size)
        if not self.column.max_definition_level:
            levels = None
        result = self.with_nulls(levels, Bytes(values), n, integer(header, 4))
        if result.count(None) != integer(header, 2):
            raise ValueError(f"{result.count(None)} nulls, not {header[2]}")
        return result

    def with_nulls(self, levels, source, n, encoding):
        """Return n values or None, where there are levels that say so."""
        if levels is None:
            return self.encoded(source, n, encoding)
        highest = self.column.max_definition_level
        numbers = hybrid(levels, highest.bit_length(), n)
        if n and max(numbers) > highest:
            raise ValueError(f"definition level {max(numbers)} of {highest}")
        values = iter(self.encoded(source, numbers.count(highest), encoding))
        return [next(values) if level == highest else None for level in numbers]

    def encoded(self, source, n, encoding):
        if encoding == PLAIN:
            return self.plain(source, n)
        if encoding == RLE and self.column.physical_type == "BOOLEAN":
            return [number == 1 for number in hybrid(Bytes(source.take(source.number(4))), 1, n)]
        if encoding not in (PLAIN_DICTIONARY, RLE_DICTIONARY):
            raise NotImplementedError(f"encoding {encoding}")
        if n == 0:
            return []
        width = source.number(1)
        if width > 32 or self.dictionary is None:
            raise ValueError(f"indices of {width} bits, dictionary {self.dictionary!r}")
        indices = hybrid(source, width, n)
        if max(indices) >= len(self.dictionary):
            raise ValueError(f"index {max(indices)} of {len(self.dictionary)} entries")
        return [self.dictionary[index] for index in indices]


def chunk_values(file, metadata, row_group, column):
    """Return the values of a flat column in a row group of a file, None for null.

    Booleans, integers and floats are Python's; everything else is bytes, as stored. A malformed
    chunk raises ValueError, an encoding that is not read here NotImplementedError.

    file      the bytes of the file
    metadata  pyarrow's FileMetaData
    """
    return ColumnChunk(metadata, row_group, column).values(file)
