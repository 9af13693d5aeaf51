"""Tables and figures, made from results and nothing else."""
