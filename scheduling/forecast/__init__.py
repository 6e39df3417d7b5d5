"""Predicts starts of pending jobs: futures simulated with the production rounds, calibrated on past outcomes."""
