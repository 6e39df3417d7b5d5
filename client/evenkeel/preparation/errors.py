"""What can go wrong with a project's files, in one sentence for people."""


class PreparationError(Exception):
    """Not possible, and trying the same again will not help."""
