"""Speed-ups with intervals, quality parity, plots and reports, from records alone: neither torch nor MLflow."""
