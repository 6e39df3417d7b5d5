"""The parts of the training SDK; programs use `evenkeel.training()`."""
