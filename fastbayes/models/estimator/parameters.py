"""Parameters and fitted attributes, declared once: signature, documentation and checks follow."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, dataclass_transform

import numpy as np

from fastbayes.core.batch import GREATEST
from fastbayes.core.numbers import as_float, check_whole, is_number
from fastbayes.core.suggestions import use_one_of
from fastbayes.core.threads import check_threads
from fastbayes.scan.budget import check_limit

Check = Callable[[str, Any], object]
# What is smaller, and not 0, may be 0 once it is divided by a number of rows.
LEAST_PSEUDO_COUNT = 1e-300


@dataclass(frozen=True, eq=False)
class Parameter:
    """A parameter of the constructor.

    doc      what it means, as the class documents it
    choices  the values that are allowed; empty where `check` decides
    check    called with the name and the value before a fit; raises ValueError
    filed    whether files of models always have it; else only where it is not the default, so that
             files of models that do not use it are as those of earlier versions
    before   what it is in files of models that were written before there was this parameter, if
             that is not the default
    """

    default: Any
    doc: str
    choices: tuple[Any, ...] = ()
    check: Check | None = None
    kw_only: bool = True
    filed: bool = True
    before: Any = None

    def validate(self, name: str, value: Any) -> None:
        """Raise ValueError where a value is not allowed; the message names both."""
        if self.choices and not _among(value, self.choices):
            raise ValueError(f"{name}={value!r}: {use_one_of(value, self.choices)}")
        if self.check is not None:
            self.check(name, value)


@dataclass(frozen=True, eq=False)
class _Fitted:
    doc: str


def parameter(
    doc: str,
    *,
    default: Any,
    choices: tuple[Any, ...] = (),
    check: Check | None = None,
    kw_only: bool = True,
    filed: bool = True,
    before: Any = None,
) -> Any:
    """Declare a parameter in the body of a model's class: see `Parameter`."""
    return Parameter(default, inspect.cleandoc(doc), choices, check, kw_only, filed, before)


def fitted(doc: str = "", *, init: Literal[False] = False) -> Any:
    """Declare an attribute that `fit` sets; without `doc` it is internal."""
    return _Fitted(inspect.cleandoc(doc))


@dataclass_transform(kw_only_default=True, field_specifiers=(parameter, fitted))
class HasParameters:
    """A class whose body declares parameters and fitted attributes.

    Subclasses inherit them; one that writes an `__init__`, as scikit-learn's estimators do, has the
    parameters of its signature. The constructor stores the parameters untouched; they are validated
    before a fit. Declarations leave no class attribute behind: an unfitted model has no attribute
    of a fit.
    """

    _own_parameters: ClassVar[Mapping[str, Parameter]] = {}
    _own_attributes: ClassVar[Mapping[str, str]] = {}
    _declared: ClassVar[Mapping[str, Parameter]] = {}
    _writes_init: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        body = dict(vars(cls))
        cls._own_parameters = {n: p for n, p in body.items() if isinstance(p, Parameter)}
        cls._own_attributes = {n: a.doc for n, a in body.items() if isinstance(a, _Fitted)}
        for name in (*cls._own_parameters, *cls._own_attributes):
            delattr(cls, name)
        inherited = _merged(cls, "_own_parameters")
        if "__init__" in body:
            cls._declared = _of_signature(cls, inherited)
            cls._writes_init = True
        elif cls._own_parameters or not cls._writes_init:
            positional = {n: p for n, p in inherited.items() if not p.kw_only}
            cls._declared = {**positional, **inherited}
            cls.__init__ = _constructor(cls)  # type: ignore[method-assign]
            cls._writes_init = False
        if cls.__doc__:
            parameters = {n: p.doc for n, p in cls._declared.items()}
            cls.__doc__ = _documented(cls.__doc__, parameters, fitted_attributes(cls))


