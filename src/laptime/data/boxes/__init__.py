"""Images with boxes: the files that say them, their store, and tensors of them."""
