"""Help beside the policy's parameters in the form that takes them as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from portal.jobs.models import Cluster
from portal.readmodels.cluster.policies import describe_policies, notes

_BOUNDS = {"minimum": "from", "exclusiveMinimum": "more than", "maximum": "to", "exclusiveMaximum": "less than"}
_TYPES = {"number": "a number", "integer": "a whole number", "boolean": "true or false", "string": "a text"}
#: With the classes of the Django admin's stylesheet.
_CELL = '<td class="pr-3 py-1 align-top">'


def allowed(schema: dict[str, Any]) -> str:
    """The allowed values of a parameter, in words: "a number, from 0, to 1"."""
    if "enum" in schema:
        return " or ".join(json.dumps(value) for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(allowed(one) for one in schema["anyOf"])
    kind = str(schema.get("type", "anything"))
    bounds = [f"{word} {schema[key]:g}" for key, word in _BOUNDS.items() if key in schema]
    return ", ".join([_TYPES.get(kind, kind), *bounds])


def parameters_help(cluster: Cluster) -> SafeString:
    """Each policy's parameters, with those of the policy in force unfolded, and their effect on the present jobs."""
    said = format_html_join("", "<li>{}</li>", ((note,) for note in notes(cluster)))
    return format_html(
        "<p>A JSON object; what is left out has its default. "
        '<a class="text-primary-600 underline" href="/policy">The portal\'s policy page</a> has forms for it.</p>'
        "<ul>{}</ul>{}",
        said,
        format_html_join("", "{}", ((_policy(one, cluster.policy_name),) for one in describe_policies())),
    )


def _policy(described: dict[str, Any], in_force: str) -> SafeString:
    rows = format_html_join(
        "",
        f"<tr>{_CELL}<code>{{}}</code></td>{_CELL}{{}}</td>{_CELL}<code>{{}}</code></td>{_CELL}{{}}</td></tr>",
        _rows(described["schema"].get("properties", {})),
    )
    return format_html(
        '<details{}><summary class="cursor-pointer py-1"><code class="underline">{}</code> {}</summary>'
        '<table class="text-left"><thead><tr><th>parameter</th><th>may be</th><th>default</th><th>meaning</th></tr>'
        "</thead><tbody>{}</tbody></table></details>",
        " open" if described["name"] == in_force else "",
        described["name"],
        described["description"],
        rows,
    )


def _rows(properties: dict[str, dict[str, Any]]) -> Iterator[tuple[str, str, str, str]]:
    for name, schema in properties.items():
        default = json.dumps(schema["default"]) if "default" in schema else "none: to be given"
        yield name, allowed(schema), default, str(schema.get("description", ""))
