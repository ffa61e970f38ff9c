"""Routers of a watched model: found by their structure, observed in due steps."""

from .watched import OnlyHere, Routers, after_forward, before_forward, has_router, hook_forward

__all__ = ["OnlyHere", "Routers", "after_forward", "before_forward", "has_router", "hook_forward"]
