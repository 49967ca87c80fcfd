"""What goes wrong: one class for each thing that a caller should do next. ``OSError`` is the system's."""


class NarrowsError(Exception):
    """Any error of this module's."""


class NotNarrowsError(NarrowsError, ValueError):
    """It does not begin as a ``.narrows`` file does."""


class VersionError(NarrowsError):
    """A newer version of the format; a newer narrows reads it."""

    def __init__(self, text: str, *, version: int) -> None:
        super().__init__(text)
        self.version = version


class CodecError(NarrowsError):
    """A chunk was packed by a codec that is not known here; a newer narrows reads it."""

    def __init__(self, text: str, *, codec: int, at: int) -> None:
        super().__init__(text)
        self.codec = codec
        self.at = at


class DamagedError(NarrowsError):
    """Contradicts the format or a checksum at byte ``at``. What lies before it was right."""

    def __init__(self, text: str, *, at: int, what: str) -> None:
        super().__init__(text)
        self.at = at
        self.what = what


class TruncatedError(NarrowsError, EOFError):
    """Ends before its end: a copy that was cut, or a writer that was never finished."""

    def __init__(self, text: str, *, at: int) -> None:
        super().__init__(text)
        self.at = at


class LimitError(NarrowsError):
    """Larger than the caller allows. Nothing was allocated for it."""

    def __init__(self, text: str, *, what: str, asked: int, limit: int) -> None:
        super().__init__(text)
        self.what = what
        self.asked = asked
        self.limit = limit


class SettingError(NarrowsError, ValueError):
    """A setting that is out of its range."""
