"""Prices held against measured peaks."""
