"""Models without weights, which ask the engine instances of their tritonserver over local sockets. No torch here."""
