"""Scenarios found by attacking Ferrite from outside; see env.py."""
