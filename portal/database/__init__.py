"""Django's PostgreSQL backend, with connections that outlive a request."""
