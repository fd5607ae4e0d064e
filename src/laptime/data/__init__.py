"""Sources of data, the local store of decoded images, and uint8 tensors (`tensors`, the door to torch)."""
