"""What all networks in XML are read by: expat, elements with text in them, places in lines."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar
from xml.parsers import expat

from fastbayes.core.errors import DataError
from fastbayes.networks.io.parsed_network import (
    WRITTEN,
    NetworkBuilder,
    ParsedNetwork,
    brief,
    numbers_in,
)


class XmlReader:
    """Reads what a document declares; a format says what its elements mean.

    form   the name of the format, for messages
    root   the outermost element
    reads  elements that declare something, with the elements in them whose text is read
    """

    form: ClassVar[str]
    root: ClassVar[str]
    reads: ClassVar[Mapping[str, tuple[str, ...]]]

    def __init__(self, path: str | os.PathLike[str], most_off: float = WRITTEN) -> None:
        self._path = os.fspath(path)
        # The places of these formats are lines.
        self._declared = NetworkBuilder(path, lambda at: at, most_off)
        self._parser = parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        # Entities may grow without bound, and read other files: no network needs them.
        parser.EntityDeclHandler = self._entity
        parser.SkippedEntityHandler = self._entity
        self._stack: list[str] = []
        self._said: dict[str, list[tuple[str, int]]] = {}
        self._text: list[str] | None = None
        self._kept = False
        self._begun = 0

    def parts(self, blob: bytes) -> ParsedNetwork:
        """Return what the network is made of."""
        try:
            self._parser.Parse(blob, True)
        except expat.ExpatError as error:
            said = expat.ErrorString(error.code)
            raise self._declared.fault(error.lineno, f"{said}; is it {self.form}?") from None
        except (LookupError, ValueError) as error:
            if isinstance(error, DataError):
                raise
            # An encoding that is not known, or not one for documents.
            raise self._declared.fault(1, f"{error}; is it {self.form}?") from error
        return self._declared.parts()

    def _opened(self, name: str, above: str, attributes: dict[str, str]) -> None:
        """Look at an element that begins within the element `above`."""
        raise NotImplementedError

    def _closed(self, name: str) -> None:
        """Declare what an element said that ends, one of `reads`."""
        raise NotImplementedError

    @property
    def _line(self) -> int:
        return int(self._parser.CurrentLineNumber)

    @property
    def _above(self) -> str:
        return self._stack[-1] if self._stack else ""

    def _entity(self, name: str, *_: Any) -> None:
        raise self._declared.fault(self._line, f"the entity {brief(name)}: entities are not read")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if not self._stack and name != self.root:
            message = f"<{self.root}> should be where <{brief(name)}> is"
            raise self._declared.fault(self._line, message)
        if name in self.reads:
            self._said, self._begun = {}, self._line
        elif name in self.reads.get(self._above, ()):
            self._text = []
            self._kept = attributes.get("xml:space") == "preserve"
        self._opened(name, self._above, attributes)
        self._stack.append(name)

    def _characters(self, text: str) -> None:
        if self._text is not None:
            self._text.append(text)

    def _end(self, name: str) -> None:
        self._stack.pop()
        if name in self.reads.get(self._above, ()) and self._text is not None:
            text = "".join(self._text)
            self._say(name, text if self._kept else text.strip())
            self._text = None
        elif name in self.reads:
            self._closed(name)

    def _say(self, what: str, text: str) -> None:
        self._said.setdefault(what, []).append((text, self._line))

    def _one(self, what: str) -> tuple[str, int]:
        found = self._said.get(what, [])
        if len(found) != 1:
            many = "no" if not found else "more than one"
            raise self._declared.fault(self._begun, f"{many} <{what}> in an element that needs one")
        return found[0]

    def _numbers(self, node: str, what: str) -> tuple[list[float], int]:
        """Return the numbers that an element said of a node, and where."""
        listed, at = self._one(what)
        try:
            return numbers_in(listed), at
        except ValueError as error:
            message = f"node {brief(node)}: {brief(error.args[0])} is no number"
            raise self._declared.fault(at, message) from None
