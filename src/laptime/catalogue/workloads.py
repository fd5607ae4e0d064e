"""The workloads that come with laptime."""

from __future__ import annotations

from laptime.catalogue.entries import Preset, WorkloadEntry

_CLASSIFIER = "it needs images of one size with one class each"
_MEAN = "its losses are means over the boxes of all images, and none is a photograph's own"
_ON_RANKS = "the detector's own parts are called one by one, past what wraps the net for several ranks"
_VALUES = "the detector's choices depend on values, so a step can be neither recorded nor compiled whole"
# What laptime's own data, which stand decoded in a store or are kept by resident, have no use for.
ONLY_OWN = "it is for a folder of your own training, and laptime's data are kept by resident"
# What is for trainings of the user's own that ask for micro batches.
AT_ONCE = "each batch goes through the net at once already"
_STORED = {"decoded": ONLY_OWN, "whole-batch": AT_ONCE}
_NOT_FOR_DETECTION = {
    **_STORED,
    **dict.fromkeys(("flip", "crop", "label-smoothing", "progressive-resizing"), _CLASSIFIER),
    "selective-backprop": _MEAN,
    **dict.fromkeys(("ddp", "flat-reduce", "dp"), _ON_RANKS),
    **dict.fromkeys(("graph", "compile", "compile-graphed"), _VALUES),
    "dead-taps": "its maps are large and of many sizes, so no tap of a kernel meets padding alone",
    "products": "its maps are larger than those that it computes as products",
    "large-batch": "photographs of several sizes in one batch are padded; fixed-shapes brings them to one",
    "evaluate-on-cpu": "a detector takes a second an image there",
    "decay": "its own optimizer settles the decay",
    "ema": "epochs of some hundred images are too short for its average",
}
# All that is for it, on either device.
_FULL_DETECTION = (
    *("parsed-once", "workers", "pinned", "cudnn-benchmark", "resident", "no-reads", "threads", "channels-last"),
    *(
        "fused-optimizer",
        "folded-norms",
        "gathered-rois",
        "tf32",
        "fp16",
        "bf16",
        "fixed-shapes",
        "keep-pages",
        "linear-decay",
        "lightning",
    ),
)

WORKLOADS: tuple[WorkloadEntry, ...] = (
    WorkloadEntry(
        name="cifar",
        title="CIFAR-10, ResNet-18",
        explanation="torchvision's ResNet-18 with one output a class, cross-entropy, accuracy; 32x32 images.",
        batch_size=32,
        learning_rate=1e-3,
        quality="accuracy",
        floor_over_chance=0.5,
        image_size=32,
        train_count=50_000,
        test_count=10_000,
        refused=_STORED,
        presets=(
            Preset(
                "quick",
                epochs=2,
                repeats=3,
                rungs=("dead-taps", "products"),
                warmup_steps=5,
                limit_train=2000,
                limit_test=1000,
            ),
            Preset("full", epochs=4, repeats=3, warmup_steps=50, parallel=True, ablation=True),
        ),
    ),
    WorkloadEntry(
        name="eurosat",
        title="EuroSAT, EfficientNet-B5",
        explanation="torchvision's EfficientNet-B5 with one output a class, cross-entropy, accuracy; tiles of land.",
        batch_size=1024,
        learning_rate=1e-3,
        quality="accuracy",
        floor_over_chance=0.5,
        image_size=64,
        train_count=21_600,
        test_count=5_400,
        workers=20,
        batch_on_several=2048,
        probe_batch=32,
        refused=_STORED,
        presets=(
            # B5 takes seconds for 32 images on two cores: enough for times, far too little to judge quality.
            Preset(
                "quick",
                epochs=2,
                repeats=2,
                rungs=(),
                warmup_steps=1,
                limit_train=32,
                limit_test=20,
                profiled_rungs=False,
            ),
            Preset(
                "full",
                epochs=2,
                repeats=3,
                warmup_steps=4,
                limit_train=4096,
                limit_test=1000,
                parallel=True,
                ablation=True,
            ),
        ),
    ),
    WorkloadEntry(
        name="detection",
        title="Objects in photographs, Faster R-CNN",
        explanation="Faster R-CNN ResNet-50-FPN, shorter sides of 192 pixels (--data PLACE#side=800), SGD; COCO's mAP.",
        batch_size=1,
        # The tutorials' 5e-3 is for pretrained weights: from scratch the loss is nan within 16 images (docs/log.md).
        # torchvision's reference has 0.02 for 16 images at once; this is its part for one.
        learning_rate=1.25e-3,
        quality="map50",
        floor_over_chance=0.3,
        image_size=192,
        train_count=32,
        test_count=8,
        workers=4,
        page_locked=True,
        # Those of torchvision's tutorial on fine-tuning a detector.
        sgd={"momentum": 0.9, "weight_decay": 5e-4},
        probe_batch=2,
        boxes=True,
        refused=_NOT_FOR_DETECTION,
        weights=("none", "imagenet", "coco"),
        presets=(
            # A step takes seconds for one photograph on two cores: enough for times, far too little to judge quality.
            Preset(
                "quick",
                epochs=2,
                repeats=2,
                rungs=("folded-norms", "gathered-rois"),
                warmup_steps=1,
                limit_train=2,
                limit_test=2,
                profiled_rungs=False,
            ),
            Preset("full", epochs=2, repeats=3, rungs=_FULL_DETECTION, warmup_steps=4, ablation=True),
        ),
    ),
)
