"""Warnings that are none of laptime's: tests let them pass."""

import pytest

# MLflow and what it imports (SQLAlchemy, alembic, tensorboard) warn of their own use of older interfaces.
BY_MLFLOW = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning:mlflow.*"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
