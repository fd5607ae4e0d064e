"""What nets of several kinds change in the steps: sequences, attention, embeddings, graphs, numbers in fp64."""

from __future__ import annotations

from laptime.records import OperatorRow, SliceRow


def row(name: str, ms: float, shapes: str = "", region: str = "backward", **more: object) -> OperatorRow:
    return OperatorRow(name=f"aten::{name}", self_ms=ms, calls=4, shapes=shapes, region=region, **more)


def only(*rows: OperatorRow) -> dict[str, object]:
    return {"operators": rows}


_PRODUCT = row("addmm", 40.0, "[64] [32, 64] [64, 64]", "forward", dtype="fp64")
PRECISION = (
    ({"bf16_gain": 1.3}, only(_PRODUCT)),
    (
        {"bf16_gain": 0.4},
        {"bf16_gain": None, "bf16_rates": 2.0},
        {"bf16_gain": 1.3, "precision": "bf16"},
        *(only(_PRODUCT.model_copy(update=c)) for c in ({"self_ms": 4.0}, {"dtype": "fp32"})),
    ),
)

_PLACES = "[32, 4, 128, 128]"
_OF_PAIRS = row("bmm", 9.0, "[128, 128, 16] [128, 16, 128]", "forward")
_SOFTMAX, _SCALED = row("_softmax", 6.0, _PLACES, "forward"), row("div", 9.0, _PLACES)
_DROPPED, _BIASED = row("bernoulli_", 20.0, _PLACES, "forward"), row("sum", 3.0, _PLACES)
_BY_HAND = row("exp", 6.0, _PLACES, "forward")
_IN_TORCH = row("_scaled_dot_product_attention_math", 1.0, "", "forward")
ATTENTION = (
    (
        only(_OF_PAIRS, _SOFTMAX, _SCALED),
        only(_OF_PAIRS, _SOFTMAX, _SCALED, _DROPPED),
        only(_IN_TORCH, _OF_PAIRS, _SOFTMAX, _DROPPED),
        only(_OF_PAIRS, _BY_HAND, _SCALED, _BIASED),
    ),
    (
        # Classes, little of it, a bias that is learnt, the fused kernel beside another kind, other products.
        only(_OF_PAIRS, row("_softmax", 20.0, "[32, 128]", "forward")),
        only(_OF_PAIRS, _SOFTMAX),
        only(_OF_PAIRS, _SOFTMAX, _SCALED, _BIASED),
        only(_OF_PAIRS, _BY_HAND, _SCALED, _BIASED, row("add", 3.0, f"{_PLACES} [4, 128, 128]", "forward")),
        only(_IN_TORCH, _OF_PAIRS, _SOFTMAX, _SCALED),
        only(row("bmm", 9.0, "[128, 128, 16] [128, 16, 64]", "forward"), _SOFTMAX, _SCALED),
    ),
)

_TABLE = "[100000, 16]"
_READ = row("embedding", 0.1, f"{_TABLE} [128]", "forward")
_ROOTS, _ZEROS = row("sqrt", 20.0, _TABLE, "optimizer"), row("fill_", 6.0, _TABLE)
EMBEDDINGS = (
    (only(_READ, _ROOTS, _ZEROS), only(_READ, _ZEROS)),
    (
        only(_READ, row("fill_", 4.0, _TABLE)),
        only(row("embedding", 0.1, f"{_TABLE} [128, 64]", "forward"), _ROOTS, _ZEROS),  # a third of the rows
        only(_ROOTS, _ZEROS),
        only(_READ, row("sqrt", 20.0, _TABLE, "forward")),
        # The head of a language model, which may be the table.
        only(_READ, _ROOTS, _ZEROS, row("mm", 9.0, "[128, 16] [16, 100000]", "forward")),
    ),
)

