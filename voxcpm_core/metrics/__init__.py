"""What an instance tells of itself on Triton's metrics endpoint. Light: the doors import it, too."""
