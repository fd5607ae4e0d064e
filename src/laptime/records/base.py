"""The base of all records."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Readable(BaseModel):
    """Base of what is read back: unknown fields, of a newer version, are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)
