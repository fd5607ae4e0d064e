"""What to try next: rules over records and traces, with the gain that each should bring."""
