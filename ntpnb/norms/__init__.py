"""Norms of matrices: their duals, their steepest directions, and the largest margin in each."""
