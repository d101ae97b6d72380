"""What can be wrong with a configuration."""

from __future__ import annotations

from monitor.errors import ConcladError


class ConfigError(ConcladError):
    """Each line of the message names the place of one mistake and how to correct it."""


class ConfigMissing(ConfigError):
    """The file that was named does not exist."""


class ConfigSyntax(ConfigError):
    """The text is not YAML, or is YAML that a configuration does not need."""


class ConfigInvalid(ConfigError):
    """The text can be read, but a key or a value is not one of ours."""


class ConfigExists(ConfigError):
    """The file to be written exists already."""