_SLICES = SliceRow(
    name="aten::select_backward",
    shapes="[64, 128, 64]",
    calls=128,
    slices=128,
    ms=40.0,
    parts_ms={"aten::fill_": 28.0, "aten::add_": 9.0, "aten::copy_": 3.0},
)
_FILLED = {"operators": (OperatorRow(name="aten::fill_", self_ms=30.0, calls=140),)}
_SLICES_CASES = (
    tuple({"slices": (_SLICES.model_copy(update=c),)} for c in ({}, {"within": "aten::lstm"}, {"slices": 4})),
    # Little, one place of each tensor, what torch's own attention takes; and fills that nobody wrote.
    tuple({**_FILLED, "slices": (_SLICES.model_copy(update=c),)} for c in ({"ms": 4.0}, {"slices": 1}, {"slices": 3})),
)
# 64 samples of up to 128 steps, in the mean a half and a sixth of that.
_PACKED = _SLICES.model_copy(update={"shapes": "[4096, 192]", "within": "aten::gru"})
_HALF, _SIXTH = (
    {"slices": (_PACKED,), "operators": (row("gru", 2.0, f"[{n}, 64] [128] [1, 64, 64] [192, 64]", "forward"),)}
    for n in (4096, 1365)
)
_LONG = {**_SIXTH, "slices": (_PACKED.model_copy(update={"within": "aten::lstm"}),)}
_WRITTEN = _SLICES.model_copy(update={"name": "CopySlices", "parts_ms": {"aten::copy_": 40.0}})
WRITES = (
    ({"slices": (_WRITTEN,)}, {"slices": (_WRITTEN.model_copy(update={"slices": 4}),)}),
    # Little, one place of each of many, parts that are read.
    (
        *({"slices": (_WRITTEN.model_copy(update=c),)} for c in ({"ms": 4.0}, {"slices": 1}, {"slices": 3})),
        {"slices": (_SLICES,)},
    ),
)

_KERNELS = "[256, 128, 3, 3]"
_CONVOLVED = row("mkldnn_convolution", 40.0, f"[32, 128, 8, 8] {_KERNELS}", "forward")
_LINEAR = row("addmm", 9.0, "[64] [32, 512] [512, 64]", "forward")
_ADDED_UP = row("sum", 4.0, _KERNELS, "forward")
_POWER, _TIMES = row("pow", 6.0, _KERNELS), row("mul", 6.0, f"{_KERNELS} {_KERNELS}")
WEIGHTS = (
    (
        only(_CONVOLVED, _LINEAR, _ADDED_UP, _POWER),
        only(_CONVOLVED, _ADDED_UP, _TIMES),
        only(_LINEAR, row("pow", 6.0, "[64, 512]"), row("sum", 4.0, "[64, 512]", "forward")),
    ),
    (
        # Little; nothing squared, as gradients are scaled; weights that are divided by a deviation; one layer of many.
        only(_CONVOLVED, _ADDED_UP, _POWER.model_copy(update={"self_ms": 0.9})),
        only(_CONVOLVED, _ADDED_UP.model_copy(update={"self_ms": 9.0}), row("mul", 9.0, _KERNELS)),
        only(_CONVOLVED, _POWER, _ADDED_UP, row("mean", 9.0, _KERNELS, "forward")),
        only(_CONVOLVED, _POWER, _ADDED_UP, row("div", 9.0, f"{_KERNELS} [256, 1, 1, 1]", "forward")),
        only(_CONVOLVED, _LINEAR, row("pow", 6.0, "[64, 512]"), row("sum", 3.0, "[64, 512]", "forward")),
        # Activations of the same shape; what the optimizer squares.
        only(
            row("addmm", 9.0, "[64] [64, 64] [64, 64]", "forward"),
            row("pow", 9.0, "[64, 64]"),
            row("sum", 3.0, "[64, 64]", "forward"),
        ),
        only(_CONVOLVED, _ADDED_UP, _POWER.model_copy(update={"region": "optimizer"})),
    ),
)

_HIDDEN = "[32, 128, 256]"
_CURVED, _CUBED = row("tanh", 4.0, _HIDDEN, "forward"), row("pow", 4.0, _HIDDEN)
_SCALED_BY = row("mul", 9.0, _HIDDEN).model_copy(update={"calls": 32})
GELU = (
    (
        only(_CURVED, _CUBED, _SCALED_BY),
        only(row("erf", 4.0, _HIDDEN, "forward"), row("mul", 9.0, f"{_HIDDEN} {_HIDDEN}")),
    ),
    (
        # Little of it; a squared error of a tanh; a gate; powers and tanh of other tensors.
        only(_CURVED, _CUBED, _SCALED_BY.model_copy(update={"self_ms": 1.0})),
        only(_CURVED, _CUBED, _SCALED_BY.model_copy(update={"calls": 4})),
        only(_CURVED, _SCALED_BY, row("mul", 9.0, f"{_HIDDEN} {_HIDDEN}")),
        only(_CURVED, _SCALED_BY, row("pow", 9.0, "[32, 128, 64]")),
        only(row("gelu", 20.0, _HIDDEN, "forward")),
    ),
)

