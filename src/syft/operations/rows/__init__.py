"""The rows of the table, one file per family. Adding an operation is adding its name to one of these files."""
