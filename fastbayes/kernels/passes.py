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
from fastbayes.kernels.inference import Inference
from fastbayes.kernels.lowering import KernelLower

_analysis: Any = importlib.import_module("numba.core.analysis")
_bytecode: Any = importlib.import_module("numba.core.bytecode")
_codegen: Any = importlib.import_module("numba.core.codegen")
_compiler: Any = importlib.import_module("numba.core.compiler")
_dynfunc: Any = importlib.import_module("numba._dynfunc")
_errors: Any = importlib.import_module("numba.core.errors")
_config: Any = importlib.import_module("numba.core.config")
_funcdesc: Any = importlib.import_module("numba.core.funcdesc")
_interpreter: Any = importlib.import_module("numba.core.interpreter")
_ir_utils: Any = importlib.import_module("numba.core.ir_utils")
_indices: Any = importlib.import_module("numba.core.rewrites.static_getitem")
_binops: Any = importlib.import_module("numba.core.rewrites.static_binop")
_raises: Any = importlib.import_module("numba.core.rewrites.static_raise")
_ssa: Any = importlib.import_module("numba.core.ssa")
_transforms: Any = importlib.import_module("numba.core.transforms")
_machinery: Any = importlib.import_module("numba.core.compiler_machinery")
_types: Any = importlib.import_module("numba.core.types")
_typed: Any = importlib.import_module("numba.core.typed_passes")

# Functions that were read last, by what reading them depends on: signatures of a kernel, and of
# what it calls, follow one another.
KEPT = 64
_read: dict[tuple[Any, ...], Any] = {}


class KernelLibrary(_codegen.JITCodeLibrary):  # type: ignore[misc]
    """A kernel and what it calls, in LLVM's representation and then in machine code."""

    def _optimize_functions(self, module: Any) -> None:
        """Leave functions as they are: they are optimised with what they call."""
        module.data_layout = self._codegen._data_layout

    unswitched = False

    def _optimize_final_module(self) -> None:
        """Optimise once: no references are counted, so none are pruned between two runs.

        LLVM's second level: the third writes a loop anew for each way of the conditions in it that
        stay the same, which is a seventh of its time and of the machine code, and hardly any
        kernel's gain (`dispatch.unswitched`).
        """
        level = _config.OPT if self.unswitched else min(2, _config.OPT)
        builder = self._codegen._pass_builder(opt=level)
        builder.getModulePassManager().run(self._final_module, builder)
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
        library.unswitched = hasattr(state.func_id.func, "unswitched")
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


class BytecodeReader(_interpreter.Interpreter):  # type: ignore[misc]
    """Reads bytecode, of which little has to be rewritten."""

    def post_process(self, peepholes: Any, func_ir: Any) -> Any:
        """Make the list of arguments of a call a tuple; look for no `with` and no dictionaries."""
        return _interpreter.peep_hole_list_to_tuple(func_ir)


@_machinery.register_pass(mutates_CFG=True, analysis_only=False)
class Read(_machinery.FunctionPass):  # type: ignore[misc]
    """Reads the bytecode, once for all types of arguments that make no difference to it."""

    _name = "kernel_read"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        """Write the function as numba's representation."""
        key = state.func_id.func, *map(_read_for, state.args)
        read = _read.pop(key, None)
        if read is None:
            state.bc = _bytecode.ByteCode(state.func_id)
            state.func_ir = BytecodeReader(state.func_id).interpret(state.bc)
            _analysis.rewrite_semantic_constants(state.func_ir, state.args)
            _analysis.dead_branch_prune(state.func_ir, state.args)
            _simplify(state)
            read = _ssa.reconstruct_ssa(state.func_ir)
            if len(_read) == KEPT:
                del _read[next(iter(_read))]
        _read[key] = read  # the last one read is forgotten last
        state.func_ir = read.copy()
        state.func_ir.func_id = state.func_id
        state.func_ir._definitions = _ir_utils.build_definitions(read.blocks)
        return True


def _read_for(kind: Any) -> Any:
    """Return what reading a function takes from the type of an argument."""
    if isinstance(kind, _types.Array):
        return kind.ndim
    return None if isinstance(kind, (_types.Number, _types.Boolean)) else kind


def _simplify(state: Any) -> None:
    """Bring loops into one form, index by constants, and make errors constants."""
    blocks = _transforms.canonicalize_cfg(state.func_ir.blocks)
    state.func_ir.blocks = blocks
    for rewrite in (
        _indices.RewriteConstGetitems(state),
        _binops.DetectStaticBinops(state),
        _raises.RewriteConstRaises(state),  # what checks bounds raises errors
    ):
        for label, block in list(blocks.items()):
            if rewrite.match(state.func_ir, block, None, None):
                blocks[label] = rewrite.apply()


@_machinery.register_pass(mutates_CFG=True, analysis_only=False)
class StripPhis(_typed.PreLowerStripPhis):  # type: ignore[misc]
    """Assigns to variables on the ways that lead to one place."""

    _name = "kernel_strip_phis"

    def run_pass(self, state: Any) -> bool:
        """Take the phi nodes out."""
        state.func_ir = self._strip_phi_nodes(state.func_ir)
        return True


PASSES = (
    (Read, "read the bytecode, assign each variable once"),
    (Inference, "find the types"),
    (_typed.NoPythonSupportedFeatureValidation, "check that all of it can be compiled"),
    (StripPhis, "take the phi nodes out"),
    (Lowering, "write LLVM's representation, optimise it"),
    (_typed.NoPythonBackend, "hand over what was made"),
)


class Passes(_compiler.PassManager):  # type: ignore[misc]
    """Runs passes, without analysing the function anew after each."""

    def _runPass(self, index: int, pss: Any, internal_state: Any) -> None:
        pss.analysis = self._analysis
        pss.run_pass(internal_state)


class KernelFlags(_compiler.Flags):  # type: ignore[misc]
    """How a function is compiled; numba looks up by it what it has compiled."""

    def __hash__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        return self._values == getattr(other, "_values", None)


class FlatCompiler(_compiler.CompilerBase):  # type: ignore[misc]
    """Numba's compiler, with the passes of kernels."""

    def __init__(
        self, typingctx: Any, targetctx: Any, library: Any, args: Any, *others: Any
    ) -> None:
        super().__init__(typingctx, targetctx, library, args, *others)
        self.state.flags = KernelFlags(self.state.flags)

    def compile_extra(self, func: Any) -> Any:
        """Compile a function; what numba leaves is looked through for cycles afterwards."""
        enabled = gc.isenabled()
        gc.disable()
        try:
            self.state.func_id = _bytecode.FunctionIdentity.from_function(func)
            self.state.lifted, self.state.lifted_from = (), None
            return self._compile_bytecode()
        finally:
            if enabled:
                gc.enable()

    def define_pipelines(self) -> list[Any]:
        """Return the one pipeline."""
        passes = Passes("kernel")
        for each, does in PASSES:
            passes.add_pass(each, does)
        passes.finalize()
        return [passes]
