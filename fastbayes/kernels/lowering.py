"""How a kernel is written in LLVM's representation: with few words, for what kernels do most.

Numba writes an array in full, into memory and out of it, wherever an element is read, and keeps in
memory each variable that more than one block uses; LLVM takes all of that out again. Here a
variable that is assigned once stays a value, and elements, rows, shapes and arithmetic are a few
instructions each, the ones that numba's come down to. All else is left to numba.
"""

from __future__ import annotations

import collections
import importlib
import operator
from typing import Any

_analysis: Any = importlib.import_module("numba.core.analysis")
_cgutils: Any = importlib.import_module("numba.core.cgutils")
_config: Any = importlib.import_module("numba.core.config")
_ir: Any = importlib.import_module("numba.core.ir")
_llvm: Any = importlib.import_module("llvmlite.ir")
_lowering: Any = importlib.import_module("numba.core.lowering")
_types: Any = importlib.import_module("numba.core.types")

I64 = _llvm.IntType(64)
# Parts of an array as numba lays it out.
N_ITEMS, ITEM_SIZE, DATA, SHAPE, STRIDES = 2, 3, 4, 5, 6
ATTRIBUTES = {"size": N_ITEMS, "shape": SHAPE}
# What LLVM reads of a loop.
NOT_UNROLLED = "llvm.loop.unroll.runtime.disable"
# Whose code is the same whether an operand is a constant.
ARITHMETIC = {
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod),
    *(operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift),
    *(operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge),
}
# What numba finds for an operation on numbers, which it looks up among all that has its name.
_SIGNATURES: dict[Any, Any] = {}


