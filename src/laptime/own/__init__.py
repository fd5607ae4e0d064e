"""What a user's own code meets: the protocol, the loop, and its errors told."""
