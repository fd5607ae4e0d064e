#!/usr/bin/env bash
# Postgres' image runs this once, on an empty volume: a role and a database each for MLflow and Prefect.
set -euo pipefail
for name in mlflow prefect; do
  variable=${name^^}_PASSWORD
  # psql quotes the password itself (:'password'), so it may hold any character.
  psql --username "$POSTGRES_USER" --dbname postgres --set ON_ERROR_STOP=1 \
    --set name="$name" --set password="${!variable:?}" <<'SQL'
CREATE ROLE :"name" LOGIN PASSWORD :'password';
CREATE DATABASE :"name" OWNER :"name";
REVOKE ALL ON DATABASE :"name" FROM PUBLIC;
SQL
done
