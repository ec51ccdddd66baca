"""The tables and figures of the GIF paper, one file each."""
