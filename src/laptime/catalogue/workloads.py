"""The workloads that come with laptime."""

from __future__ import annotations

from laptime.entries import Preset, WorkloadEntry

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
        probe_batch=32,
        presets=(
            # B5 takes seconds for 32 images on two cores: enough for times, far too little to judge quality.
            Preset(
                "quick",
                epochs=2,
                repeats=2,
                rungs=("dead-taps", "products"),
                warmup_steps=1,
                limit_train=32,
                limit_test=20,
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
)
