from __future__ import annotations

from services_stack import services

__all__ = ["services"]
