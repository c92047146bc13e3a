"""The public names as text, and as the stub that type checkers read.

`python tests/public_api.py` writes both anew; `test_public_api.py` compares.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastbayes as fb
from fastbayes.models.estimator.parameters import HasParameters, fitted_attributes

SNAPSHOT = Path(__file__).with_name("public_api.txt")
STUB = Path(fb.__file__).with_name("__init__.pyi")


def signature(function: Any) -> str:
    return str(inspect.signature(function)).replace("'", "")


def described(name: str, item: Any) -> Iterator[str]:
    """Yield a line for a public name, and one for each public member of a class or module."""
    if inspect.ismodule(item):
        for member in item.__all__:
            yield from described(f"{name}.{member}", getattr(item, member))
        return
    if not inspect.isclass(item):
        yield f"{name}{signature(item)}"
        return
    bases = [base.__name__ for base in item.__mro__[1:] if base.__name__ in fb.__all__]
    yield f"class {name}({', '.join(bases)})"
    if issubclass(item, BaseException):
        return
    yield f"    __init__{signature(item.__init__)}"
    if dataclasses.is_dataclass(item):
        yield from (f"    {field.name}: {field.type}" for field in dataclasses.fields(item))
    elif issubclass(item, HasParameters):
        yield from (f"    {attribute}" for attribute in sorted(fitted_attributes(item)))
    for member, value in sorted(inspect.getmembers_static(item), key=lambda pair: pair[0]):
        function = getattr(value, "__func__", value)
        if member.startswith("_") or member in vars(item).get("__dataclass_fields__", {}):
            continue
        if isinstance(value, property):
            yield f"    {member}: property"
        elif inspect.isfunction(function):
            yield f"    {member}{signature(function)}"


def snapshot() -> str:
    lines = (line for name in fb.__all__ for line in described(name, getattr(fb, name)))
    return "\n".join(lines) + "\n"


def stub() -> str:
    """Return the imports that the package makes on first use, as type checkers read them."""
    items = [(name, getattr(fb, name)) for name in fb.__all__]
    where = sorted((getattr(item, "__module__", "fastbayes"), name) for name, item in items)
    imports = [f"from {module} import {name} as {name}" for module, name in where]
    return "\n".join(
        [
            '"""What `__init__` imports on first use; written by tests/public_api.py."""',
            "",
            *imports,
            "",
            "__version__: str",
            "__all__: list[str]",
            "",
        ]
    )


if __name__ == "__main__":
    SNAPSHOT.write_text(snapshot(), encoding="utf-8")
    STUB.write_text(stub(), encoding="utf-8")
