"""Every change to jobs, runs and what they hold. `moves.move` alone changes a run's state."""
