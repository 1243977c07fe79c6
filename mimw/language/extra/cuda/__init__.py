"""Where Triton keeps libdevice too. The functions are the same for every target."""

from mimw.language.extra import libdevice

__all__ = ["libdevice"]