def filed_parameters(cls: type[HasParameters], params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a model in a file, with those there were not yet."""
    older = {n: p.before for n, p in cls._declared.items() if p.before is not None}
    return {**older, **params}


def fitted_attributes(cls: type[HasParameters]) -> dict[str, str]:
    """Return the public attributes of a fitted model, with what they mean."""
    return {name: doc for name, doc in _merged(cls, "_own_attributes").items() if doc}


def _merged(cls: type, what: str) -> dict[str, Any]:
    """Return what a class and its bases declare, the class's own first."""
    found: dict[str, Any] = {}
    for base in cls.__mro__:
        found = {**found, **{n: d for n, d in vars(base).get(what, {}).items() if n not in found}}
    return found


def _of_signature(cls: type, inherited: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """Return the parameters of a class that writes its `__init__`."""
    _, *given = inspect.signature(cls.__init__).parameters.values()  # type: ignore[misc]
    return {
        p.name: replace(inherited.get(p.name, Parameter(None, "")), default=p.default)
        for p in given
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    }


def _constructor(cls: type[HasParameters]) -> Callable[..., None]:
    """Return `__init__` with the signature that the parameters make."""
    kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    annotations = {n: a for base in reversed(cls.__mro__)
                   for n, a in vars(base).get("__annotations__", {}).items()}  # fmt: skip
    signature = inspect.Signature(
        [inspect.Parameter("self", kinds[0])]
        + [
            inspect.Parameter(
                n, kinds[p.kw_only], default=p.default, annotation=annotations.get(n, Any)
            )
            for n, p in cls._declared.items()
        ],
        return_annotation=None,
    )
    defaults = {name: p.default for name, p in cls._declared.items()}

    def __init__(self: Any, *args: Any, **parameters: Any) -> None:
        if args or not parameters.keys() <= defaults.keys():
            try:
                bound = signature.bind(self, *args, **parameters).arguments
            except TypeError as error:
                raise TypeError(f"{cls.__name__}: {error}") from None
            parameters = {name: bound[name] for name in bound if name != "self"}
        for name, value in {**defaults, **parameters}.items():
            setattr(self, name, value)

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    __init__.__qualname__ = f"{cls.__qualname__}.__init__"
    __init__.__module__ = cls.__module__
    return __init__


def _documented(doc: str, parameters: Mapping[str, str], attributes: Mapping[str, str]) -> str:
    """Return a class docstring with its sections Parameters and Attributes."""
    text = inspect.cleandoc(doc)
    first = re.search(r"^\w[\w ]*\n-{3,}$", text, re.MULTILINE)
    at = len(text) if first is None else first.start()
    parts = [text[:at].rstrip()]
    for title, entries in (("Parameters", parameters), ("Attributes", attributes)):
        if entries:
            lines = [f"{n}\n{_indented(d)}" for n, d in entries.items()]
            parts.append("\n".join([title, "-" * len(title), *lines]))
    return "\n\n".join([*parts, text[at:]]).rstrip() + "\n"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.split("\n"))


def _among(value: Any, choices: tuple[Any, ...]) -> bool:
    """Return whether a value is one of some words and numbers."""
    simple = is_number(value) or isinstance(value, str)
    return any(value is c or (simple and value == c) for c in choices)


def number(
    *,
    above: float | None = None,
    least: float = 0.0,
    most: float = math.inf,
    besides: tuple[Any, ...] = (),
) -> Check:
    """Return the check of a finite number of at least 0, or above `above`.

    One that is not 0 is at least `least`. The values `besides` are allowed, too.
    """
    wanted = ">= 0" if above is None else f"> {above:g}"
    wanted += f", {least:g} at least{' if not 0' * (above is None)}" * (least > 0)
    wanted += f", {most:g} at most" * (most < math.inf)
    wanted += "".join(f", or {value!r}" for value in besides)

    def check(name: str, value: Any) -> None:
        if _among(value, besides):
            return
        good = is_number(value) and 0 <= (real := as_float(value)) <= most and real < math.inf
        good = good and (value == 0 or real >= least)
        if not good or (above is not None and not value > above):
            raise ValueError(f"{name}={value!r}: use a finite number {wanted}")

    return check


def whole(least: int, *, besides: tuple[Any, ...] = ()) -> Check:
    """Return the check of a whole number of at least `least`; values `besides` are allowed, too."""
    others = "".join(f", or {value!r}" for value in besides)

    def check(name: str, value: Any) -> None:
        if _among(value, besides):
            return
        check_whole(name, value, least, others)

    return check


def readable_again(of: str) -> Check:
    """Return the check that a value is no iterator: a list `of` something in place of it."""

    def check(name: str, value: Any) -> None:
        if isinstance(value, Iterator):
            raise ValueError(
                f"{name}: an iterator can be read only once, and a model may be fitted again: use "
                f"a list of {of}"
            )

    return check


def pseudo_count(*, besides: tuple[Any, ...] = (), above: float | None = None) -> Check:
    """Return the check of a pseudo-count: products with it, and logarithms, stay finite."""
    return number(least=LEAST_PSEUDO_COUNT, most=GREATEST, besides=besides, above=above)


def switch(name: str, value: Any, *, on: float, below: float | None = None) -> float | None:
    """Return the number of a parameter that is False (None), True (`on`), or a number above 0."""
    if isinstance(value, (bool, np.bool_)):
        return on if value else None
    good = isinstance(value, (int, float, np.number)) and value > 0
    good = good and (value == math.inf or as_float(value) < math.inf)
    if good and (below is None or value < below):
        return float(value)
    wanted = "number > 0" if below is None else f"number between 0 and {below:g}"
    raise ValueError(f"{name}={value!r}: use False, True, or a {wanted}")


def worker_threads(_: str, threads: Any) -> None:
    """Raise ValueError where this is no number of threads."""
    check_threads(threads)


def memory_limit(_: str, limit: Any) -> None:
    """Raise ValueError where this is no limit of memory."""
    check_limit(limit)


# Parameters that several models share.
CLASS_PRIOR = parameter(
    'None (smoothed by alpha), "empirical", "uniform", or (n_classes,) probabilities.',
    default=None,
)
COUNTED_PRIOR = parameter(
    'None (as counted), "empirical", "uniform", or (n_classes,) probabilities.',
    default=None,
)
DISCRETIZE = parameter(
    """
    How numeric columns become bins: "mdl", "quantile", "width", ("quantile", n), ("width", n), or
    {column: any of these or cut points}.
    """,
    default="mdl",
)


def discretize_from_json(given: Any) -> Any:
    """Return a `discretize` as it was before a file held it: a rule with its number is a tuple."""
    if isinstance(given, Mapping):
        return {name: discretize_from_json(rule) for name, rule in given.items()}
    is_rule = isinstance(given, list) and len(given) == 2 and isinstance(given[0], str)
    return tuple(given) if is_rule else given


SUMMED_OUT = parameter(
    '"marginalize": a missing value is summed out; "category": it is a value of its own.',
    default="marginalize",
    choices=("marginalize", "category"),
)
UNSEEN = parameter(
    """
    A value not seen at fit is treated as missing ("ignore"), has the mass of a count of 0
    ("smooth"), or is an error ("error").
    """,
    default="ignore",
    choices=("ignore", "smooth", "error"),
)
PRECISION = parameter(
    '"exact" (float64), or "fast": float32 tables, posteriors to about 1e-5.',
    default="exact",
    choices=("exact", "fast"),
)
MAX_ITER = parameter(
    "Steps at most; if they are not enough, there is a `ConvergenceWarning`, and the best is kept.",
    default=10_000,
    check=whole(1),
)
PACKING_LIMIT = parameter(
    """
    Bytes: packed rows are kept if they fit in half of it, else they are read again for each
    step. Half of the machine's memory, or of its container's, by default.
    """,
    default=None,
    check=memory_limit,
)


def tolerance(doc: str, default: float) -> Any:
    """Declare the parameter that says where the steps of a fit stop."""
    return parameter(doc, default=default, check=number(above=0.0))
