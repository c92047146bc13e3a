"""What stores say that give no file: whose fault that is, and what to do."""

from __future__ import annotations

import re

from fastbayes.core.errors import DataError

# What to do where a store does not answer.
CHECK = "check address, network and credentials (`storage_options`)"

_BUSY = re.compile(
    r"SLOW_DOWN|THROTTLING|SERVICE_UNAVAILABLE|INTERNAL_FAILURE|REQUEST_TIMEOUT"
    r"|HTTP status (?:429|5\d\d)"
)
_GONE = re.compile(r"NO_SUCH_KEY|RESOURCE_NOT_FOUND")


class NotSkippedError(DataError):
    """What no `on_error` leaves out."""


class StoreError(NotSkippedError):
    """A store gave no file, which says nothing about the file."""


def is_of_store(said: str) -> bool:
    """Return whether a store said so, of S3: what is wrong with a file pyarrow says otherwise."""
    return "AWS Error " in said


def is_busy(said: str) -> bool:
    """Return whether a store may answer the same request a little later."""
    return is_of_store(said) and _BUSY.search(said) is not None


def store_error(origin: str, said: str) -> DataError:
    """Return the error of what a store said of a file: a StoreError, unless it is of that file."""
    if _GONE.search(said):
        return DataError(f"{origin}: no such file or directory")
    if "ACCESS_DENIED" in said:
        return DataError(f"{origin}: {said}; check permissions and credentials (`storage_options`)")
    return StoreError(f"{origin}: {said}; {'try again later' if is_busy(said) else CHECK}")
