"""The demo voice: how the speaking checkpoint that ships with the package is made and measured."""
