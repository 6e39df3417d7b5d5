"""What is done with a project's files beside training, as the project's account: code, environments, artifacts.

`python -m evenkeel.preparation` reads one request from its standard input and leaves `result.json`.
"""
