"""Norms of matrices, and the max-margin problem in other norms than Frobenius'.

``matrix_norms`` has five norms with their duals; ``largest_margin`` solves in the largest entry's
norm and the entries' sum by linear programs, and in the norms of singular values by cvxpy;
``narrow`` uses the first program where the data are separable by a hair, or not.
"""
