"""Multifactor priority: fair share over a tree, decayed usage, and the weighted sum of factors. Pure functions."""
