"""What can go wrong, said so that it can be mended: column, value, row, remedy.

Warnings point at the line of the caller, however deep the place that warns.
"""

from __future__ import annotations

import sys
import warnings


class FastBayesError(Exception):
    """Base of every error that fastbayes raises on purpose."""


class DataError(FastBayesError, ValueError):
    """The data cannot be used as they are; the message names where and what to do."""


class SchemaError(DataError):
    """Columns, types or domains do not fit the schema that was learned or asked for."""


class FileFormatError(DataError):
    """A file is not what its name or header says."""


class RejectLimitError(FastBayesError, ValueError):
    """More rows cannot be used than may be left out; no `on_error` leaves that out."""


class MemoryLimitError(FastBayesError, MemoryError):
    """The plan needs more bytes than `memory_limit` allows; nothing was allocated."""


class SystemLimitError(FastBayesError):
    """The system has no open files or memory left to read with, or cannot write rejected rows.

    No `on_error` leaves that out.
    """


class NotFittedError(FastBayesError, ValueError, AttributeError):
    """The model has not seen data yet."""


class FastBayesWarning(UserWarning):
    """Something was done that the caller may not expect; said once."""


class ConvergenceWarning(FastBayesWarning):
    """A fit ended before it had converged: it has the best that it reached, and names a remedy.

    Every model that is fitted by iteration has `converged_`, `n_iter_` and `trace_`.
    """


def refuse(wrong: object, message: str, error: type[Exception] = DataError) -> None:
    """Raise an error with this message if something is wrong."""
    if wrong:
        raise error(message)


def described(error: FastBayesError) -> list[str]:
    """Return the name of an error that is documented, or of the nearest to it, and what it says."""
    names = [kind.__name__ for kind in type(error).__mro__]
    return [next(name for name in names if name in globals()), str(error)]


def error_of(name: str, message: str) -> FastBayesError:
    """Return the error that `described` put in words."""
    found: FastBayesError = globals()[name](message)
    return found


def warn(message: str, category: type[Warning] = FastBayesWarning) -> None:
    """Warn, as from the first frame outside fastbayes."""
    frame, level = sys._getframe().f_back, 2
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("fastbayes."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def not_fitted(name: str, *, statistics: bool = True) -> Exception:
    """Return the error of an unfitted model, scikit-learn's own class where it is loaded.

    `name` is the class of the model, `statistics` whether it can be fitted to these, too.
    """
    how = "'fit' or 'fit_statistics'" if statistics else "'fit'"
    message = f"this {name} instance is not fitted yet: call {how} first"
    loaded = sys.modules.get("sklearn.exceptions")
    error: type[Exception] = loaded.NotFittedError if loaded is not None else NotFittedError
    return error(message)
