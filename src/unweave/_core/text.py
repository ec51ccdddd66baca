"""Text from files, as a terminal may show it."""

__all__ = ["printable"]


def printable(text: str, *, lines: bool = False) -> str:
    r"""Text that does nothing to a terminal: whoever wrote a file may have put escape sequences in it.

    What is not printed (control characters, line breaks, marks that turn the direction of writing) is written as
    Python would: ``\x1b``.

    Args:
        text: The text.
        lines: Leave line breaks as they are.
    """
    shown = "\u00a0\n" if lines else "\u00a0"
    return "".join(c if c.isprintable() or c in shown else ascii(c)[1:-1] for c in text)
