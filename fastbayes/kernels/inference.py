"""How the types of a kernel's variables are found: by numba, which is asked each question once.

Numba goes over all calls of a function until nothing changes, and looks each of them up anew among
all functions of its name; an addition of two numbers is one of several dozen. The answer follows
from the types of the arguments alone.
"""

from __future__ import annotations

import importlib
from typing import Any

_errors: Any = importlib.import_module("numba.core.errors")
_machinery: Any = importlib.import_module("numba.core.compiler_machinery")
_typeinfer: Any = importlib.import_module("numba.core.typeinfer")
_types: Any = importlib.import_module("numba.core.types")
_typing: Any = importlib.import_module("numba.core.typing")

# The signature of a call, by what is called and the types of its arguments, which are kept: as
# long as they are, no other type has their identity.
_found: dict[tuple[int, ...], tuple[Any, Any, Any]] = {}


class Constraints(_typeinfer.ConstraintNetwork):  # type: ignore[misc]
    """What is known of the types of a function."""

    def propagate(self, typeinfer: Any) -> list[Exception]:
        """Derive what follows once; return what cannot be, yet."""
        errors: list[Exception] = []
        for constraint in self.constraints:
            try:
                constraint(typeinfer)
            except (_errors.TypingError, _errors.ForceLiteralArg) as error:
                errors.append(error)
        return errors


class Inferer(_typeinfer.TypeInferer):  # type: ignore[misc]
    """Finds the types of a function."""

    def __init__(self, context: Any, func_ir: Any, warnings: Any) -> None:
        super().__init__(context, func_ir, warnings)
        self.constraints = Constraints()

    def resolve_call(self, fnty: Any, pos_args: Any, kw_args: Any) -> Any:
        """Return the signature of a call."""
        if kw_args or isinstance(fnty, (_types.FunctionType, _types.RecursiveCall)):
            return super().resolve_call(fnty, pos_args, kw_args)
        if getattr(fnty, "typing_key", None) in (min, max) and len(pos_args) > 1:
            kinds = [_types.unliteral(kind) for kind in pos_args]
            if all(isinstance(kind, _types.Number) for kind in kinds):  # `lowering` compares them
                return _typing.signature(self.context.unify_types(*kinds), *kinds)
        key = id(fnty), *map(id, pos_args)
        if (found := _found.get(key)) is None:
            found = super().resolve_call(fnty, pos_args, kw_args), fnty, pos_args
            if found[0] is not None:
                _found[key] = found
        return found[0]


@_machinery.register_pass(mutates_CFG=True, analysis_only=False)
class Inference(_machinery.FunctionPass):  # type: ignore[misc]
    """Finds the types of a function."""

    _name = "kernel_inference"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        """Find the types of variables, of calls, and of the result."""
        warnings = _errors.WarningsFixer(_errors.NumbaWarning)
        infer = Inferer(state.typingctx, state.func_ir, warnings)
        arguments = state.targetctx.target, infer, state.func_ir.func_id, state.args
        with state.typingctx.callstack.register(*arguments), warnings:
            for index, (name, kind) in enumerate(
                zip(state.func_ir.arg_names, state.args, strict=True)
            ):
                infer.seed_argument(name, index, kind)
            if state.return_type is not None:
                infer.seed_return(state.return_type)
            infer.build_constraint()
            state.typing_errors = infer.propagate()
            state.typemap, state.return_type, state.calltypes = infer.unify()
        return True
