"""The rules: each reads signals and proposes, notes, abstains or is silent. What each promises: docs/advice.md."""

from __future__ import annotations

from laptime.advice.outcome import Rule
from laptime.advice.rules.attention import attention
from laptime.advice.rules.batch import batch_size, memory
from laptime.advice.rules.copies import created_on_cpu, pinned_copies, synchronisation
from laptime.advice.rules.cross_entropy import written_cross_entropy
from laptime.advice.rules.embeddings import dense_embeddings
from laptime.advice.rules.epoch import epoch_overhead, evaluation, first_batch, garbage_collection, worker_start
from laptime.advice.rules.gelu import written_gelu
from laptime.advice.rules.gradients import kept_gradients
from laptime.advice.rules.hot import hot_operator
from laptime.advice.rules.launches import compiling, launch_bound
from laptime.advice.rules.layout import channels_last, mixed_formats
from laptime.advice.rules.limits import near_the_roof, too_noisy
from laptime.advice.rules.loading import batch_transform, decoded, resident_data, workers
from laptime.advice.rules.model import bias_before_norm, dead_taps, precision
from laptime.advice.rules.norms import written_norms
from laptime.advice.rules.pages import memory_pages
from laptime.advice.rules.parallel import communication, data_parallel, small_messages, stragglers
from laptime.advice.rules.slices import written_slices
from laptime.advice.rules.stalls import driver_memory, recompiled
from laptime.advice.rules.threads import fewer_threads
from laptime.advice.rules.updates import optimizer, reads, zero_grad
from laptime.advice.rules.weights import weight_penalty

RULES: tuple[tuple[str, Rule], ...] = (
    ("too-noisy", too_noisy),
    ("near-the-roof", near_the_roof),
    ("workers", workers),
    ("resident-data", resident_data),
    ("decoded", decoded),
    ("batch-transform", batch_transform),
    ("worker-start", worker_start),
    ("first-batch", first_batch),
    ("pinned-copies", pinned_copies),
    ("synchronisation", synchronisation),
    ("created-on-cpu", created_on_cpu),
    ("launch-bound", launch_bound),
    ("batch-size", batch_size),
    ("precision", precision),
    ("channels-last", channels_last),
    ("mixed-formats", mixed_formats),
    ("dead-taps", dead_taps),
    ("optimizer", optimizer),
    ("zero-grad", zero_grad),
    ("bias-before-norm", bias_before_norm),
    ("kept-gradients", kept_gradients),
    ("evaluation", evaluation),
    ("reads", reads),
    ("threads", fewer_threads),
    ("compile", compiling),
    ("epoch-overhead", epoch_overhead),
    ("recompiled", recompiled),
    ("memory", memory),
    ("driver-memory", driver_memory),
    ("memory-pages", memory_pages),
    ("communication", communication),
    ("small-messages", small_messages),
    ("stragglers", stragglers),
    ("data-parallel", data_parallel),
    ("garbage-collection", garbage_collection),
    ("attention", attention),
    ("dense-embeddings", dense_embeddings),
    ("written-cross-entropy", written_cross_entropy),
    ("written-gelu", written_gelu),
    ("written-norms", written_norms),
    ("written-slices", written_slices),
    ("weight-penalty", weight_penalty),
    ("hot-operator", hot_operator),
)
