"""What comparisons of one training step with the baseline's have found."""

from __future__ import annotations

from laptime.records.base import Readable


class RecordingCheck(Readable):
    """A replay of a recorded training step beside the same step without the recording, from one state on one batch.

    Attributes:
        loss_error: |loss - loss0| / |loss0|, of a loss near zero over 0.1.
        moved: what the two steps moved farthest apart: `parameters`, `buffers` or a state of the optimizer.
        error: ||d - d0|| / ||d0||, where d is how far the replay moved all of it together.
    """

    loss_error: float
    loss_tolerance: float
    moved: str
    error: float
    tolerance: float

    @property
    def passed(self) -> bool:
        """Whether both are within what is allowed; not a number is not."""
        return self.loss_error <= self.loss_tolerance and self.error <= self.tolerance

    def findings(self) -> str:
        """Both errors beside what is allowed, in words."""
        return (
            f"the recorded step is off from the same step without the recording by {self.loss_error:.2g} in the loss "
            f"(tolerance {self.loss_tolerance:.2g}) and by {self.error:.2g} in {self.moved} "
            f"(tolerance {self.tolerance:.2g})"
        )


class PiecesCheck(Readable):
    """A variant's training step beside the baseline's in fp32, cut at its BatchNorms.

    Each piece begins from the baseline's own values, forward and backward, so that nothing is enlarged from layer to
    layer.

    Attributes:
        loss_error: |loss - baseline| / |baseline|.
        gradient_error: ||g - g0|| / ||g0|| over all parameters.
        place: the value at a cut or the parameter's gradient that is farthest off, measured by what is allowed there.
        error: ||v - v0|| / ||v0|| there.
    """

    loss_error: float
    loss_tolerance: float
    gradient_error: float
    gradient_tolerance: float
    place: str
    error: float
    tolerance: float

    @property
    def passed(self) -> bool:
        """Whether all are within what is allowed; not a number is not."""
        return (
            self.loss_error <= self.loss_tolerance
            and self.gradient_error <= self.gradient_tolerance
            and self.error <= self.tolerance
        )

    def findings(self) -> str:
        """The errors beside what is allowed, in words."""
        return (
            "from the baseline's own values at each BatchNorm on, off from the baseline by "
            f"{self.loss_error:.2g} in the loss (tolerance {self.loss_tolerance:.2g}), by {self.gradient_error:.2g} "
            f"in the gradients (tolerance {self.gradient_tolerance:.2g}) and by {self.error:.2g} in {self.place} "
            f"(tolerance {self.tolerance:.2g})"
        )


class FullPrecisionCheck(Readable):
    """A training step without its half precision, beside the baseline's in fp32.

    Attributes:
        loss_error: |loss - baseline| / |baseline|.
        gradient_error: ||g - g0|| / ||g0|| over all parameters.
    """

    loss_error: float
    loss_tolerance: float
    gradient_error: float
    gradient_tolerance: float

    @property
    def passed(self) -> bool:
        """Whether both are within what is allowed; not a number is not."""
        return self.loss_error <= self.loss_tolerance and self.gradient_error <= self.gradient_tolerance

    def findings(self) -> str:
        """Both errors beside what is allowed, in words."""
        return (
            f"in fp32, off from the baseline by {self.loss_error:.2g} in the loss "
            f"(tolerance {self.loss_tolerance:.2g}) and by {self.gradient_error:.2g} in the gradients "
            f"(tolerance {self.gradient_tolerance:.2g})"
        )


class CheckRecord(Readable):
    """One step of the variant beside one step of the baseline, from the same weights on the same batch.

    Attributes:
        loss_error: |loss - baseline| / |baseline|.
        gradient_error: ||g - g0|| / ||g0|| over all parameters, in the baseline's layout.
        incomparable: why that is infinite, where it is; empty in records of releases that did not say it.
        layer: where the gradient of one layer differs most from the baseline's in the variant's own precision, with
            BatchNorm's statistics held still; None where the precision is all that the variant changes.
        layer_error: ||g - g0|| / ||g0|| of that layer.
        statistics: the BatchNorm whose running statistics differ most behind the step; None where there are none, and
            in records of releases that did not compare them.
        statistics_error: of what the step brought them, ||s - s0|| / ||s0||; the mean in units of what is divided by.
        pieces: the step cut at its BatchNorms, where the whole one was off by more than its tolerances: it decides in
            their place. None where it was not asked for, or a step can't be cut.
        full_precision: a compiled step or that of several ranks, which can't be cut, in fp32, where the whole one in
            half precision was off by more than its tolerances: it decides in their place, of ranks together with the
            pieces of the whole batch on one process. None where it was not asked for.
        lost: attributes of the user's object that a side has written to, and that are too large to be put back.
        recording: of a run that replays a recorded step; None for others.
        passed: whether all errors that decide are within their tolerances.
    """

    klass: str
    loss_baseline: float
    loss_variant: float
    loss_error: float
    loss_tolerance: float
    gradient_error: float
    gradient_tolerance: float
    incomparable: str = ""
    layer: str | None = None
    layer_error: float | None = None
    layer_tolerance: float | None = None
    statistics: str | None = None
    statistics_error: float | None = None
    statistics_tolerance: float | None = None
    pieces: PiecesCheck | None = None
    full_precision: FullPrecisionCheck | None = None
    lost: tuple[str, ...] = ()
    recording: RecordingCheck | None = None
    passed: bool

    def refusal(self) -> str:
        """Why a step that has not passed is not believed."""
        seen = "is not shown to be the baseline's" if self.incomparable else "differs from the baseline's"
        return f"one step {seen}: {self.findings()}"

    def findings(self) -> str:
        """The errors beside what is allowed, in words; each report says the same."""
        more = [found.findings() for found in (self.pieces, self.full_precision, self.recording) if found]
        begun = (
            f"loss() writes to what the workload holds as {', '.join(self.lost)}, which is too large to be put back, "
            "so the sides did not begin alike: let the net of model() hold it"
        )
        whole = self._of_the_step() + self._of_the_layers() + self._of_the_statistics()
        return "; ".join([whole, *more, *([begun] if self.lost else [])])

    def _of_the_step(self) -> str:
        of_the_loss = (
            f"loss {self.loss_variant:.6g} instead of {self.loss_baseline:.6g}, off by {self.loss_error:.2g} "
            f"(tolerance {self.loss_tolerance:.2g})"
        )
        if self.incomparable:
            return f"{of_the_loss}, gradients can't be compared, since {self.incomparable}"
        off = f"gradients off by {self.gradient_error:.2g} (tolerance {self.gradient_tolerance:.2g})"
        return f"{of_the_loss}, {off}"

    def _of_the_layers(self) -> str:
        if self.layer is None or self.layer_error is None or self.layer_tolerance is None:
            return ""
        return (
            f", and off from the baseline in its own precision by {self.layer_error:.2g} in {self.layer} "
            f"(tolerance {self.layer_tolerance:.2g})"
        )

    def _of_the_statistics(self) -> str:
        if self.statistics is None or self.statistics_error is None or self.statistics_tolerance is None:
            return ""
        return (
            f", running statistics off by {self.statistics_error:.2g} in {self.statistics} "
            f"(tolerance {self.statistics_tolerance:.2g})"
        )
