"""Pages of the project, read and followed."""
