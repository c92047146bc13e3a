"""What column chunks and pages of Parquet files are to the kernels: rows of numbers, named here."""

from __future__ import annotations

# A column, of one row group: what is read of its chunk and where its values go.
(
    BEGIN,  # first byte in `source` that was not used yet
    END,  # behind the last byte of the chunk that is there
    MORE,  # bytes of the chunk that follow in the file
    ROWS,  # rows that were not decoded yet
    WANTED,  # rows to have in `out`
    HELD,  # rows that are there
    CODEC,
    KIND,
    OPTIONAL,  # whether values may be null
    WIDTH,  # bytes of a value in the file
    UNIT,  # bytes of a value in `out`
    ENTRIES,  # of the dictionary; -1 before its page is decoded
    TABLE,  # place in `tables`: ends of strings (int32), or the values
    TEXT,  # place in `tables` of the bytes of strings
    OUT,  # place in `out` of the first row
    KNOWN,  # place in `out` of a byte for each row, 0 where it is null
    NULLS,  # how many there are; while there is none, nothing is written to KNOWN
    # what `list_pages` finds
    NEXT,  # first byte behind the pages listed
    FURTHER,  # bytes of the pages behind these, if they are as large
    FOUND,  # entries of the dictionary; -1 if there is none yet
    LISTED,  # rows in them
    NEEDED,  # bytes that must be there to go on, 0 if all is
    SPACE,  # bytes of the dictionary page, once it is found or more of it is needed
    STATUS,
    FILE,
    GAPS,
    STRETCHES,  # of the file in which its numbers stand as they are, 0 if they do not
) = range(27)
N_COLUMN = 27

# Where numbers are read block by block, from a file, it is the same row: FILE is the descriptor of
# the open file; BEGIN a place in it, that of the first page that was not decoded; MORE and ROWS
# count from there on. NEXT is the row, of those in `out`, from which on they are HELD; WANTED are
# to be. ENTRIES and FURTHER are the rows and the bytes of the page before, 0 if there was none;
# NULLS is whether a number is missing or not finite, GAPS whether one was in the blocks before.
# TABLE is how pages are read. NEEDED is the room for a page that `source` lacks, SPACE that for its
# bytes or rows elsewhere, TEXT that for a dictionary, LISTED the rows for which `out` has no room.
# To where their values belong, since most only move; aside, as one did not, or as the values are in
# the dictionary, behind which others may be plain.
MOVED, ASIDE, CODED_ASIDE = range(3)

# A page.
(
    OF,  # its column
    TYPE,
    AT,  # place of its first byte in `source`
    PACKED,  # bytes there
    RAW,  # bytes when decompressed
    VALUES,
    ENCODING,
    LEVEL_ENCODING,
    REPETITION_ENCODING,
    LEVELS,  # bytes of the levels that stand before what is compressed (second version)
    REPEATED,  # bytes of the levels of repetition there
    NULL_COUNT,
    ROW_COUNT,
    COMPRESSED,
    CHECKSUM,  # CRC-32 of the bytes in the file, -1 if there is none
    PLACE,  # place in `unpacked` where whoever calls has decompressed it, -1 if nobody has
) = range(16)
N_PAGE = 16

# A column chunk as the footer tells of it.
(
    CHUNK_TYPE,  # of the values
    CHUNK_CODEC,
    CHUNK_VALUES,
    CHUNK_SIZE,  # in the file
    CHUNK_DATA,  # place of the first page of values
    CHUNK_DICTIONARY,  # place of the dictionary, 0 if there is none
    CHUNK_ENCODINGS,  # bit k for encoding k
    CHUNK_ELSEWHERE,  # whether it is in another file, or encrypted
    CHUNK_UNPACKED,  # bytes when it is decompressed
    CHUNK_NULLS,  # how many it says to have, and 1; 0 if it does not say
) = range(10)
N_CHUNK = 10
# Where that stands in the footer: fields from the outermost structure on.
ROW_GROUPS, COLUMNS, METADATA, ENCODINGS, STATISTICS, COUNT_OF_NULLS = 4, 1, 3, 2, 12, 3
CHUNK_FIELDS = (
    *(-1, CHUNK_TYPE, -1, -1, CHUNK_CODEC, CHUNK_VALUES),
    *(CHUNK_UNPACKED, CHUNK_SIZE, -1, CHUNK_DATA, -1, CHUNK_DICTIONARY),
)

