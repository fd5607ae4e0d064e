"""Gates made of given times, and machines that train by the book."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable, Sequence

from laptime.gate.conclude import conclude
from laptime.gate.policy import make_policy
from laptime.gate.process import Trained
from laptime.gate.records import GateRecord, PairRecord, PolicyRecord, ProcessRecord, SideInfo
from laptime.gate.runner import Gate, Told
from laptime.records import Machine

WORKED = (0.128, 0.097, 0.141, 0.109)


def process(side: str, seed: int, epoch_s: float, **changes) -> ProcessRecord:
    fields = {
        "side": side,
        "seed": seed,
        "epoch_s": (epoch_s * 0.99, epoch_s, epoch_s * 1.3),
        "samples": (2000, 2000, 2000),
        "wall_s": 3 * epoch_s + 4,
        "started_at": 1_700_000_000.0 + 100 * seed,
        "spec": "a" * 16,
        "data": "d" * 16,
        "hardware": "a CPU, 2 cores, 8 GiB",
        "startup_s": 3.0,
        "step_ms": epoch_s * 10,
        "peak_memory_mib": 900.0,
        "test_accuracy": 0.5 + 0.001 * seed,
        "parts_s": {"data": 0.2 * epoch_s, "forward": 0.3 * epoch_s, "backward": 0.5 * epoch_s},
    }
    return ProcessRecord(**{**fields, **changes})


def pairs(log_ratios: Sequence[float], **head) -> tuple[PairRecord, ...]:
    return tuple(
        PairRecord(
            number=i,
            order="AB" if i % 2 else "BA",
            seed=i - 1,
            base=process("base", i - 1, 2.0),
            head=process("head", i - 1, 2.0 * math.exp(d), **head),
        )
        for i, d in enumerate(log_ratios, start=1)
    )


def gate(log_ratios: Sequence[float] = WORKED, noise: float | None = 0.031, **changes) -> GateRecord:
    fields = {
        "id": "20260102-030405-gate-cifar-0a1b",
        "workload": "cifar",
        "variant": "cpu-baseline+resident",
        "base": SideInfo(ref="main", sha="b" * 40, folder="/tmp/base"),
        "head": SideInfo(ref="HEAD", sha="c" * 40, folder="/tmp/head", dirty=True),
        "noise": noise,
        "noise_source": "24 earlier pairs",
        "fingerprint": "f" * 16,
        "machine": Machine(cpu="a CPU", cores=2, memory_gib=8),
        "limit_train": 2000,
        "notices": ("head is gated with changes that are not committed.",),
        "pairs": pairs(log_ratios),
        "started_at": 1_700_000_000.0,
        "ended_at": 1_700_000_300.0,
        "status": "done",
    }
    record = GateRecord(**{**fields, **changes})
    return record.model_copy(update={"outcome": conclude(record)})


class Machinery:
    """Trains by the book: times are a function of side and seed, and the clock is what they add up to."""

    def __init__(self, log_ratio: Callable[[int], float], flags: dict[int, tuple[str, ...]] | None = None, **head):
        self.log_ratio, self.flags, self.head = log_ratio, dict(flags or {}), head
        self.calls: list[tuple[str, int]] = []
        self.together: list[tuple[str, str, int]] = []
        self.takes_turns: tuple[str, ...] = ()
        self.clash: Exception | None = None
        self.said: list[str] = []
        self.saved: list[GateRecord] = []
        self.now = 0.0

    def train(self, side: str, seed: int) -> Trained:
        self.calls.append((side, seed))
        epoch_s = 4.0 * (math.exp(self.log_ratio(seed)) if side == "head" else 1.0)
        made = process(side, seed, epoch_s, wall_s=20.0, **(self.head if side == "head" else {}))
        self.now += 20.0
        flags = self.flags.pop(len(self.calls), ())
        turns = side in self.takes_turns
        return Trained(process=made, machine=Machine(cpu="a CPU"), flags=flags, by_turns=turns, memory_mib=900.0)

    def both(self, first: str, second: str, seed: int) -> tuple[Trained, Trained]:
        self.together.append((first, second, seed))
        if self.clash is not None and len(self.together) == 2:
            raise self.clash
        found = self.train(first, seed), self.train(second, seed)
        flags = tuple(flag for each in found for flag in each.flags)
        one, other = (each.model_copy(update={"flags": flags, "together_s": 33.0}) for each in found)
        return one, other

    def gate(self, noise: float | None = 0.03, budget_s: float = 900.0, max_pairs: int = 24, **more) -> Gate:
        rule = make_policy(0.1, max_pairs)
        record = GateRecord(
            id="x", workload="w", policy=PolicyRecord(looks=rule.looks), budget_s=budget_s, started_at=1.0
        )
        return Gate(
            record=record,
            train=self.train,
            by_turns=self.both,
            noise=lambda _: (noise, "given" if noise else "7 earlier pairs of this fingerprint, 20 are needed"),
            fingerprint=lambda trained: "turns" if trained.by_turns else "f",
            told=Told(self.said.append, self.saved.append, lambda: self.now),
            **more,
        )


def in_repository(folder):
    """A function that runs git in a repository that it has made there."""

    def git(*arguments: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
        return subprocess.run(
            ["git", "-C", str(folder), *who, *arguments], capture_output=True, text=True, check=True
        ).stdout.strip()

    git("init", "-q", "-b", "main")
    return git
