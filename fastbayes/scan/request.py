"""What is asked of rows, wherever they are: a request travels to them, and its sum comes back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeVar

from fastbayes.core.errors import DataError
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

    It may be pickled, takes kilobytes, and says all that a share needs to know: no share infers a
    type. Shares may be empty, or have no row with a class; only the sum is judged.
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
