"""What numba does to a kernel: the passes that flat functions over arrays need, and no others.

Half of numba's passes look for what no kernel has: closures, comprehensions, `with`, dynamic
raises, array expressions. Each of them goes over the whole function, and many of them analyse it
anew. Imported by `dispatch`, when the first kernel is declared.
"""

from __future__ import annotations

import importlib
from typing import Any

_compiler: Any = importlib.import_module("numba.core.compiler")
_untyped: Any = importlib.import_module("numba.core.untyped_passes")
_typed: Any = importlib.import_module("numba.core.typed_passes")

PASSES = (
    (_untyped.TranslateByteCode, "read the bytecode"),
    (_untyped.FixupArgs, "name the arguments"),
    (_untyped.IRProcessing, "make the intermediate representation"),
    (_untyped.RewriteSemanticConstants, "replace the rank and the length of arguments"),
    (_untyped.DeadBranchPrune, "drop branches on arguments that are None"),
    (_untyped.GenericRewrites, "index by constants"),
    (_untyped.ReconstructSSA, "assign each variable once"),
    (_typed.NopythonTypeInference, "find the types"),
    (_typed.PreLowerStripPhis, "take the phi nodes out"),
    (_typed.NoPythonSupportedFeatureValidation, "check that all of it can be compiled"),
    (_typed.IRLegalization, "end the life of variables"),
    (_typed.NativeLowering, "write LLVM's representation"),
    (_typed.NoPythonBackend, "make machine code"),
)


class FlatCompiler(_compiler.CompilerBase):  # type: ignore[misc]
    """Numba's compiler, with the passes of kernels."""

    def define_pipelines(self) -> list[Any]:
        """Return the one pipeline."""
        passes = _compiler.PassManager("kernel")
        for each, does in PASSES:
            passes.add_pass(each, does)
        passes.finalize()
        return [passes]
