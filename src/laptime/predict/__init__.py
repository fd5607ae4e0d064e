"""A trained model, logged and asked."""
