"""How a kernel is written in LLVM's representation: with few words, for what kernels do most.

Numba writes an array in full, into memory and out of it, wherever an element is read, and keeps in
memory each variable that more than one block uses; LLVM takes all of that out again. Here a
variable that is assigned once stays a value, or the parts that it is made of, and elements, rows,
slices, shapes, loops and arithmetic are a few instructions each, the ones that numba's come down
to. All else is left to numba.
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
_minmax: Any = importlib.import_module("numba.cpython.builtins").do_minmax
_types: Any = importlib.import_module("numba.core.types")

I32, I64 = _llvm.IntType(32), _llvm.IntType(64)
# Parts of an array as numba lays it out.
N_ITEMS, ITEM_SIZE, DATA, SHAPE, STRIDES = 2, 3, 4, 5, 6
ATTRIBUTES = {"size": N_ITEMS, "shape": SHAPE}
# Where a slice ends that says nothing of it, as numba writes it.
OPEN = 2**63 - 1
# What LLVM reads of a loop.
NOT_UNROLLED, VECTORISED = "llvm.loop.unroll.runtime.disable", "llvm.loop.vectorize.enable"
VECTORS = "llvm.loop.interleave.count"  # in a turn, where there are vectors
# Whose code is the same whether an operand is a constant.
ARITHMETIC = {
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod),
    *(operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift),
    *(operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge),
}
# Whose result is not below 0 where no operand is.
NATURAL = {
    *(operator.add, operator.mul, operator.floordiv, operator.mod, operator.rshift),
    *(operator.and_, operator.or_, operator.xor),
}
# How the least and the greatest of numbers compare.
EXTREMES = {min: operator.lt, max: operator.gt}
# What numba finds for an operation on numbers, which it looks up among all that has its name.
_FOUND: dict[Any, Any] = {}


class Builder(_llvm.IRBuilder):  # type: ignore[misc]
    """Writes instructions, none of which takes out what another has put in."""

    def __init__(self, block: Any) -> None:
        super().__init__(block)
        self.packed: list[Any] = []

    def extract_value(self, agg: Any, idx: Any, name: str = "") -> Any:
        """Return a member of an aggregate."""
        wanted = list(idx) if isinstance(idx, (list, tuple)) else [idx]
        while isinstance(agg, _llvm.instructions.InsertValue):
            put = list(agg.indices)
            if wanted[: len(put)] == put:
                agg, wanted = agg.value, wanted[len(put) :]
                if not wanted:
                    return agg
            elif put[: len(wanted)] == wanted:
                break  # a part of what is wanted
            else:
                agg = agg.aggregate
        return super().extract_value(agg, wanted, name)

    def insert_value(self, agg: Any, value: Any, idx: Any, name: str = "") -> Any:
        """Return an aggregate with another member."""
        self.packed.append(super().insert_value(agg, value, idx, name))
        return self.packed[-1]


class KernelLower(_lowering.Lower):  # type: ignore[misc]
    """Writes a function that owns nothing: its variables are not counted, and need not end."""

    def init(self) -> None:
        """Make room for what is known of variables."""
        super().init()
        self._parts: dict[str, list[Any]] = {}
        # Whole numbers that are not below 0, by identity: as indices they count from the begin.
        self._natural: dict[int, Any] = {}
        function = self.func_ir.func_id.func
        self._unrolled, self._scalar = hasattr(function, "unrolled"), hasattr(function, "scalar")

    def setup_function(self, fndesc: Any) -> None:
        """Begin the function."""
        super().setup_function(fndesc)
        self.builder = Builder(self.entry_block)
        self.call_helper = self.call_conv.init_call_helper(self.builder)

    def post_lower(self) -> None:
        """Take out aggregates that nothing uses, half a dozen instructions for each argument."""
        super().post_lower()
        packs, blocks = _llvm.instructions.InsertValue, self.function.blocks
        used = {
            id(each)
            for block in blocks
            for inst in block.instructions
            if not isinstance(inst, packs)
            for each in (*inst.operands, *(value for value, _ in getattr(inst, "incomings", ())))
        }
        for inst in reversed(self.builder.packed):
            if id(inst) in used:
                used.update(map(id, inst.operands))
        for block in blocks:
            block.instructions = [
                inst
                for inst in block.instructions
                if not isinstance(inst, packs) or id(inst) in used
            ]

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
            if kept and (parts := self._parts_of(self.typeof(name), value)) is not None:
                self._parts[name] = parts
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

        What it knows of some processors has it write up to eight bodies, of vectors four, a third
        of the time that machine code takes, for loops that are as fast with one;
        `dispatch.unrolled` is for those that are not. Loops of a constant number of turns are
        unrolled all the same.
        """
        module = self.module
        said = [module.add_metadata([_llvm.MetaDataString(module, NOT_UNROLLED)])]
        name, number = (VECTORISED, _llvm.IntType(1)(0)) if self._scalar else (VECTORS, I32(1))
        said.append(module.add_metadata([_llvm.MetaDataString(module, name), number]))
        loop = _llvm.values.MDValue(module, (), name=str(len(module.metadata)))
        loop.operands = loop, *said  # what is said of one loop names itself first
        jump.set_metadata("llvm.loop", loop)

    def loadvar(self, name: str) -> Any:
        """Return the value of a variable."""
        if name in self._blk_local_varmap:
            return self._blk_local_varmap[name]
        if name in self._parts:  # written where it is used: mostly its parts are
            return self._whole(self.typeof(name), self._parts[name])
        return self.builder.load(self.getvar(name))

    def _whole(self, kind: Any, parts: list[Any]) -> Any:
        """Return the value that is made of parts, some of which may have parts themselves."""
        if not isinstance(kind, _types.BaseTuple):
            made = self.context.get_value_type(kind)
            return _cgutils.make_anonymous_struct(self.builder, parts, made)
        values = [
            self._whole(each, part) if isinstance(part, list) else part
            for each, part in zip(kind, parts, strict=True)
        ]
        return self.context.make_tuple(self.builder, kind, values)

    def _parts_of(self, kind: Any, value: Any) -> list[Any] | None:
        """Return the parts of a tuple, slice, range, loop over one, or turn of it; else None."""
        if isinstance(value, _ir.Var):
            return self._parts.get(value.name) if self.typeof(value.name) == kind else None
        if not isinstance(value, _ir.Expr):
            return None
        if value.op == "build_tuple":
            return [
                self._parts[item.name]
                if item.name in self._parts and self.typeof(item.name) == own
                else self._cast_var(item, own)
                for item, own in zip(value.items, kind, strict=True)
            ]
        if value.op == "call" and isinstance(kind, (_types.RangeType, _types.SliceType)):
            return self._limits(kind, value)
        if value.op in ("getiter", "iternext") and value.value.name in self._parts:
            of, parts = self.typeof(value.value.name), self._parts[value.value.name]
            if value.op == "iternext":
                return self._next(*parts)
            if not isinstance(of, _types.RangeType):
                return None
            # Where a step can be 0, numba looks whether it is.
            if isinstance(parts[2], _llvm.Constant) and parts[2].constant:
                return self._begin(*parts)
        return None

    def _limits(self, kind: Any, call: Any) -> list[Any] | None:
        """Return start, stop and step of a range, or of a slice whose step is 1."""
        signature = self.fndesc.calltypes[call]
        if signature.return_type != kind or call.vararg or call.kws:
            return None
        own = kind.dtype if isinstance(kind, _types.RangeType) else _types.intp
        given = [
            None if each == _types.none else self._cast_var(argument, own)
            for argument, each in zip(call.args, signature.args, strict=True)
        ]
        if len(given) == 1:
            given = [None, *given]
        defaults = (self.context.get_constant(own, number) for number in (0, OPEN, 1))
        limits = [
            default if limit is None else limit
            for limit, default in zip([*given, None][:3], defaults, strict=True)
        ]
        return limits if isinstance(kind, _types.RangeType) or not kind.has_step else None

    def _begin(self, start: Any, stop: Any, step: Any) -> list[Any]:
        """Return where a loop has its index and its turns left, with the begin and the step."""
        block, (zero, one) = self.builder, (start.type(0), start.type(1))
        index, left = self._room(start.type), self._room(start.type)
        block.store(start, index)
        block.store(zero, left)
        span = block.sub(stop, start)
        ahead = block.icmp_signed(">", span, zero)
        # A branch tells LLVM more of the loop than a choice between two numbers does.
        with block.if_then(block.icmp_unsigned("==", ahead, ahead.type(step.constant > 0))):
            turns = span
            if step.constant != 1:
                rest = block.srem(span, step)
                more = block.icmp_signed(">", block.select(ahead, rest, block.neg(rest)), zero)
                turns = block.add(block.sdiv(span, step), block.select(more, one, zero))
            block.store(turns, left)
        return [index, start, step, left]

    def _next(self, index: Any, start: Any, step: Any, left: Any) -> list[Any]:
        """Return the index of the next turn of a loop, and whether there is one."""
        block = self.builder
        turns, value = block.load(left), block.load(index)
        another = block.icmp_signed(">", turns, turns.type(0))
        with block.if_then(another):
            block.store(block.sub(turns, turns.type(1), flags=["nsw"]), left)
            block.store(block.add(value, step), index)
        if self._is_natural(start) and self._is_natural(step):
            self._make_natural(value)
        return [value, another]

    def _is_natural(self, value: Any) -> bool:
        """Return whether a whole number is known not to be below 0."""
        if isinstance(value, _llvm.Constant):
            return isinstance(value.constant, int) and value.constant >= 0
        return id(value) in self._natural

    def _make_natural(self, value: Any) -> Any:
        """Return a whole number, which is not below 0."""
        self._natural[id(value)] = value
        return value

    def _room(self, kind: Any) -> Any:
        """Return room in memory, that is written before it is read."""
        with self.builder.goto_entry_block():
            return self.builder.alloca(kind)

    def lower_expr(self, resty: Any, expr: Any) -> Any:
        """Write an expression."""
        if expr.op == "getattr" and expr.attr in ATTRIBUTES:
            kind = self.typeof(expr.value.name)
            if isinstance(kind, _types.Array) and not isinstance(resty, _types.BoundFunction):
                array = self.loadvar(expr.value.name)
                made = self.builder.extract_value(array, ATTRIBUTES[expr.attr])
                return self._make_natural(made) if expr.attr == "size" else made
        elif expr.op == "getitem":
            found = self._element(resty, expr.value, expr.index)
            if found is not None:
                return found
        elif expr.op == "static_getitem" and expr.index_var is not None:
            found = self._element(resty, expr.value, expr.index_var)
            if found is not None:
                return found
        elif expr.op in ("pair_first", "pair_second") and expr.value.name in self._parts:
            return self._parts[expr.value.name][expr.op == "pair_second"]
        elif expr.op == "call":
            function: Any = getattr(self.typeof(expr.func.name), "typing_key", None)
            extreme = EXTREMES.get(function)
            kinds = self.fndesc.calltypes[expr].args
            if extreme is not None and all(isinstance(kind, _types.Number) for kind in kinds):
                values = map(self._cast_var, expr.args, kinds)
                return _minmax(self.context, self.builder, kinds, list(values), extreme)
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
        if (found := _FOUND.get((op, signature.args))) is None:
            function = context.typing_context.resolve_value_type(op)
            called = function.get_call_type(context.typing_context, signature.args, {})
            found = context.get_function(function, called)._imp, called
            _FOUND[op, signature.args] = found
        made = found[0](context, block, found[1], operands, loc=None)
        # Sums and products without sign may be meant to overflow.
        own = signature.return_type
        if op in NATURAL and getattr(own, "signed", False) and all(map(self._is_natural, operands)):
            self._make_natural(made)
        return context.cast(block, made, signature.return_type, resty)

    def _indices(self, array: Any, index: Any) -> list[tuple[Any, Any]] | None:
        """Return the numbers and slices of an index, with their types; None if it has others."""
        kind = self.typeof(index.name)
        if isinstance(kind, _types.BaseTuple):
            kinds, values = list(kind), self._parts.get(index.name)
            if values is None:
                values = _cgutils.unpack_tuple(self.builder, self.loadvar(index.name), len(kinds))
        else:
            kinds, values = [kind], [self._parts.get(index.name) or self.loadvar(index.name)]
        if len(kinds) > array.ndim or not all(
            isinstance(each, _types.SliceType if isinstance(value, list) else _types.Integer)
            for each, value in zip(kinds, values, strict=True)
        ):
            return None
        return list(zip(values, kinds, strict=True))

    def _place(self, kind: Any, array: Any, index: Any) -> tuple[Any, list[Any], list[Any]] | None:
        """Return where what is indexed begins, and the lengths and strides of the axes it has."""
        if _config.BOUNDSCHECK or not isinstance(kind, _types.Array) or kind.layout != "C":
            return None
        indices = self._indices(kind, index)
        if indices is None:
            return None
        block = self.builder
        at = None
        shape, strides = [], []
        for axis in range(kind.ndim):
            length = block.extract_value(array, [SHAPE, axis])
            if at is not None:
                at = block.mul(at, length)
            if axis < len(indices):
                value, own = indices[axis]
                if not isinstance(value, list):
                    begin = self._counted(value, own, length)
                else:
                    begin, length = self._span(value[0], value[1], length)
                at = begin if at is None else block.add(at, begin)
                if not isinstance(value, list):
                    continue
            shape.append(length)
            strides.append(block.extract_value(array, [STRIDES, axis]))
        return block.gep(block.extract_value(array, DATA), [at]), shape, strides

    def _span(self, start: Any, stop: Any, length: Any) -> tuple[Any, Any]:
        """Return where a slice begins, and its length."""
        block = self.builder
        begin, end = self._clamped(start, length), self._clamped(stop, length)
        own = block.sub(end, begin)
        return begin, block.select(block.icmp_signed("<=", own, I64(0)), I64(0), own)

    def _clamped(self, limit: Any, length: Any) -> Any:
        """Return the limit of a slice within the length of its axis."""
        if isinstance(limit, _llvm.Constant) and limit.constant in (0, OPEN):
            return limit if limit.constant == 0 else length
        block = self.builder
        at = least = self._counted(limit, _types.intp, length)
        if not self._is_natural(limit):
            least = block.select(block.icmp_signed("<", at, I64(0)), I64(0), at)
        return block.select(block.icmp_signed(">=", at, length), length, least)

    def _counted(self, value: Any, kind: Any, length: Any) -> Any:
        """Return an index as a word, from the end if it is below 0."""
        block, natural = self.builder, self._is_natural(value)
        if value.type.width > 64:
            value = block.trunc(value, I64)
        elif value.type.width < 64:
            value = (block.sext if kind.signed else block.zext)(value, I64)
        if not kind.signed or natural:
            return value
        if isinstance(value, _llvm.Constant):
            return block.add(value, length)
        below = block.icmp_signed("<", value, I64(0))
        return block.select(below, block.add(value, length), value)

    def _element(self, resty: Any, value: Any, index: Any) -> Any:
        """Return an element, a row or a slice of an array; None where it is left to numba."""
        kind = self.typeof(value.name)
        if not isinstance(kind, _types.Array):
            return None
        array = self.loadvar(value.name)
        found = self._place(kind, array, index)
        if found is None:
            return None
        place, shape, strides = found
        context, block = self.context, self.builder
        if not shape:
            made = context.unpack_value(block, kind.dtype, place, align=None if kind.aligned else 1)
            return context.cast(block, made, kind.dtype, resty)
        view = _llvm.Constant(context.get_value_type(resty), None)
        n_items = shape[0]
        for length in shape[1:]:
            n_items = block.mul(n_items, length)
        view = block.insert_value(view, n_items, N_ITEMS)
        view = block.insert_value(view, block.extract_value(array, ITEM_SIZE), ITEM_SIZE)
        view = block.insert_value(view, place, DATA)
        for axis, (length, stride) in enumerate(zip(shape, strides, strict=True)):
            view = block.insert_value(view, length, [SHAPE, axis])
            view = block.insert_value(view, stride, [STRIDES, axis])
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
        found = self._place(kind, self.loadvar(inst.target.name), index)
        if found is None or found[1]:
            return False
        context, block = self.context, self.builder
        value = context.cast(block, self.loadvar(inst.value.name), own, kind.dtype)
        align = None if kind.aligned else 1
        context.pack_value(block, kind.dtype, value, found[0], align=align)
        return True
