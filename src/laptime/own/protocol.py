"""What a training of the user's own implements, in the words of PyTorch; importing it imports no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.utils.data import Dataset


ASKED = (
    "data",
    "model",
    "loss",
    "batch_size",
    "micro_batch_size",
    "learning_rate",
    "optimizer",
    "clip_norm",
    "schedule",
    "evaluate",
    "higher_is_better",
    "sample_weights",
    "collate_fn",
    "test_collate_fn",
    "worker_init_fn",
    "name",
)
"""All that a workload is asked for."""


class Workload(Protocol):
    """A training of your own: `laptime optimize path/to/train.py:workload`.

    `workload` is an object, class or function in the file: what can be called is called without arguments until it has
    a `loss`. It need not inherit from this class. These three methods are all that is needed. A workload may also have:

    - `batch_size` (default 32) and `learning_rate` (default 1e-3);
    - `optimizer(parameters, lr)`, which makes an optimizer of torch.optim's interface (default: Adam); written as
      `optimizer(model, lr)` it gets the net instead, for groups by name. Type checkers take both: neither is asked for;
    - `clip_norm`, the largest norm (L2) of the whole gradient, to which it is scaled down (default: any);
    - `micro_batch_size`, how many samples go through the net at once, at most: a larger batch is divided into parts,
      whose gradients are added up before the optimizer's step (default: all of a batch);
    - `schedule(optimizer, steps_per_epoch, epochs)`, which makes a schedule of torch.optim.lr_scheduler's interface,
      moved on after each step of the optimizer (default: none);
    - `evaluate(model, batches)`, which gives what the training is judged by in place of accuracy and loss: one number
      over all test data, of which more is better and 1 is perfect; with `higher_is_better = False` less is better;
    - `sample_weights(train)`, which gives a number for each training sample, by which an epoch draws as many as there
      are, with replacement (default: each is drawn once);
    - `collate_fn` and `worker_init_fn`, as DataLoader takes them (default: torch's, and none);
    - `test_collate_fn`, which the test data have, where the other mixes samples say (default: `collate_fn`);
    - `name`, for the experiment in MLflow (default: the file's name).
    """

    def data(self) -> tuple[Dataset[Any], Dataset[Any]]:
        """The training and the test data: map-style datasets, with `__len__` and `__getitem__`."""
        ...

    def model(self) -> nn.Module:
        """The net on the CPU; torch is seeded before each call."""
        ...

    def loss(self, model: nn.Module, batch: Any) -> Tensor | tuple[Tensor, Tensor]:
        """The loss of a batch, and its accuracy where there is such a thing.

        Call `model` itself, not methods of it, since it may be wrapped (torch.compile, DDP); use tensors of the batch
        on the device that they are on; read no values (`.item()`), which waits for the device.

        Args:
            model: the net, in training or in evaluation mode.
            batch: what the DataLoader made: tensors in tuples, lists or dictionaries; the first has [B, ...].

        Returns:
            The mean over the samples, a scalar with its graph. With an accuracy behind it (a share from 0 to 1, the
            mean over the samples, the higher the better) quality is judged by that, else by the loss on the test data.
        """
        ...