class KernelLower(_lowering.Lower):  # type: ignore[misc]
    """Writes a function that owns nothing: its variables are not counted, and need not end."""

    def init(self) -> None:
        """Make room for what is known of variables."""
        super().init()
        self._tuples: dict[str, list[Any]] = {}
        self._unrolled = hasattr(self.func_ir.func_id.func, "unrolled")

    def incref(self, typ: Any, val: Any) -> None:
        """Count no reference."""

    def decref(self, typ: Any, val: Any) -> None:
        """Count no reference."""

    def delvar(self, name: str) -> None:
        """Leave what a variable holds: LLVM sees where it was used last."""

    def alloca_lltype(self, name: str, lltype: Any, datamodel: Any = None) -> Any:
        """Make room for a variable, that no debugger needs to know."""
        return _cgutils.alloca_once(self.builder, lltype, name=name)

    def _find_singly_assigned_variable(self) -> None:
        """Find the variables that stay values: assigned once, and before whatever uses them."""
        assigned: dict[str, list[int]] = collections.defaultdict(list)
        for label, block in self.blocks.items():
            for inst in block.body:
                if isinstance(inst, _ir.Assign):
                    assigned[inst.target.name].append(label)
        used: dict[str, list[int]] = collections.defaultdict(list)
        for label, names in _analysis.compute_use_defs(self.blocks).usemap.items():
            for name in names:  # those that the block itself has not assigned before
                used[name].append(label)
        before = _analysis.compute_cfg_from_blocks(self.blocks).dominators()
        self._singly_assigned_vars = {
            name
            for name, (label, *more) in assigned.items()
            if not more and all(label in before[use] and label < use for use in used[name])
        }
        self._blk_local_varmap: dict[str, Any] = {}

    def pre_block(self, block: Any) -> None:
        """Look for nothing: no kernel catches errors."""
        self._cur_ir_block = block

    def post_block(self, block: Any) -> None:
        """Leave nothing behind."""

    def lower_block(self, block: Any) -> None:
        """Write the instructions of a block."""
        self.pre_block(block)
        for inst in block.body:
            self.loc = inst.loc
            self.lower_inst(inst)
        self.post_block(block)

    def lower_inst(self, inst: Any) -> None:
        """Write an instruction."""
        if isinstance(inst, _ir.Assign):
            name, value = inst.target.name, inst.value
            kept = name in self._singly_assigned_vars
            if kept and isinstance(value, _ir.Expr) and value.op == "build_tuple":
                kinds = self.typeof(name)
                self._tuples[name] = [
                    self.context.cast(self.builder, self.loadvar(i.name), self.typeof(i.name), kind)
                    for i, kind in zip(value.items, kinds, strict=True)
                ]
                return
            made = self.lower_assign(self.typeof(name), inst)
            if kept:
                self._blk_local_varmap[name] = made
            else:
                self.builder.store(made, self.getvar(name))
        elif isinstance(inst, _ir.Jump):
            target = self.blkmap[inst.target]
            jump = self.builder.branch(target)
            # Where the target is written already, this ends a turn of a loop.
            if target.instructions and not self._unrolled:
                self._keep_rolled(jump)
        elif not (isinstance(inst, (_ir.SetItem, _ir.StaticSetItem)) and self._set_element(inst)):
            super().lower_inst(inst)

    def _keep_rolled(self, jump: Any) -> None:
        """Have LLVM not repeat the body of a `for` whose turns are known only when it runs.

        What it knows of some processors has it write up to eight bodies, a quarter of the time
        that machine code takes, for loops that are as fast with one; `dispatch.unrolled` is for
        those that are not. Loops of a constant number of turns are unrolled all the same.
        """
        module = self.module
        rolled = module.add_metadata([_llvm.MetaDataString(module, NOT_UNROLLED)])
        loop = _llvm.values.MDValue(module, (), name=str(len(module.metadata)))
        loop.operands = loop, rolled  # what is said of one loop names itself first
        jump.set_metadata("llvm.loop", loop)

    def loadvar(self, name: str) -> Any:
        """Return the value of a variable."""
        if name in self._blk_local_varmap:
            return self._blk_local_varmap[name]
        if name in self._tuples:  # written where it is used: mostly its parts are
            return self.context.make_tuple(self.builder, self.typeof(name), self._tuples[name])
        return self.builder.load(self.getvar(name))

    def lower_expr(self, resty: Any, expr: Any) -> Any:
        """Write an expression."""
        if expr.op == "getattr" and expr.attr in ATTRIBUTES:
            kind = self.typeof(expr.value.name)
            if isinstance(kind, _types.Array) and not isinstance(resty, _types.BoundFunction):
                array = self.loadvar(expr.value.name)
                return self.builder.extract_value(array, ATTRIBUTES[expr.attr])
        elif expr.op == "getitem":
            found = self._element(resty, expr.value, expr.index)
            if found is not None:
                return found
        elif expr.op == "static_getitem" and expr.index_var is not None:
            found = self._element(resty, expr.value, expr.index_var)
            if found is not None:
                return found
        return super().lower_expr(resty, expr)

    def lower_binop(self, resty: Any, expr: Any, op: Any) -> Any:
        """Write arithmetic on numbers."""
        signature = self.fndesc.calltypes[expr]
        if op not in ARITHMETIC or not all(
            isinstance(kind, (_types.Number, _types.Boolean)) for kind in signature.args
        ):
            return super().lower_binop(resty, expr, op)
        context, block = self.context, self.builder
        operands = [
            context.cast(block, self.loadvar(each.name), self.typeof(each.name), kind)
            for each, kind in zip((expr.lhs, expr.rhs), signature.args, strict=True)
        ]
        if (found := _SIGNATURES.get((op, signature.args))) is None:
            function = context.typing_context.resolve_value_type(op)
            found = function, function.get_call_type(context.typing_context, signature.args, {})
            _SIGNATURES[op, signature.args] = found
        made = context.get_function(*found)(block, operands)
        return context.cast(block, made, signature.return_type, resty)

    def _indices(self, array: Any, index: Any) -> list[tuple[Any, Any]] | None:
        """Return the numbers of an index, with their types; None if it is anything else."""
        kind = self.typeof(index.name)
        if isinstance(kind, _types.Integer):
            return [(self.loadvar(index.name), kind)]
        if not isinstance(kind, _types.BaseTuple) or len(kind) > array.ndim:
            return None
        kinds = list(kind)
        if not all(isinstance(each, _types.Integer) for each in kinds):
            return None
        values = self._tuples.get(index.name)
        if values is None:
            values = _cgutils.unpack_tuple(self.builder, self.loadvar(index.name), len(kinds))
        return list(zip(values, kinds, strict=True))

    def _place(self, kind: Any, array: Any, index: Any) -> tuple[Any, list[Any], int] | None:
        """Return where an element or a row begins, the shape of the array, the axes used."""
        if _config.BOUNDSCHECK or not isinstance(kind, _types.Array) or kind.layout != "C":
            return None
        indices = self._indices(kind, index)
        if indices is None:
            return None
        block = self.builder
        shape = [block.extract_value(array, [SHAPE, axis]) for axis in range(kind.ndim)]
        at = None
        for axis, length in enumerate(shape):
            if at is not None:
                at = block.mul(at, length)
            if axis < len(indices):
                own = self._counted(*indices[axis], length)
                at = own if at is None else block.add(at, own)
        return block.gep(block.extract_value(array, DATA), [at]), shape, len(indices)

    def _counted(self, value: Any, kind: Any, length: Any) -> Any:
        """Return an index as a word, from the end if it is below 0."""
        block = self.builder
        if value.type.width > 64:
            value = block.trunc(value, I64)
        elif value.type.width < 64:
            value = (block.sext if kind.signed else block.zext)(value, I64)
        if not kind.signed:
            return value
        if isinstance(value, _llvm.Constant):
            return value if value.constant >= 0 else block.add(value, length)
        below = block.icmp_signed("<", value, I64(0))
        return block.select(below, block.add(value, length), value)

    def _element(self, resty: Any, value: Any, index: Any) -> Any:
        """Return an element or a row of an array; None where it is left to numba."""
        kind = self.typeof(value.name)
        if not isinstance(kind, _types.Array):
            return None
        array = self.loadvar(value.name)
        found = self._place(kind, array, index)
        if found is None:
            return None
        place, shape, used = found
        context, block = self.context, self.builder
        if used == kind.ndim:
            made = context.unpack_value(block, kind.dtype, place, align=None if kind.aligned else 1)
            return context.cast(block, made, kind.dtype, resty)
        if not isinstance(resty, _types.Array) or resty.layout != "C":
            return None
        view = _llvm.Constant(context.get_value_type(resty), None)
        n_items = shape[used]
        for length in shape[used + 1 :]:
            n_items = block.mul(n_items, length)
        view = block.insert_value(view, n_items, N_ITEMS)
        view = block.insert_value(view, block.extract_value(array, ITEM_SIZE), ITEM_SIZE)
        view = block.insert_value(view, place, DATA)
        for axis in range(used, kind.ndim):
            view = block.insert_value(view, shape[axis], [SHAPE, axis - used])
            stride = block.extract_value(array, [STRIDES, axis])
            view = block.insert_value(view, stride, [STRIDES, axis - used])
        return view

    def _set_element(self, inst: Any) -> bool:
        """Write a number to an element of an array; return whether it was one."""
        index = inst.index_var if isinstance(inst, _ir.StaticSetItem) else inst.index
        kind, own = self.typeof(inst.target.name), self.typeof(inst.value.name)
        if (
            index is None
            or not isinstance(kind, _types.Array)
            or not isinstance(own, (_types.Number, _types.Boolean))
        ):
            return False
        index_kind = self.typeof(index.name)
        if (len(index_kind) if isinstance(index_kind, _types.BaseTuple) else 1) != kind.ndim:
            return False
        found = self._place(kind, self.loadvar(inst.target.name), index)
        if found is None:
            return False
        context, block = self.context, self.builder
        value = context.cast(block, self.loadvar(inst.value.name), own, kind.dtype)
        align = None if kind.aligned else 1
        context.pack_value(block, kind.dtype, value, found[0], align=align)
        return True
