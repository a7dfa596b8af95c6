"""Prices compared with measured peaks."""
