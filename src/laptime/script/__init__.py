"""A variant as a plain PyTorch script: `laptime explain VARIANT --code`.

The script is one template; what an optimization adds stands where it stands in a training loop. Whatever is longer
than a few lines is printed out of the module that runs it (`sources.py`), so that it can't drift. Imports no torch.
"""

from laptime.script.lines import Fit
from laptime.script.printing import print_script
from laptime.script.shown import PRINTED_FOR_BOXES, REFUSED, require_printable, unprinted

__all__ = ["PRINTED_FOR_BOXES", "REFUSED", "Fit", "print_script", "require_printable", "unprinted"]
