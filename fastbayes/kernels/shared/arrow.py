"""The C data interface of Arrow: structs of 64-bit words, and what is kept of those of a column.

https://arrow.apache.org/docs/format/CDataInterface.html
"""

from __future__ import annotations

# Words of an `ArrowArray`.
LENGTH, NULL_COUNT, OFFSET, N_BUFFERS, N_CHILDREN = range(5)
BUFFERS, CHILDREN, DICTIONARY, RELEASE, PRIVATE = range(5, 10)
WORDS = 10
HEAD = 3  # length, null count and offset

# Fields of a column of a record batch: its head, where its bitmap of what is not null and its
# values are; of its dictionary the length, the offset, and where the first buffers are.
BITMAP, DATA, ENTRIES = 3, 4, 5
FIELDS = 10
