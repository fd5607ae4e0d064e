"""A LightningModule as a user's own training."""
