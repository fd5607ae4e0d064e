#!/usr/bin/env bash
# Runs once, when the server's volume is empty: a role and a database for MLflow, and one for Prefect.
set -euo pipefail
for name in mlflow prefect; do
  variable=LAPTIME_${name^^}_PASSWORD
  psql --set ON_ERROR_STOP=1 --username "${POSTGRES_USER:-postgres}" --dbname postgres \
    --set name="$name" --set password="${!variable}" <<'SQL'
CREATE ROLE :"name" LOGIN PASSWORD :'password';
CREATE DATABASE :"name" OWNER :"name" ENCODING 'UTF8' TEMPLATE template0;
REVOKE CONNECT ON DATABASE :"name" FROM PUBLIC;
SQL
done
