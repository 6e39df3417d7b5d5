"""YAML as job files are written in it, for the command line and the portal alike."""

from __future__ import annotations

import yaml

_BOOLEAN = "tag:yaml.org,2002:bool"


class Loader(yaml.SafeLoader):
    """Only true and false are booleans: in YAML 1.1 `on`, a key of `retry`, and `no`, a value, would be, too."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in found if tag != _BOOLEAN or first in "tTfF"]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
