"""What the API answers, as models: they make the OpenAPI document, and tests hold every answer against it."""
