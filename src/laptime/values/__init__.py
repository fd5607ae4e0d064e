"""What a training holds, whoever wrote it: batches, nets, generators and counters, copied, kept and put back."""
