"""A repair as one page."""
