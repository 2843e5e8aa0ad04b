"""The two ways a well-posed call can still have no answer."""


class NotSeparableError(ValueError):
    """The strict orders of a dataset cannot all hold with a positive margin.

    Attributes
    ----------
    certificate : ndarray, shape (len(order.strict),)
        Nonnegative weights ``λ``, not all zero, for which
        ``(I − P_F) Σ_k λ_k (t_i − t_j) h_gᵀ`` vanishes, the sum running over the rows
        ``(g, i, j)`` of ``token_priority(data).strict``. A direction with margin one on every
        pair would give that sum a positive inner product, so none exists (Farkas).
    """

    def __init__(self, message, certificate):
        super().__init__(message)
        self.certificate = certificate


class ConvergenceError(RuntimeError):
    """An iteration ended before its proof of optimality was good enough.

    Attributes
    ----------
    residual : float
        The residual reached, in the units the raising function documents.
    """

    def __init__(self, message, residual):
        super().__init__(message)
        self.residual = residual
