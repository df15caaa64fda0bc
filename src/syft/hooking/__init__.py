"""The only room that adds names to torch. It replaces nothing that plain torch code uses."""
