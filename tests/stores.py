"""Stores on the loopback: files by HTTP, with ranges, and as much of S3 as reading needs."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

# Options of a client, which are not looked at.
KEYS = {"access_key": "a", "secret_key": "b", "region": "us-east-1", "scheme": "http"}


class Store(BaseHTTPRequestHandler):
    """Objects are the files below a directory; the first part of a path is the bucket."""

    root: Path
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # which has a body wait until the client has its headers

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def _answer(self, status: int, body: bytes, head: bool, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if not head:
            self.wfile.write(body)

    def do_HEAD(self) -> None:
        """Say how long an object is."""
        self.do_GET(head=True)

    def do_GET(self, head: bool = False) -> None:
        """Give an object, a range of one, or the list of them."""
        parts = urlsplit(self.path)
        query, path = parse_qs(parts.query), unquote(parts.path).strip("/")
        file = self.root / path
        if "list-type" in query:
            self._answer(200, self._list(path, query), head, Content_Type="application/xml")
        elif not file.is_file():  # a bucket is there though it is no object
            self._answer(200 if "/" not in path and file.is_dir() else 404, b"", head)
        else:
            data = file.read_bytes()
            extra = {"Accept_Ranges": "bytes", "ETag": '"0"'}
            extra["Last_Modified"] = self.date_time_string(int(file.stat().st_mtime))
            asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
            if asked is None:
                self._answer(200, data, head, **extra)
                return
            first, last = int(asked[1]), min(int(asked[2] or len(data)), len(data) - 1)
            extra["Content_Range"] = f"bytes {first}-{last}/{len(data)}"
            self._answer(206, data[first : last + 1], head, **extra)

    def _list(self, bucket: str, query: dict[str, list[str]]) -> bytes:
        prefix, cut = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
        files = sorted(p for p in (self.root / bucket).rglob("*") if p.is_file())
        found, folders = "", set()
        for file in files:
            key = str(file.relative_to(self.root / bucket))
            if not key.startswith(prefix):
                continue
            rest = key[len(prefix) :]
            if cut and cut in rest:
                folders.add(prefix + rest.partition(cut)[0] + cut)
                continue
            found += (
                f"<Contents><Key>{escape(key)}</Key><Size>{file.stat().st_size}</Size>"
                f"<LastModified>{_iso(file)}</LastModified></Contents>"
            )
        for folder in sorted(folders):
            found += f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
        count = found.count("<Key>") + len(folders)
        return (
            '<?xml version="1.0"?><ListBucketResult><IsTruncated>false</IsTruncated>'
            f"<KeyCount>{count}</KeyCount>{found}</ListBucketResult>"
        ).encode()


def _iso(file: Path) -> str:
    changed = datetime.fromtimestamp(int(file.stat().st_mtime), UTC)
    return changed.strftime("%Y-%m-%dT%H:%M:%S.000Z")


class Server(ThreadingHTTPServer):
    """A thread for each connection, and room for as many new ones as readers begin at once."""

    request_queue_size = 128  # where there is none, a client tries again after a second


@contextmanager
def serving(root: Path) -> Iterator[str]:
    """Serve the files below a directory; gives "host:port"."""
    handler = type("Serving", (Store,), {"root": root})
    with Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
