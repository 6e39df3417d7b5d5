"""Every change of jobs, runs and their occupancy. Only `moves.move` changes a run's state."""
