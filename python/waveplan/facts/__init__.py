"""Facts of a job: the model, the ranks, the training mode."""
