"""The portal's settings over a data directory of the test session's own.

The embedded servers' addresses follow from the directory, so they are known before tests/conftest.py starts them.
Each worker of pytest-xdist has a directory, and so servers, of its own.
"""

import os
import tempfile
from pathlib import Path

worker = os.environ.get("PYTEST_XDIST_WORKER", "")
if "EVENKEEL_TEST_SESSION" not in os.environ or os.environ.get("EVENKEEL_TEST_WORKER", "") != worker:
    for name in [name for name in os.environ if name.startswith("EVENKEEL_")] + ["DATABASE_URL", "REDIS_URL"]:
        if name != "EVENKEEL_SHARED" and not (worker and name == "EVENKEEL_TEST_ROOT"):
            os.environ.pop(name, None)
    data = tempfile.mkdtemp(prefix="evenkeel-test-")
    Path(data).chmod(0o755)  # the servers' account passes through
    os.environ["EVENKEEL_TEST_WORKER"] = worker
    os.environ["EVENKEEL_DATA"] = os.environ["EVENKEEL_TEST_SESSION"] = data
    os.environ.setdefault("EVENKEEL_TEST_ROOT", data)  # of the process that starts the workers: they share it

from portal.config.layout import OWNER, Layout
from portal.settings import *
from portal.settings import DATABASES

# As the owner, who makes test databases; tests/supervisor/test_ownership.py has both roles.
_password = Layout(Path(os.environ["EVENKEEL_DATA"])).secret("postgres_password")
DATABASES["default"] |= {"USER": OWNER, "PASSWORD": _password}

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
RATES_PER_MINUTE = {"user": 0, "anonymous": 0, "run": 0}
#: Else each test client makes answers for all static files first.
WHITENOISE_AUTOREFRESH = True