_SCORES = "[256, 8000]"
_PICKED, _LOG = row("gather", 0.1, f"{_SCORES} [256, 1]", "forward"), row("log", 6.0, _SCORES, "forward")
_EXP, _ADDED = row("exp", 4.0, _SCORES, "forward"), row("sum", 1.0, _SCORES)
_NORMALIZED, _SHARES = row("div", 9.0, f"{_SCORES} [256, 1]"), row("_softmax", 9.0, _SCORES, "forward")
_BY_LABELS, _LABELS = row("mul", 9.0, f"{_SCORES} {_SCORES}"), row("scatter_", 0.1, f"{_SCORES} [256, 1]", "forward")
_LOGS = row("_log_softmax", 9.0, _SCORES, "forward")
CROSS_ENTROPY = (
    (
        only(_EXP, _ADDED, _NORMALIZED, _PICKED),
        only(_SHARES, _LOG),
        only(_SHARES, _LOG, _BY_LABELS, _LABELS),
        only(_LOGS, _BY_LABELS, _LABELS),
    ),
    (
        # Little of it; no place picked; scaled by a number; an entropy; no labels; torch's own loss; the optimizer.
        only(_SHARES, _LOG.model_copy(update={"self_ms": 4.0})),
        only(_EXP, _ADDED, _NORMALIZED),
        only(_SHARES, row("div", 9.0, _SCORES), _LOG.model_copy(update={"self_ms": 1.0})),
        only(_SHARES, _LOG, _BY_LABELS),
        only(_LOGS, _BY_LABELS),
        only(_LOGS, _BY_LABELS, _LABELS, row("nll_loss_forward", 0.1, f"{_SCORES} [256]", "forward")),
        only(_LOGS, _PICKED),
        only(_EXP, _ADDED, row("div", 9.0, f"{_SCORES} [1, 8000]"), _PICKED),
        only(_SHARES, _LOG.model_copy(update={"self_ms": 4.0}), row("div", 9.0, f"{_SCORES} {_SCORES}", "optimizer")),
    ),
)

_ROWS = "[32, 128, 1]"
_MEAN, _LESS, _ROOT = row("mean", 1.0, _HIDDEN), row("sub", 3.0, f"{_HIDDEN} {_ROWS}"), row("rsqrt", 0.1, _ROWS)
_OVER, _LEARNT = row("mul", 9.0, f"{_HIDDEN} {_ROWS}"), row("neg", 0.1, _HIDDEN)
_MAPS, _BY_CHANNEL = "[32, 64, 16, 16]", "[1, 64, 1, 1]"
_OF_MAPS = (
    row("mean", 1.0, _MAPS),
    row("sub", 4.0, f"{_MAPS} {_BY_CHANNEL}"),
    row("neg", 0.1, _MAPS),
    row("div", 9.0, f"{_MAPS} {_BY_CHANNEL}"),
)
NORMS = (
    (
        only(_MEAN, _LESS, _LEARNT, _ROOT, _OVER),
        only(row("sum", 1.0, _HIDDEN, chain=("aten::mean",)), _LESS, _LEARNT, _ROOT, _OVER),
        only(row("std", 2.0, _HIDDEN), _MEAN, _LESS, _LEARNT, _OVER),
        only(*_OF_MAPS, row("sqrt", 0.1, "[64]")),
    ),
    (
        # Little of it beside a residual; nothing subtracted, as RMSNorm; no root; no mean; parts that lie otherwise.
        only(
            _MEAN,
            _LESS,
            _LEARNT,
            _ROOT,
            _OVER.model_copy(update={"self_ms": 0.5}),
            row("add", 9.0, f"{_HIDDEN} {_HIDDEN}"),
        ),
        only(_MEAN, _LEARNT, _ROOT, _OVER),
        only(_MEAN, _LESS, _ROOT, _OVER),
        only(_MEAN, _LESS, _LEARNT, _OVER),
        only(_LESS, _LEARNT, _ROOT, _OVER),
        only(_MEAN, _LESS, _LEARNT, _ROOT, row("mul", 9.0, f"{_HIDDEN} [256]")),
        only(
            _MEAN,
            _LEARNT,
            row("sub", 9.0, f"{_HIDDEN} [32, 1, 256]"),
            _ROOT,
            row("mul", 9.0, f"{_HIDDEN} [32, 1, 256]"),
        ),
        only(*_OF_MAPS, row("sqrt", 0.1, "[64]", "optimizer")),
    ),
)

_GATHERED = row("_index_put_impl_", 40.0, "[1158, 64] [6948, 64]")
HOT = (
    (*_SLICES_CASES[0], _HALF, _LONG, only(_GATHERED)),
    # What the optimizer does is another rule's.
    (*_SLICES_CASES[1], _SIXTH, only(), only(row("sqrt", 60.0, "[64]", "optimizer"))),
)
NETS = (
    ("attention", ATTENTION),
    ("dense-embeddings", EMBEDDINGS),
    ("written-cross-entropy", CROSS_ENTROPY),
    ("written-gelu", GELU),
    ("written-norms", NORMS),
    ("written-slices", WRITES),
    ("weight-penalty", WEIGHTS),
)
