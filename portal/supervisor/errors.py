class SetupError(Exception):
    """Why the portal cannot start, in one sentence for the person at the terminal."""
