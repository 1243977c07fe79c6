"""What lies beside the language in Triton: ``from mimw.language.extra import libdevice``."""

from mimw.language.extra import cuda, libdevice

__all__ = ["cuda", "libdevice"]
