"""The command line `evenkeel`."""
