"""Runs a program of the user after each saved item, beside the work."""
