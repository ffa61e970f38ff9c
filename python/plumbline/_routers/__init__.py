"""Routers of a model that is watched: found by their structure, heard in the steps that are due."""

from .watched import OnlyHere, Routers, after_forward, before_forward, has_router, hook_forward

__all__ = ["OnlyHere", "Routers", "after_forward", "before_forward", "has_router", "hook_forward"]
