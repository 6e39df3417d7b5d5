"""What the provider says of its people: claims come from a file that the test writes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from allauth.idp.oidc.adapter import DefaultOIDCAdapter


class GroupsAdapter(DefaultOIDCAdapter):  # type: ignore[misc]
    def get_claims(self, purpose: Any, user: Any, client: Any, scopes: Any, **kwargs: Any) -> dict[str, Any]:
        claims = super().get_claims(purpose, user, client, scopes, **kwargs)
        claims |= json.loads((Path(os.environ["IDP_FOLDER"]) / "claims.json").read_text()).get(user.username, {})
        return dict(claims)
