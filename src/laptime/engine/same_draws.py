"""What a user's net or loss draws (noise, time steps, a mixup's order) is the same on both sides of a comparison.

Left alone it would not be: what is drawn like an image in channels_last falls in the order of memory, so that each
value is another pixel's; a rank draws for its own samples what one process draws for others; a CPU may draw other
numbers in bf16 than in fp32; and a compiler's kernels draw numbers of their own.

So values are drawn in logical order and in fp32, and then rounded and laid out as asked for. A rank draws for the whole
batch and takes the values of its samples: which of a tensor's axes are the samples shows in the shapes that one process
has drawn. Of an order of samples (`torch.randperm`) each rank's part is shuffled by itself, on one process too, as
ranks mix no samples of others. The compiler takes torch's own generator (`drawn_by_torch`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import torch
from torch import Size, Tensor

from laptime.values.trees import mapped

Function = Callable[..., Any]
Replaced = tuple[Any, str, Function, Function]
Shapes = frozenset[tuple[int, ...]]

# By their first tensor's shape: it is what they draw, or what they draw from.
_LIKE = ("rand_like", "randn_like", "randint_like")
_FROM = ("bernoulli", "normal", "multinomial")
_IN_PLACE = (
    *("normal_", "uniform_", "bernoulli_", "exponential_", "random_"),
    *("log_normal_", "cauchy_", "geometric_"),
)
# By the shape that they are asked for, which is all they are given, or the last thing.
_SIZED = ("rand", "randn", "randint")
# On a CPU torch 2.11 draws other numbers of these in a short type than in fp32. In 2.15 they are the same but for
# uniform ones that would be rounded up to their bound: it gives the lower bound, which is across any threshold.
_UNIFORM = ("rand", "rand_like", "uniform_")
_BY_TYPE = (*_UNIFORM, "randn", "randn_like", "normal", "normal_")
_SHORT = (torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Part:
    """A rank's samples among those of a batch.

    Attributes:
        counts: samples of each rank.
        rank: whose; None where one process takes them all.
    """

    counts: tuple[int, ...]
    rank: int | None = None

    @property
    def all(self) -> int:
        """Samples of the batch."""
        return sum(self.counts)

    @property
    def firsts(self) -> tuple[int, ...]:
        """The place of each rank's first sample."""
        return tuple(accumulate(self.counts, initial=0))[:-1]


@dataclass(frozen=True)
class _Rows:
    """Where a rank's values are in a tensor that was drawn for all samples."""

    shape: Size
    axis: int
    first: int
    count: int

    def of(self, whole: Tensor) -> Tensor:
        return whole.narrow(self.axis, self.first, self.count)


