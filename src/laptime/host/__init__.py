"""What this machine is and does: its processes and how they start and end, its memory, GPUs and temporary folders."""
