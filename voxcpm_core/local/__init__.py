"""How a tritonserver's engine instances are reached: JSON lines over Unix sockets that only the user can open."""