@dataclass(frozen=True)
class Draws:
    """How one side draws.

    Attributes:
        seen: the shapes that one process has drawn in this step.
        part: the samples of this side, where a comparison has ranks.
        told: gets the shapes that are drawn, where somebody asks for them.
    """

    seen: Shapes = frozenset()
    part: Part | None = None
    told: set[tuple[int, ...]] | None = field(default=None, compare=False)

    def replaced(self) -> list[Replaced]:
        """By whom, under which name, torch's functions that draw are known, and what stands for them."""
        ways = (
            *((torch, name, self._like) for name in _LIKE),
            *((torch, name, self._from) for name in _FROM),
            *((Tensor, name, self._from) for name in ("bernoulli", "multinomial")),
            *((Tensor, name, self._in_place) for name in _IN_PLACE),
            *((torch, name, self._sized) for name in _SIZED),
            (torch, "randperm", self._order),
        )
        found = []
        for owner, name, way in ways:
            draw = getattr(owner, name)
            found.append((owner, name, draw, _rounded(way(draw), name) if name in _BY_TYPE else way(draw)))
        return found

    def _like(self, draw: Function) -> Function:
        def drawn(like: Tensor, *args: Any, **kwargs: Any) -> Any:
            rows = self._rows(like.shape)
            if rows is None and like.is_contiguous():
                return draw(like, *args, **kwargs)
            return _laid_out(_part_of(draw(_empty(like, rows), *args, **kwargs), rows), like)

        return drawn

    def _from(self, draw: Function) -> Function:
        def drawn(*args: Any, **kwargs: Any) -> Any:
            given = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor) and value.dim()]
            if not given:
                return (
                    self._sized(draw)(*args, **kwargs) if "size" in kwargs or len(args) > 2 else draw(*args, **kwargs)
                )
            rows = self._rows(given[0].shape)
            args, kwargs = mapped((args, kwargs), lambda value: _for_all(value, given[0].shape, rows))
            return _laid_out(_part_of(draw(*args, **kwargs), rows), given[0])

        return drawn

    def _in_place(self, draw: Function) -> Function:
        def drawn(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
            rows = self._rows(tensor.shape)
            if rows is None and tensor.is_contiguous():
                return draw(tensor, *args, **kwargs)
            args, kwargs = mapped((args, kwargs), lambda value: _for_all(value, tensor.shape, rows))
            return tensor.copy_(_part_of(draw(_empty(tensor, rows), *args, **kwargs), rows))

        return drawn

    def _sized(self, draw: Function) -> Function:
        size_alone = draw in (torch.rand, torch.randn)

        def drawn(*args: Any, **kwargs: Any) -> Any:
            asked = {name: value for name, value in kwargs.items() if name not in ("device", "generator", "out")}
            rows = self._rows(draw(*args, **asked, device="meta").shape)  # which draws nothing
            if rows is None:
                return draw(*args, **kwargs)
            if "size" in kwargs:
                return rows.of(draw(*args, **{**kwargs, "size": rows.shape}))
            return rows.of(draw(*(() if size_alone else args[:-1]), rows.shape, **kwargs))

        return drawn

    def _order(self, draw: Function) -> Function:
        def drawn(count: int, *args: Any, **kwargs: Any) -> Any:
            self._tell((count,))
            part = self.part
            if part is None or count != (part.all if part.rank is None else part.counts[part.rank]):
                return draw(count, *args, **kwargs)
            if part.rank is not None and (part.all,) not in self.seen:
                return draw(count, *args, **kwargs)
            orders = [draw(own, *args, **kwargs) for own in part.counts]
            if part.rank is not None:
                return orders[part.rank]
            return torch.cat([order + first for order, first in zip(orders, part.firsts, strict=True)])

        return drawn

    def _tell(self, shape: tuple[int, ...]) -> None:
        if self.told is not None:
            self.told.add(shape)

    def _rows(self, shape: Size) -> _Rows | None:
        """Where in what one process draws the values are that a rank wants; None where it draws the same."""
        self._tell(tuple(shape))
        part = self.part
        if part is None or part.rank is None or tuple(shape) in self.seen:
            return None
        own, before = part.counts[part.rank], part.firsts[part.rank]
        for axis, size in enumerate(shape):
            each, left = divmod(size, own)  # values of a sample that lie one behind the other
            whole = (*shape[:axis], each * part.all, *shape[axis + 1 :])
            if not left and whole in self.seen:
                return _Rows(Size(whole), axis, each * before, size)
        return None


def _rounded(draw: Function, name: str) -> Function:
    """Draws numbers of a short type in fp32, and rounds them."""

    def drawn(*args: Any, **kwargs: Any) -> Any:
        given = next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)
        kind = kwargs.get("dtype") or (torch.get_default_dtype() if given is None else given.dtype)
        if kind not in _SHORT or kwargs.get("out") is not None:
            return draw(*args, **kwargs)
        named = {key: _widened(value) for key, value in kwargs.items() if key != "requires_grad"}
        if given is None or "dtype" in kwargs:
            named["dtype"] = torch.float32
        values = draw(*(_widened(value) for value in args), **named)
        if name in _UNIFORM:
            bound = kwargs.get("to", args[2] if name == "uniform_" and len(args) > 2 else 1.0)
            values = values.clamp(max=bound - abs(bound) * torch.finfo(kind).eps / 2)  # the last number below it
        if name.endswith("_"):
            return args[0].copy_(values)
        values = values.to(kind)
        return values.requires_grad_() if kwargs.get("requires_grad") else values

    return drawn


def _widened(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) else value


def _empty(like: Tensor, rows: _Rows | None) -> Tensor:
    """Room for values in logical order."""
    return torch.empty(like.shape if rows is None else rows.shape, dtype=like.dtype, device=like.device)


def _part_of(whole: Tensor, rows: _Rows | None) -> Tensor:
    return whole if rows is None else rows.of(whole)


def _for_all(given: Tensor, shape: Size, rows: _Rows | None) -> Tensor:
    """What values are drawn from, by axes; for all samples with ones (a probability, a width) for those of others."""
    if given.shape != shape:
        return given
    if rows is None:
        return given.contiguous()
    whole = torch.ones(rows.shape, dtype=given.dtype, device=given.device)
    rows.of(whole).copy_(given)
    return whole


def _laid_out(values: Tensor, like: Tensor) -> Tensor:
    """Values in the memory format of a tensor of their shape."""
    if values.shape != like.shape or like.is_contiguous():
        return values
    laid = torch.empty_like(like, dtype=values.dtype, device=values.device).copy_(values)
    return laid.requires_grad_() if values.requires_grad else laid


@contextmanager
def drawn_by_torch() -> Iterator[None]:
    """Within it the compiler's kernels take their random numbers from torch's generators, as without a compiler."""
    from torch._inductor import config  # takes seconds

    with config.patch(fallback_random=True):
        yield
