"""One typed configuration: where every number that an operator may change is declared."""

from monitor.config.errors import ConfigError
from monitor.config.load import DEFAULT_PATH, Loaded, load
from monitor.config.schema import Config

__all__ = ["DEFAULT_PATH", "Config", "ConfigError", "Loaded", "load"]