# Codecs: bytes as they are, what the kernels decompress, what whoever calls decompresses.
STORED, SNAPPY, LZ4, FOREIGN = range(4)
# Kinds of columns: strings (by their dictionary); bytes as they are, or the low ones of numbers;
# truth values; numbers that take 16 bytes in `out`, whose lowest or whose highest byte is the first
# in the file; days and nanoseconds in 12 bytes, which become microseconds.
STRINGS, NUMBERS, TRUTHS, WIDENED, REVERSED, INSTANTS = range(6)
# Of an instant: the day from which time is counted, the microseconds of a day, nanoseconds of one.
EPOCH, DAY, MICROSECOND = 2_440_588, 86_400_000_000, 1_000
# Types of pages.
DATA, INDEX, DICTIONARY, DATA_2 = range(4)
# What stands in the fields of a page's header; in which field the structure of each type of pages
# is, and what stands in the fields of that.
HEADER_FIELDS = (-1, TYPE, RAW, PACKED, CHECKSUM)
STRUCTURES = (5, -1, 7, 8)
PAGE_FIELDS = (
    (-1, VALUES, ENCODING, LEVEL_ENCODING, REPETITION_ENCODING, -1, -1, -1),
    (-1,) * 8,
    (-1, VALUES, ENCODING, -1, -1, -1, -1, -1),
    (-1, VALUES, NULL_COUNT, ROW_COUNT, ENCODING, LEVELS, REPEATED, COMPRESSED),
)
# Encodings.
PLAIN, PLAIN_DICTIONARY, RLE, BIT_PACKED, RLE_DICTIONARY = 0, 2, 3, 4, 8

# What is wrong with a column; 0 is nothing.
(
    SOUND,
    OTHER,  # legal, but not read here
    HEADER,
    TRUNCATED,
    SIZES,
    TWO_DICTIONARIES,
    NO_DICTIONARY,
    ENTRY,
    CODED,
    CRC,
    LEVEL,
    VALUE,
    OUTSIDE,
    UNREAD,
) = range(14)
MEANINGS = {
    HEADER: "the header of a page makes no sense",
    TRUNCATED: "its pages hold fewer rows than the row group",
    SIZES: "the sizes in the header of a page contradict each other",
    TWO_DICTIONARIES: "it has two dictionaries, or one behind values",
    NO_DICTIONARY: "a page needs a dictionary and none precedes it",
    ENTRY: "its dictionary is cut off",
    CODED: "a page cannot be decompressed",
    CRC: "a page is not what was written: its checksum differs",
    LEVEL: "a page does not tell which values are null",
    VALUE: "a page ends before its last value",
    OUTSIDE: "a page has dictionary indices outside its dictionary",
    UNREAD: "the file ends within it, or cannot be read",
}
# Bytes of levels that are set aside where a page is unpacked to the place of its values.
LEAD = 64
# Pages that only move are read at least so many bytes behind the place of their values.
BEHIND = 256
# A page's header takes about so much, and what is read of a file for some rows more than they do.
HEADER_BYTES, MORE_READ = 1 << 10, 1 << 12
# Where a place in a file comes to lie in memory: at the same one modulo this.
ALIGNED = 1 << 12
# Neither Snappy nor LZ4 makes more than so many bytes of one.
MOST = 256
# Bytes behind each part of what is read or written that are nobody's: words are moved at any place.
SLACK = 8
