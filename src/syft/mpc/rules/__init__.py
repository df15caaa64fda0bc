"""What aten operations mean on fixed precision and on shares: one file per family, one function per rule."""
