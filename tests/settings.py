"""The portal's settings over a data directory of the test session's own.

The embedded servers' addresses follow from the directory, so they are known before tests/conftest.py starts them.
"""

import os
import tempfile
from pathlib import Path

if "EVENKEEL_TEST_SESSION" not in os.environ:
    for name in [name for name in os.environ if name.startswith("EVENKEEL_")] + ["DATABASE_URL", "REDIS_URL"]:
        if name != "EVENKEEL_SHARED":
            os.environ.pop(name, None)
    data = tempfile.mkdtemp(prefix="evenkeel-test-")
    Path(data).chmod(0o755)  # the servers' account passes through
    os.environ["EVENKEEL_DATA"] = os.environ["EVENKEEL_TEST_SESSION"] = data

from portal.settings import *

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
EVENKEEL_RATE_USER_PER_MINUTE = EVENKEEL_RATE_ANONYMOUS_PER_MINUTE = EVENKEEL_RATE_RUN_PER_MINUTE = 0
