"""What somebody is told whose LightningCLI makes the optimizer: to return it from the module, which trains then."""

import pytest
from tests.unit.own.test_lightning_module import LIT, opened
from tests.unit.own.test_own_pieces import trained

from laptime.errors import UsageError
from laptime.preflight.inspecting import inspect

CONFIGURED = LIT[LIT.index("    def configure_optimizers(self):") :]
COMMAND = """

if __name__ == "__main__":
    from lightning.pytorch.cli import LightningCLI

    LightningCLI(Lit, Points, optimizer_class=torch.optim.AdamW)
"""


def test_a_module_whose_optimizer_the_command_line_makes_is_told_to_return_it(file):
    with pytest.raises(UsageError) as told:
        opened(file, (CONFIGURED, COMMAND)).workload.configure()
    assert str(told.value) == (
        "Lit has no configure_optimizers(): return one optimizer from it, the one that a LightningCLI is given too."
    )


def test_done_so_it_trains(file):
    opened(file, (CONFIGURED, CONFIGURED + COMMAND))
    lap, *_ = trained(f"{file}:Lit")
    assert lap.losses[-1] < lap.losses[0]
    assert inspect(f"{file}:Lit").notice == ""
