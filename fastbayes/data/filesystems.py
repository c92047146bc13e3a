"""File systems by URI: those that pyarrow has, and through fsspec all others."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from weakref import WeakValueDictionary, finalize

import pyarrow as pa
import pyarrow.fs as pafs

from fastbayes.core.errors import DataError, refuse
from fastbayes.core.extras import needed
from fastbayes.core.files import WEB, scheme_of
from fastbayes.data.segments import first_line
from fastbayes.data.store_errors import CHECK, is_busy

T = TypeVar("T")

# Within so many seconds a store must answer for the first time.
ANSWER_SECONDS = 8.0
# Options that say how long one may take instead.
_PATIENCE = {"connect_timeout", "request_timeout", "retry_strategy", "retry_time_limit"}
# Where it is busy, it is asked again after so many seconds.
_AGAIN = (0.2, 0.6, 1.8)

# File systems of pyarrow that take options.
_ARROW = {
    "s3": "S3FileSystem",
    "gs": "GcsFileSystem",
    "gcs": "GcsFileSystem",
    "abfs": "AzureFileSystem",
    "abfss": "AzureFileSystem",
}
# Schemes whose URIs pyarrow parses.
_PARSED = (*_ARROW, "file", "hdfs", "viewfs")
# What a store of S3 is given where nothing is said: requests that are not answered end.
_SECONDS = {"connect_timeout": ANSWER_SECONDS, "request_timeout": 60.0}
# Stores of S3 that somebody uses, by what they were made of. While requests of one are under way no
# other is made: the library has a lock that each request holds, and a scan always has some.
_IN_USE: WeakValueDictionary[str, pafs.FileSystem] = WeakValueDictionary()
# Those that ask whether there is an answer, as long.
_FIRST: dict[str, pafs.FileSystem] = {}


def file_system(name: str, options: Mapping[str, Any]) -> tuple[pafs.FileSystem, str]:
    """Return the file system of a URI and the path in it.

    Options are those of the class of pyarrow (`S3FileSystem`, `GcsFileSystem`, `AzureFileSystem`)
    for s3, gs and abfs, and otherwise of the class of fsspec. Raises DataError where there is none.
    """
    scheme = scheme_of(name)
    path = name.split("://", 1)[1]
    kind: Any = getattr(pafs, _ARROW.get(scheme or "", ""), None)
    if kind is not None and (options or scheme == "s3"):
        known = _documented(kind)
        for option in options:
            refuse(
                option not in known,
                f"{name}: storage option {option!r} is none of pyarrow.fs.{kind.__name__}, which "
                f"has {', '.join(known)}",
            )
        return _s3(path, options) if scheme == "s3" else kind(**options), path
    if not options:
        try:
            found, path = pafs.FileSystem.from_uri(name)
            return found, path
        except pa.ArrowInvalid as error:
            if scheme in _PARSED and "nrecognized filesystem type" not in str(error):
                remedy = "; write a blank as %20" if " " in name else ""
                raise DataError(f"{name}: {first_line(error)}{remedy}") from error
    return _by_fsspec(name, scheme or "", options)


def _s3(path: str, options: Mapping[str, Any]) -> pafs.FileSystem:
    """Return the store of a path, which has answered."""
    given = dict(options)
    if "region" not in given and "endpoint_override" not in given:
        given["region"] = pafs.resolve_s3_region(path.partition("/")[0])
    around = {key: value for key, value in os.environ.items() if key.startswith("AWS_")}
    retry = given.get("retry_strategy")
    parts = given | {"retry_strategy": (type(retry), getattr(retry, "max_attempts", retry))}
    made_of = repr((sorted(parts.items()), sorted(around.items())))
    used, first = _IN_USE.get(made_of), _FIRST.get(made_of)
    if used is None or first is None:
        # Requests under way keep the process from ending, and each is tried several times.
        once = pafs.AwsStandardS3RetryStrategy(max_attempts=1)
        patience = {"request_timeout": 0.875 * ANSWER_SECONDS, "retry_strategy": once}
        first = pafs.S3FileSystem(**(_SECONDS | patience | given))
        _ask(first, path, retry)
        used = _IN_USE[made_of] = pafs.S3FileSystem(**(_SECONDS | given))
        _FIRST[made_of] = first
        finalize(used, _FIRST.pop, made_of, None)
    else:
        _ask(first, path, retry)
    return used


def _ask(store: pafs.FileSystem, path: str, retry: Any) -> None:
    """Have a store answer, which may be busy unless who calls says how often to `retry`."""
    for seconds in _AGAIN if retry is None else ():
        try:
            store.get_file_info(path)
            return
        except OSError as error:
            if not is_busy(first_line(error)):
                raise
        time.sleep(seconds)
    store.get_file_info(path)


def _documented(kind: Any) -> list[str]:
    """Return the parameters that the documentation of a compiled class names."""
    return re.findall(r"^(\w+) : ", inspect.getdoc(kind) or "", re.MULTILINE)


def _by_fsspec(name: str, scheme: str, options: Mapping[str, Any]) -> tuple[pafs.FileSystem, str]:
    said = f"{name}: {scheme}:// needs fsspec; pip install 'fastbayes[fsspec]', or give filesystem="
    fsspec = needed("fsspec", said, DataError)
    given = dict(options)
    if scheme in WEB:
        given.setdefault("client_kwargs", {})
        given["get_client"] = given.get("get_client", _client)
    try:
        found, path = fsspec.core.url_to_fs(name, **given)
    except (ValueError, TypeError) as error:
        raise DataError(f"{name}: {first_line(error)}; or give filesystem=") from error
    except ImportError as error:
        raise DataError(
            f"{name}: {first_line(error)}; install what it names, or give filesystem="
        ) from error
    return pafs.PyFileSystem(pafs.FSSpecHandler(found)), path


def why_not_found(fs: pafs.FileSystem, path: str) -> str:
    """Return why there is no file at a path: of HTTP what its server answers, if anything."""
    missing = "no such file or directory"
    if isinstance(fs, pafs.LocalFileSystem) and os.path.islink(path):
        try:
            os.stat(path)
        except OSError as error:
            missing = os.strerror(error.errno or 0).lower()
        return (
            f"{missing}: the link leads to {os.readlink(path)}; mend what is there, or remove the "
            "link"
        )
    if scheme_of(path) not in WEB:
        return missing
    try:
        fs.handler.fs.info(path)
    except FileNotFoundError as error:
        cause: Any = error.__cause__
        status = getattr(cause, "status", None)
        if cause is None or status in (404, 410):
            return missing
        said = first_line(cause) if status is None else f"its server says {status} {cause.message}"
        return f"{said}; {CHECK}"
    return missing


async def _client(**given: Any) -> Any:
    """Return a client of HTTP whose requests end when nothing comes."""
    aiohttp: Any = importlib.import_module("aiohttp")
    given.setdefault(
        "timeout", aiohttp.ClientTimeout(sock_connect=ANSWER_SECONDS, sock_read=ANSWER_SECONDS)
    )
    return aiohttp.ClientSession(**given)


def answered(name: str, ask: Callable[[], T], options: Mapping[str, Any]) -> T:
    """Return what a store says, if it does within `ANSWER_SECONDS`; raises DataError otherwise.

    Unless its options say how long it may take.
    """
    found: list[T] = []
    wrong: list[BaseException] = []

    def asking() -> None:
        try:
            found.append(ask())
        except BaseException as error:
            wrong.append(error)

    # It cannot be stopped, and must not keep the process from ending.
    thread = threading.Thread(target=asking, daemon=True)
    thread.start()
    thread.join(None if _PATIENCE & {*options} else ANSWER_SECONDS)
    if wrong:
        raise wrong[0]
    if not found:
        alone = "; no scan of S3 with other options may run in this process meanwhile"
        raise DataError(
            f"{name}: nothing answered within {ANSWER_SECONDS:g} seconds; {CHECK}"
            f"{alone if scheme_of(name) == 's3' and _FIRST else ''}"
        )
    return found[0]
