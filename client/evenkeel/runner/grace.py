"""How long a program has to leave once it was asked to."""

TERM_GRACE_S = 10.0  # from SIGTERM to SIGKILL
#: After that the runner must have ended the run as requested; from then on its executor does so itself.
KILL_AFTER_S = TERM_GRACE_S + 5.0
