"""What is asked of rows, wherever they are: a request travels to them, and its sum comes back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from fastbayes.core.errors import DataError
from fastbayes.core.ledger import Ledger
from fastbayes.data.segments import Segment, Source

T = TypeVar("T")
# Is told of rows that are done, since the last time.
Progress = Callable[[int], None]


def stage(
    progress: Progress | None, name: str, total: int | None = None, unit: str = "rows"
) -> Progress:
    """Begin a stage of a job, and return what to call with how many of its units are done.

    A progress that has a method `stage` knows of stages; another one counts rows alone, and is
    given nothing else.
    """
    begin = getattr(progress, "stage", None)
    if begin is None:
        return lambda _: None
    begin(name, total, unit)
    assert progress is not None
    return progress


class Partial(NamedTuple, Generic[T]):
    """What a share of the rows says.

    rows   how many it has
    value  what was asked for
    """

    rows: int
    value: T


class ScanRequest(ABC, Generic[T]):
    """One question to all rows, whose answers for shares of them add up.

    It may be pickled, takes kilobytes, or what the models take that it asks about, and says all
    that a share needs to know: no share infers a type. Shares may be empty, or have no row with a
    class; only the sum is judged.
    """

    @abstractmethod
    def count(self, rows: Source, threads: int | None) -> Partial[T]:
        """Return what rows say, those that are read here."""

    @abstractmethod
    def zero(self) -> T:
        """Return what no rows say."""

    @abstractmethod
    def add(self, a: T, b: T) -> T:
        """Return what the rows of both say."""

    @abstractmethod
    def to_bytes(self, value: T) -> bytes:
        """Return bytes that travel, of what rows say."""

    @abstractmethod
    def from_bytes(self, data: bytes) -> T:
        """Return what the bytes say, checked."""


class Counter(Source):
    """Rows that are read elsewhere, by processes or machines that requests are sent to.

    ordered  whether the rows have an order, and their shares positions in it
    """

    ordered: bool = False

    @abstractmethod
    def run(
        self, request: ScanRequest[T], threads: int | None = None, progress: Progress | None = None
    ) -> Partial[T]:
        """Return what all rows say.

        Parameters
        ----------
        request
            The question.
        threads
            Threads of each worker; 1 by default.
        progress
            Called with the rows of each share that is done.

        Raises
        ------
        DataError
            What is wrong with a share of them, as if they were read here.
        """

    def segments(self, block_rows: int) -> Iterator[Segment]:
        """Refuse: rows do not come here."""
        raise DataError(
            f"{self.description}: workers read its rows, and this call needs them here; pass the "
            "paths themselves, or what the frame computes to"
        )


class ViewElsewhere(Counter):
    """A view of rows that are read elsewhere, some of them or changed: it is made where they are.

    Parameters
    ----------
    source
        The rows.
    view
        Makes the view of a source; it may be pickled.
    needs
        Columns that it looks at.
    """

    def __init__(
        self, source: Counter, view: Callable[[Source], Source], needs: Sequence[str] = ()
    ) -> None:
        super().__init__(source.schema, None, None, source.description)
        self.source, self.view, self.needs = source, view, needs
        self.n_rows = source.n_rows

    def held(self, threads: int) -> int:
        """Return the bytes of rows that are held here."""
        return self.source.held(threads)

    def ledger(self, read: Container[str] | None = None) -> Ledger:
        """Return the files whose rows these are."""
        return self.source.ledger(read)

    def only(self, columns: Sequence[str]) -> ViewElsewhere:
        """Return the view with these columns."""
        fewer = self.source.only([*dict.fromkeys([*columns, *self.needs])])
        assert isinstance(fewer, Counter)
        return ViewElsewhere(fewer, self.view, self.needs)

    def run(
        self, request: ScanRequest[T], threads: int | None = None, progress: Progress | None = None
    ) -> Partial[T]:
        """Return what all rows say; see `Counter.run`."""
        return self.source.run(Viewed(request, self.view), threads, progress)


@dataclass(frozen=True)
class Viewed(ScanRequest[T]):
    """A request to a view of the rows; arguments as of `ViewElsewhere`."""

    request: ScanRequest[T]
    view: Callable[[Source], Source]

    def count(self, rows: Source, threads: int | None) -> Partial[T]:
        """Return what the view of rows says; all of them were read."""
        found = self.request.count(self.view(rows), threads)
        return found if rows.n_rows is None else Partial(rows.n_rows, found.value)

    def zero(self) -> T:
        """Return what no rows say."""
        return self.request.zero()

    def add(self, a: T, b: T) -> T:
        """Return what the rows of both say."""
        return self.request.add(a, b)

    def to_bytes(self, value: T) -> bytes:
        """Return the bytes of what rows say."""
        return self.request.to_bytes(value)

    def from_bytes(self, data: bytes) -> T:
        """Return what the bytes say."""
        return self.request.from_bytes(data)
