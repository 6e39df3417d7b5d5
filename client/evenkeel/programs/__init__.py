"""Programs of the model catalogue: `python -m evenkeel.programs.NAME --help`."""
