"""Adapters that requests name: registered folders, their way into device slots, and which row of a batch has which."""
