"""The portal's settings with constants as OVERRIDES, a JSON object, has them: for portals that run as processes of
their own. An object in it changes fields or keys of the constant."""

import json
import os
from dataclasses import is_dataclass, replace
from typing import Any

from portal import settings as usual
from portal.settings import *  # noqa: F403


def _changed(value: Any, override: Any) -> Any:
    if not isinstance(override, dict):
        return override
    return replace(value, **override) if is_dataclass(value) and not isinstance(value, type) else value | override


for _name, _override in json.loads(os.environ["OVERRIDES"]).items():
    globals()[_name] = _changed(getattr(usual, _name), _override)
