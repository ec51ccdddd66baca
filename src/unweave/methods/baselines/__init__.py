"""What the paper compares with, and the controls: one file each. Uses methods.base and below."""
