"""Historical path of the hook and hook_args."""
