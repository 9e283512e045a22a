"""How plans are proposed: every way is an Optuna sampler over the plans of a space."""
