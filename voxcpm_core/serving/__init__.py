"""From Triton tensors to the engine and back: the body of the thin adapters in model_repository/."""
