"""Which noise to use: one frozen plan for each question."""
