"""What numba does to a kernel: the passes that flat functions over arrays need, and no others.

Half of numba's passes look for what no kernel has: closures, comprehensions, `with`, dynamic
raises, array expressions. Each of them goes over the whole function, and many of them analyse it
anew. No kernel owns an array: scratch comes from the caller, so nothing counts references, which
were a sixth of the instructions that LLVM was given. What LLVM does, it does once: to a kernel with
all that it calls. Imported by `dispatch`, when the first kernel is declared.
"""

from __future__ import annotations

import gc
import importlib
from typing import Any

from fastbayes.kernels.entry import add_entry

_cgutils: Any = importlib.import_module("numba.core.cgutils")
_codegen: Any = importlib.import_module("numba.core.codegen")
_compiler: Any = importlib.import_module("numba.core.compiler")
_dynfunc: Any = importlib.import_module("numba._dynfunc")
_errors: Any = importlib.import_module("numba.core.errors")
_funcdesc: Any = importlib.import_module("numba.core.funcdesc")
_lowering: Any = importlib.import_module("numba.core.lowering")
_machinery: Any = importlib.import_module("numba.core.compiler_machinery")
_untyped: Any = importlib.import_module("numba.core.untyped_passes")
_typed: Any = importlib.import_module("numba.core.typed_passes")


class KernelLibrary(_codegen.JITCodeLibrary):  # type: ignore[misc]
    """A kernel and what it calls, in LLVM's representation and then in machine code."""

    def _optimize_functions(self, module: Any) -> None:
        """Leave functions as they are: they are optimised with what they call."""
        module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        """Optimise once: no references are counted, so none are pruned between two runs."""
        passes, builder = self._codegen._module_pass_manager()
        passes.run(self._final_module, builder)
        for function in self._final_module.functions:
            if function.name.startswith(("NRT_Allocate", "NRT_MemInfo_alloc")):
                raise _errors.LoweringError(
                    f"{self.name} makes an array, which nothing would free: take it as an argument"
                )


class HelperLibrary(KernelLibrary):
    """A function that only kernels call: it is optimised, and made machine code, within them."""

    def finalize(self) -> None:
        """Take in what the function calls."""
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return that there is none."""
        return 0


class KernelLower(_lowering.Lower):  # type: ignore[misc]
    """Writes a function that owns nothing: its variables are not counted, and need not end."""

    def incref(self, typ: Any, val: Any) -> None:
        """Count no reference."""

    def decref(self, typ: Any, val: Any) -> None:
        """Count no reference."""

    def delvar(self, name: str) -> None:
        """Leave what a variable holds: LLVM sees where it was used last."""

    def alloca_lltype(self, name: str, lltype: Any, datamodel: Any = None) -> Any:
        """Make room for a variable, that no debugger needs to know."""
        return _cgutils.alloca_once(self.builder, lltype, name=name)


@_machinery.register_pass(mutates_CFG=True, analysis_only=False)
class Lowering(_machinery.LoweringPass):  # type: ignore[misc]
    """Writes LLVM's representation."""

    _name = "kernel_lowering"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        """Write the function, what enters it, and optimise it."""
        inner = state.flags.no_cpython_wrapper
        context, name = state.targetctx.subtarget(enable_nrt=False), state.func_id.func_qualname
        library = (HelperLibrary if inner else KernelLibrary)(context.codegen(), name)
        library.enable_object_caching()
        state.library = library
        described = _funcdesc.PythonFunctionDescriptor.from_specialized_function(
            state.func_ir,
            state.typemap,
            state.return_type,
            state.calltypes,
            mangler=context.mangler,
            inline=state.flags.forceinline,
            noalias=state.flags.noalias,
            abi_tags=[state.flags.get_mangle_string()],
        )
        with context.push_code_library(library):
            lower = KernelLower(context, library, described, state.func_ir, metadata=state.metadata)
            lower.lower()
        if inner:
            function = _dynfunc.make_function(
                described.lookup_module(), name, "", 0, lower.env, (library,)
            )
        else:
            add_entry(context, library, described, nogil=state.flags.release_gil)
            function = context.get_executable(library, described, lower.env)
        context.insert_user_function(function, described, [library])
        state.reload_init.extend(library._reload_init)
        state["cr"] = _compiler._LowerResult(
            described, lower.call_helper, cfunc=function, env=lower.env
        )
        return True


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
    (Lowering, "write LLVM's representation, optimise it"),
    (_typed.NoPythonBackend, "hand over what was made"),
)


class FlatCompiler(_compiler.CompilerBase):  # type: ignore[misc]
    """Numba's compiler, with the passes of kernels."""

    def compile_extra(self, func: Any) -> Any:
        """Compile a function; what numba leaves is looked through for cycles afterwards."""
        enabled = gc.isenabled()
        gc.disable()
        try:
            return super().compile_extra(func)
        finally:
            if enabled:
                gc.enable()

    def define_pipelines(self) -> list[Any]:
        """Return the one pipeline."""
        passes = _compiler.PassManager("kernel")
        for each, does in PASSES:
            passes.add_pass(each, does)
        passes.finalize()
        return [passes]
