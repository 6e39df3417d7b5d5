#!/bin/sh
# Run by the postgres image when it makes its database: the role that the portal works as, beside the owner's.
set -eu
psql -v ON_ERROR_STOP=1 --no-psqlrc --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" <<'SQL'
\getenv password EVENKEEL_APP_PASSWORD
CREATE ROLE evenkeel_app LOGIN PASSWORD :'password';
SQL
