"""Historical paths; aliases only, imported by nobody inside."""
