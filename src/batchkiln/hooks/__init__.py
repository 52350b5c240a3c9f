"""Runs a program of the user after each saved item, without delaying the generations."""
