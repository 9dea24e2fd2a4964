"""Finding and reading the file of the configuration."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from belog.schemas.errors import InvalidConfiguration
from belog.service.configuration import Configuration
from belog.service.configuration_merge import ConfigurationFile, load_configuration

__all__ = ["CONFIG_BYTES_MAX", "CONFIG_VARIABLE", "configuration_file", "read_configuration"]

CONFIG_VARIABLE: Final = "BELOG_CONFIG"
"""The variable that names the file."""

CONFIG_BYTES_MAX: Final = 4_194_304
"""Largest file that is read, bytes: a thousand tokens with a hundred patterns each fit."""

_HERE: Final = "belog.toml"


def configuration_file(
    named: str | None, environ: Mapping[str, str], folder: Path
) -> ConfigurationFile | None:
    """Return the first file there is: the one that is named, else in the usual places.

    These are `$BELOG_CONFIG`, `belog.toml` in the working directory, and `belog/config.toml` in
    `$XDG_CONFIG_HOME` (`~/.config`). Only one file is read. Blocks for as long as reading takes.

    Args:
        named: By a flag; None for none.
        environ: Variables.
        folder: The working directory.

    Raises:
        InvalidConfiguration: A file that was named is not there; or one cannot be read, is no
            UTF-8, or is larger than `CONFIG_BYTES_MAX`.
    """
    by_name = named or environ.get(CONFIG_VARIABLE)
    if by_name:
        return ConfigurationFile(by_name, _text(folder / by_name))
    home = environ.get("XDG_CONFIG_HOME") or os.path.join(  # noqa: PTH118 - may stay relative
        environ.get("HOME", ""), ".config"
    )
    if (folder / _HERE).is_file():
        return ConfigurationFile(_HERE, _text(folder / _HERE))
    path = Path(home) / "belog" / "config.toml"
    if path.is_absolute() and path.is_file():
        return ConfigurationFile(str(path), _text(path))
    return None


def read_configuration(
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    *,
    named: str | None = None,
    folder: Path | None = None,
) -> Configuration:
    """Return the configuration of flags, environment and the one file that is found.

    Args:
        flags: By key, as `load_configuration` takes them.
        environ: Variables.
        named: A file named by a flag; None to look in the usual places.
        folder: The working directory; None for the present one.

    Raises:
        InvalidConfiguration: As `configuration_file` and `load_configuration` raise it.
    """
    file = configuration_file(named, environ, folder or Path.cwd())
    return load_configuration(flags, environ, () if file is None else (file,))


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(CONFIG_BYTES_MAX + 1)
    except OSError as error:
        msg = f"configuration file {path} cannot be read: {error.strerror}"
        raise InvalidConfiguration(msg) from error
    if len(data) > CONFIG_BYTES_MAX:
        msg = f"configuration file {path} is larger than CONFIG_BYTES_MAX = {CONFIG_BYTES_MAX}"
        raise InvalidConfiguration(msg)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        msg = f"configuration file {path} is no UTF-8"
        raise InvalidConfiguration(msg) from error
