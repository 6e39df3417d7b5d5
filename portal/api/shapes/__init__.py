"""The API's answers as models: they make the OpenAPI document, and tests compare every answer with them."""
