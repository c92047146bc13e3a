"""Bytes that a call may add to the process: how they are divided, and when it is refused.

An account has two sides: what is counted, which is there several times, and what is being read.
`ReadShare` chooses how many threads read how much at a time, from what the schema and the footers
tell; `Budget` refuses counts that exceed what is left, those that the schema foretells before a row
is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.allocators import releasing
from fastbayes.core.errors import MemoryLimitError
from fastbayes.core.machine import usable_memory
from fastbayes.core.numbers import is_number
from fastbayes.core.schema import Shape
from fastbayes.core.threads import in_order
from fastbayes.data.encode import Encoder, LookedUp
from fastbayes.data.segments import BATCH_BYTES, Source
from fastbayes.kernels.dispatch import NotRepeatableError
from fastbayes.statistics.base import Need, Room
from fastbayes.statistics.parts import GrowingStatistics, Wanted
from fastbayes.statistics.registry import REGISTRY, wanting

T = TypeVar("T")
U = TypeVar("U")

# A number of an open codebook is a Python object in a dictionary: about this many bytes. A text has
# its own, 4 for where it lies, 16 to be compared by and up to 24 in a hash table; room doubles.
BYTES_OF_VALUE = 120
# Bytes that all threads together take at most for what they read, where no limit says less.
READING = 1 << 30
# What is read at a time may shrink to this: below it, calls cost more than their work.
LEAST_BATCH = 1 << 21
# So much is free: of reading few rows, of allocators that hold more than they are asked for.
SLACK = 1 << 25
# Up to so many values a column has no room for more: kernels choose their method by it.
FEW_VALUES = 1024


def needs_of(wanted: Wanted, room: Room) -> dict[str, Need]:
    """Return what each statistic needs, and under "" what the codebooks do."""
    shape = room.shape._replace(n_classes=max(1, room.shape.n_classes))
    needs = {n: REGISTRY[n].need(room._replace(shape=shape), **o) for n, o in wanted.items()}
    return {"": Need(BYTES_OF_VALUE * shape.sizes), **needs}


def total_of(needs: Mapping[str, Need]) -> int:
    """Return the bytes that statistics need together."""
    return sum(int(need.columns.sum()) + need.numbers + need.rest for need in needs.values())


@dataclass(frozen=True)
class ReadShare:
    """How the rows of a source are read within a share of the memory.

    Parameters
    ----------
    source
        The rows, decoded so much at a time that they fit.
    threads
        Threads that read.
    held
        Bytes that this takes, about.
    fits
        Whether that is within its share.
    limited
        Whether there is a limit.
    """

    source: Source
    threads: int
    held: int
    fits: bool
    limited: bool

    @classmethod
    def within(
        cls,
        source: Source,
        threads: int,
        limit: float | None,
        counts: int = 0,
        width: int = 0,
        made: Callable[[int], int] | None = None,
    ) -> ReadShare:
        """Choose how to read: on fewer threads and less at a time, the less room there is.

        Parameters
        ----------
        source, threads
            The rows, and threads at most.
        limit
            Bytes that the whole call may take; None for what reading takes at its usual speed.
        counts
            Bytes that are needed for the counts whatever the rows hold.
        width
            Bytes that a row takes when it is encoded.
        made
            Returns the bytes that so many threads hold of what they make of the rows.
        """
        most = math.inf if limit is None else limit - counts
        room = max(SLACK, min(READING, most if limit is None else min(limit / 2, most)))
        block = source.rows_of_block() * width
        # Under a limit less at a time: threads that hand over hold some twice for a moment.
        largest = batch = BATCH_BYTES if limit is None else BATCH_BYTES // 2
        while True:
            smaller = source.within(batch, threads)
            held = smaller.held(threads) + threads * block
            held += 0 if made is None else made(threads)
            if held <= room:
                return cls(smaller, threads, held, True, limit is not None)
            if batch > LEAST_BATCH:
                batch //= 2
            elif limit is None:  # nothing is promised: rather fast
                return cls(smaller, threads, held, False, False)
            elif threads == 1:
                return cls(smaller, 1, held, held <= max(SLACK, most), True)
            else:
                batch, threads = largest, threads - 1

    def in_order(
        self, function: Callable[[T], U], items: Iterable[T], more: int = 1
    ) -> Generator[U, None, None]:
        """Yield function(item) in the order of the items, as `threads.in_order` does.

        Under a limit, memory that allocators keep for later goes back to the system.
        """
        found = in_order(function, items, self.threads, more=more)
        return releasing(found) if self.limited else found

    def on_all(
        self,
        function: Callable[[T, int], U],
        items: Callable[[int], Iterable[T]],
        few: int,
        many: int,
        more: int = 1,
    ) -> Iterator[U]:
        """Yield function(item, threads that help) in order, of many rows on all threads.

        Of few rows on each, where `many` is 0 or not all is done by kernels: then the function,
        before it does anything, raises NotRepeatableError.

        Parameters
        ----------
        function
            What is done with an item; with 1 thread in any thread, else in this one.
        items
            Returns the items of so many rows each.
        few, many
            Rows of an item; `many` is a multiple of `few`.
        more
            How many items are done ahead besides one on each thread.
        """
        done = 0
        for item in items(many) if many else ():
            try:
                found = function(item, self.threads)
            except NotRepeatableError:
                break
            yield found
            done += many // few
        else:
            if many:
                return
        rest = islice(items(few), done, None)
        yield from self.in_order(lambda item: function(item, 1), rest, more)

    @property
    def charged(self) -> int:
        """Bytes that are missing for counts."""
        return max(self.held - SLACK, 0)

    def check(self, limit: float | None) -> None:
        """Raise MemoryLimitError where the least that is read at a time exceeds its share."""
        if self.fits or limit is None:
            return
        n = len(self.source.schema)
        raise MemoryLimitError(
            f"{self.source.description}: reading {n:,} columns needs {self.held:,} bytes on one "
            f"thread, besides what is counted, over memory_limit={limit:,}: "
            f"{self.source.takes_less}, or raise memory_limit"
        )


def check_limit(limit: Any) -> None:
    """Raise ValueError where a memory limit is no number of bytes."""
    if limit is not None and not (is_number(limit) and -math.inf < limit < math.inf):
        raise ValueError(f"memory_limit={limit!r}: use a number of bytes, or None")


def encoded_width(encoder: Encoder) -> int:
    """Return the bytes that a row takes when it is encoded: a code of each categorical column."""
    return len(encoder.books) + (encoder.target is not None)


def has_gaps(rows: LookedUp) -> bool:
    """Return whether a numeric value is missing."""
    # The least of numbers is a number: no second array to look through.
    return any(np.isnan(x.min(initial=np.inf)) for x in rows.every_number())


class Budget:
    """Refuses to allocate beyond the memory limit, naming the columns that need the most.

    Parameters
    ----------
    limit
        Bytes; None for half of the usable memory, and for no limit where all that is wanted
        stays small.
    threads
        Threads with a set of statistics each; the result is one more.
    wanted
        What is counted.
    besides
        Bytes that are taken by what is no count.
    least
        Sets that there are even on one thread.

    Attributes
    ----------
    reading
        Bytes that the threads take for what they read.
    fewer
        After a refusal on how many threads counts may fit: half of them, or half of these, and so
        on; 0 if on none.
    """

    def __init__(
        self, limit: int | None, threads: int, wanted: Wanted, besides: int = 0, least: int = 2
    ) -> None:
        limited = any(REGISTRY[name].limited for name in wanted)
        self.limit = default_limit() if limit is None and limited else limit
        self.given = limit is not None
        self.over = "half of the usable memory" if limit is None else "memory_limit"
        self.threads, self.wanted, self.besides, self._least = threads, wanted, besides, least
        self.reading = self.fewer = 0
        self.gaps = False
        self.missing: NDArray[np.bool_] | None = None

    def begin(self, share: ReadShare, besides: int) -> None:
        """Count rows that are read so, beside what takes so many bytes."""
        self.threads, self.reading, self.missing = share.threads, share.charged, None
        self.besides, self.fewer = besides, 0

    def foreseen(self, encoder: Encoder) -> int:
        """Refuse what the schema alone tells to be too much; return the bytes that it foretells.

        A column has the values that are declared, at least one, and so has one that is yet to be
        cut into bins.
        """
        cut = bool(wanting(self.wanted, "bins"))
        books = [(f.name, book) for f, book in encoder.features if book is not None or cut]
        sizes = np.array([max(1, len(book or ())) for _, book in books], np.int64)
        n_classes = 1 if encoder.target is None else max(1, len(encoder.target))
        shape = Shape(sizes, len(encoder.features) - len(sizes), n_classes)
        room = Room(shape, sizes, self._sets(self.threads), 1, gaps=False)
        total = total_of(needs_of(self.wanted, room))
        if self._exceeded(total):
            self._refuse(room, sizes, [name for name, _ in books])
        return total

    def check(self, encoder: Encoder, shape: Shape, rows: LookedUp) -> None:
        """Refuse what adding rows needs."""
        if self.limit is None:
            return
        self.missing = rows.missing if self.missing is None else self.missing | rows.missing
        known = np.array([len(book) for book in encoder.books], dtype=np.int64)
        columns = len(encoder.features)
        n = math.inf if encoder.cells is None or not columns else encoder.cells / columns
        room = Room(shape, known + self.missing, self._sets(self.threads), n)
        if self._exceeded(total_of(needs_of(self.wanted, room))):
            # Missing numbers are looked for only where they would need too much.
            self.gaps = self.gaps or has_gaps(rows)
            room = room._replace(gaps=self.gaps)
            if self._exceeded(total_of(needs_of(self.wanted, room))):
                self._refuse(room, known, [book.name for book in encoder.books])

    def _sets(self, threads: int) -> int:
        return max(threads + 1, self._least)

    def _exceeded(self, counts: int) -> bool:
        """Return whether so many bytes of counts, and what is there besides, exceed the limit."""
        return self.limit is not None and counts + self.besides + self.reading > self.limit

    def _refused(self, counts: Callable[[int], int]) -> int:
        """Return how many sets are refused: those of all threads where fewer may do, else of one.

        `counts` returns the bytes of so many.
        """
        fewer = self.threads // 2
        # How little these take for reading is seen when they read.
        while fewer and self._exceeded(counts(self._sets(fewer)) - self.reading):
            fewer //= 2
        self.fewer = fewer
        return self._sets(self.threads if fewer else 1)

    def _refuse(self, room: Room, known: NDArray[np.int64], names: list[str]) -> NoReturn:
        """Refuse counts of a shape, of columns of these names with so many values known."""

        def needed(sets: int) -> dict[str, Need]:
            return needs_of(self.wanted, room._replace(copies=sets))

        needs, shape = needed(self._refused(lambda sets: total_of(needed(sets)))), room.shape
        need = total_of(needs) + self.besides + self.reading
        most = {n: max(int(x.columns.max(initial=0)), x.numbers) for n, x in needs.items() if n}
        # Of equals the last, which counts more columns at once.
        name = max(reversed(most), key=lambda name: most[name])
        kind, each = REGISTRY[name], sum(part.columns for part in needs.values())
        column: tuple[str, int] = ("", 0)
        if len(shape.sizes):
            j = int(np.argmax(each))
            column = names[j], int(known[j])
        what = kind.most.format(
            name=column[0], values=column[1], numbers=shape.n_numeric, bytes=needs[name].numbers
        )
        raise MemoryLimitError(
            f"{kind.work} needs {need:,} bytes, over {self.over}={self.limit:,}: {what} the most; "
            f"leave it out with `columns`, group its values, {self._or_fewer()}or raise "
            "memory_limit"
        )

    def _or_fewer(self) -> str:
        return f"set threads={self.fewer}, " * bool(self.fewer)

    def check_held(self, parts: GrowingStatistics) -> None:
        """Refuse what has grown too large: how many cells occur only rows tell."""
        self.gaps |= any(part.gaps for part in parts.held.values())
        if self.limit is None:
            return
        found = [part.unforeseen() for part in parts.held.values()]
        each = sum(n for n, _ in found)
        if self._exceeded(self._sets(self.threads) * each):
            need = self._refused(lambda sets: sets * each) * each + self.besides + self.reading
            raise MemoryLimitError(
                f"counting cells needs {need:,} bytes and more, over {self.over}={self.limit:,}: "
                f"{max(found)[1]}; leave some out with `columns`, group their values, "
                f"{self._or_fewer()}or raise memory_limit"
            )


def default_limit() -> int:
    """Return the bytes that counts of pairs may take unless given: half of what is usable."""
    memory = usable_memory()
    return 4 << 30 if math.isinf(memory) else int(memory) // 2


def capacity(encoder: Encoder) -> Shape:
    """Return room for what the codebooks know, doubling where that is much: growth is rare then."""
    sizes = np.array([len(book) for book in encoder.books], dtype=np.int64)
    n_classes = 1 if encoder.target is None else len(encoder.target)
    many = [j for j in np.flatnonzero(sizes > FEW_VALUES) if not encoder.books[j].fixed]
    sizes[many] = roomy(sizes[many])
    return Shape(sizes, len(encoder.features) - len(sizes), n_classes)


def roomy(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the next power of two of each size, at least 4."""
    return np.maximum(4, 2 ** np.ceil(np.log2(np.maximum(sizes, 1)))).astype(np.int64)
