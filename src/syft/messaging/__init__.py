"""What workers say to each other. Imports only `core` and below."""
