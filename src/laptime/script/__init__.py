"""A variant as a plain PyTorch script: `laptime explain VARIANT --code`.

The script is one template; what an optimization adds stands where it stands in a training loop. Whatever is longer
than a few lines is printed out of the module that runs it (`sources.py`), so that it can't drift. Imports no torch.
"""

from laptime.script.printing import PRINTED, PRINTED_FOR_BOXES, REFUSED, print_script, unprinted

__all__ = ["PRINTED", "PRINTED_FOR_BOXES", "REFUSED", "print_script", "unprinted"]
