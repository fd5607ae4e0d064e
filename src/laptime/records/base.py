"""The base of all records."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

# Seconds since 1970, up to the year 9999: what lies beyond can't be written as a date.
Moment = Annotated[float, Field(ge=0, lt=253402300800)]


def _no_percent(share: float) -> float:
    if share > _WHOLE:
        raise ValueError("must be a share from 0 to 1, and no percentage")
    return share


# A mean of shares may come out a little above 1.
_WHOLE = 1.001
Share = Annotated[float, AfterValidator(_no_percent)]


class Readable(BaseModel):
    """Base of what is read back: unknown fields, of a newer version, are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)
