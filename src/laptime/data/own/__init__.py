"""A user's own training: its file, its data sets, and what of it an optimization can't take."""
