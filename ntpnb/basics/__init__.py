"""What every room stands on: checks of arguments, errors, tolerances, threads, saving, norms."""
