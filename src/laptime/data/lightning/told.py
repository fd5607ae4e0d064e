"""Optimizers and schedules that steps of a LightningModule ask for and only tell of: rates, logged or printed."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

# Methods of a module that give its optimizers and schedules, and attributes of its Trainer that do.
OF_MODULE = ("optimizers", "lr_schedulers")
OF_TRAINER = ("optimizers", "lr_scheduler_configs")
_TRAINER = "trainer"
# What tells: methods of the module itself, a function, methods of whatever logger.
_OWN_TELLING, _PRINT = ("log", "log_dict", "print"), "print"
_TELLING = ("log_metrics", "add_scalar", "add_scalars", "info", "debug", "warning")
# Calls that do nothing besides, through which a rate may go on its way there.
_SHAPING = ("float", "str", "round", "max", "min", "len", "enumerate", "zip", "list", "next", "iter", "isinstance")
_READING = (*OF_MODULE, "get_last_lr", "get", "items", "values", "keys")
# Expressions that hold what they are made of; in some it decides how often others are looked at.
_HOLDING = (
    *(ast.Attribute, ast.BinOp, ast.Dict, ast.FormattedValue, ast.JoinedStr, ast.List, ast.Tuple, ast.Starred),
    *(ast.keyword, ast.Compare, ast.UnaryOp),
)
_DECIDING = (ast.BoolOp, ast.ListComp, ast.DictComp, ast.GeneratorExp)


class Given(NamedTuple):
    """Where a value goes.

    Attributes:
        names: local ones that hold it, or are set where it decides.
        returned: whether a method gives it.
        used: whether something else is done with it.
    """

    names: tuple[str, ...] = ()
    returned: bool = False
    used: bool = False


_USED = Given(used=True)


class Body:
    """A method, with what of its own object it asks for.

    Args:
        method: its tree.
        own: what it calls its object.
    """

    def __init__(self, method: ast.FunctionDef, own: set[str]) -> None:
        self.name, self.own, self.nodes = method.name, own, list(ast.walk(method))
        self.above = {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}

    def asked(self, names: Mapping[str, object] | Sequence[str]) -> list[ast.Attribute]:
        """Where it asks its object for one of these."""
        found = (n for n in self.nodes if isinstance(n, ast.Attribute) and n.attr in names)
        return [n for n in found if isinstance(n.value, ast.Name) and n.value.id in self.own]

    def stepping(self) -> list[ast.Attribute]:
        """Where it asks for optimizers and schedules: the module's own methods, and its Trainer for them."""
        through = [n for n in self.asked((_TRAINER,)) if getattr(self.above[n], "attr", "") in OF_TRAINER]
        return [*self.asked(OF_MODULE), *through]

    def goes(self, source: ast.AST) -> Given:
        """Where a value goes, through all names that hold it."""
        known, returned, waiting = set[str](), False, [source]
        while waiting:
            found = self._goes(waiting.pop())
            if found.used:
                return _USED
            returned |= found.returned
            new = set(found.names) - known
            known |= new
            loads = (n for n in self.nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
            waiting += [n for n in loads if n.id in new]
        return Given(returned=returned)

    def _goes(self, node: ast.AST) -> Given:
        """Where it goes first."""
        names = Given()  # of the loops of expressions
        while True:
            below, node = node, self.above[node]
            if isinstance(node, ast.Call) and self._tells(node):
                return names
            if isinstance(node, ast.comprehension) and below is node.iter:
                names = _both(names, _named([node.target]))
            elif not self._holds(node, below):
                return _both(names, self._ends(node, below))

    def _holds(self, node: ast.AST, below: ast.AST) -> bool:
        if isinstance(node, ast.Call):
            return below is node.func or _is_shaping(node)
        if isinstance(node, ast.Subscript):
            return below is node.value and isinstance(node.ctx, ast.Load)
        if isinstance(node, ast.Attribute):
            return isinstance(node.ctx, ast.Load)
        if isinstance(node, _DECIDING):
            return _does_nothing(node)
        return isinstance(node, _HOLDING) or (isinstance(node, ast.IfExp) and below is not node.test)

    def _ends(self, node: ast.AST, below: ast.AST) -> Given:
        """Where a statement brings it."""
        if isinstance(node, ast.Return):
            return Given(returned=True)
        if isinstance(node, ast.If):
            return self._ruled(node)
        if isinstance(node, ast.For) and below is node.iter:
            return _both(_named([node.target]), self._ruled(node))
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and below is node.value:
            return _named(node.targets if isinstance(node, ast.Assign) else [node.target])
        return _USED

    def _ruled(self, node: ast.If | ast.For) -> Given:
        """Where what decides over statements goes by that."""
        found = Given()
        for statement in node.body + node.orelse:
            found = _both(found, self._set_by(statement))
        return found

    def _set_by(self, statement: ast.stmt) -> Given:
        """What a statement sets; used where it does more than that and tell."""
        if isinstance(statement, ast.Return):
            return Given(returned=True)
        if isinstance(statement, ast.Assign) and _does_nothing(statement.value):
            return _named(statement.targets)
        if isinstance(statement, ast.For | ast.If):
            return self._ruled(statement)
        value = statement.value if isinstance(statement, ast.Expr) else None
        tells = isinstance(value, ast.Call) and self._tells(value)
        given = [*value.args, *(k.value for k in value.keywords)] if tells and isinstance(value, ast.Call) else []
        return Given() if tells and all(map(_does_nothing, given)) else _USED

    def _tells(self, call: ast.Call) -> bool:
        function = call.func
        if isinstance(function, ast.Name):
            return function.id == _PRINT
        if not isinstance(function, ast.Attribute):
            return False
        mine = isinstance(function.value, ast.Name) and function.value.id in self.own
        return function.attr in (_OWN_TELLING if mine else _TELLING)


def _named(targets: Sequence[ast.expr]) -> Given:
    """The names among targets; used where something else is written to."""
    parts = [p for t in targets for p in (t.elts if isinstance(t, ast.Tuple | ast.List) else [t])]
    nested = [p for part in parts for p in (part.elts if isinstance(part, ast.Tuple) else [part])]
    names = [p.id for p in nested if isinstance(p, ast.Name)]
    return Given(tuple(names)) if len(names) == len(nested) else _USED


def _both(one: Given, other: Given) -> Given:
    return Given((*one.names, *other.names), one.returned or other.returned, one.used or other.used)


def _does_nothing(node: ast.AST) -> bool:
    """Whether it is the same how often something is looked at."""
    return all(_is_shaping(call) for call in ast.walk(node) if isinstance(call, ast.Call))


def _is_shaping(call: ast.Call) -> bool:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr in _READING
    return isinstance(call.func, ast.Name) and call.func.id in _SHAPING


def only_told(bodies: Sequence[Body], steps: Sequence[str]) -> Iterator[ast.Attribute]:
    """Where methods ask for optimizers or schedules and do nothing with them but tell of them.

    Args:
        bodies: of the methods that steps come through.
        steps: those that others call, whose value is no rate.
    """
    asked = [(body, node, body.goes(node)) for body in bodies for node in body.stepping()]
    giving = {body.name for body, _, where in asked if where.returned}
    while True:  # one that gives what another gives
        handed = [(b.name, n.attr, b.goes(n)) for b in bodies for n in b.asked(tuple(giving))]
        if (more := giving | {name for name, _, where in handed if where.returned}) == giving:
            break
        giving = more
    bad = set(steps) & giving | {called for _, called, where in handed if where.used}
    while more := {called for name, called, where in handed if where.returned and name in bad} - bad:
        bad |= more
    yield from (node for b, node, where in asked if not where.used and not (where.returned and b.name in bad))
