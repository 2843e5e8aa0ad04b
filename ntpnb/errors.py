"""The two errors that say why a well-posed question got no answer, each with its evidence."""

from typing import Self

from ntpnb.array_types import FloatArray


class NotSeparableError(ValueError):
    """The strict orders of a dataset cannot all hold with a positive margin.

    Parameters
    ----------
    message : str
    certificate : ndarray, shape (len(order.strict),)

    Attributes
    ----------
    certificate : ndarray, shape (len(order.strict),)
        Nonnegative weights ``λ``, not all zero, for which
        ``(I − P_F) Σ_k λ_k (t_i − t_j) h_gᵀ`` vanishes, where the sum runs over the rows
        ``(g, i, j)`` of ``token_priority(data).strict``. A direction with margin one on every
        pair would give that sum a positive inner product, so no such direction exists (Farkas'
        lemma).

    Examples
    --------
    One context embedding that is listed twice cannot prefer two different tokens:

    >>> import ntpnb
    >>> data = ntpnb.NextTokenData([[1.0], [1.0]], [[1, 0], [0, 1]])
    >>> try:
    ...     ntpnb.max_margin(data)
    ... except ntpnb.NotSeparableError as error:
    ...     weights = error.certificate
    >>> bool(weights[0] > 0), round(float(weights[1] / weights[0]), 6)
    (True, 1.0)
    """

    def __init__(self, message: str, certificate: FloatArray) -> None:
        super().__init__(message)
        self.certificate = certificate

    def __reduce__(self) -> tuple[type[Self], tuple[str, FloatArray]]:
        # By default an exception is rebuilt from its message alone, which __init__ does not accept.
        return type(self), (str(self), self.certificate)


class ConvergenceError(RuntimeError):
    """An iteration ended before its proof of optimality was good enough.

    Parameters
    ----------
    message : str
    residual : float

    Attributes
    ----------
    residual : float
        The residual that was reached, in the units that the raising function documents.

    Examples
    --------
    >>> import ntpnb
    >>> error = ntpnb.ConvergenceError("the gradient's norm stayed at 1e-3", residual=1e-3)
    >>> error.residual
    0.001
    """

    def __init__(self, message: str, residual: float) -> None:
        super().__init__(message)
        self.residual = residual

    def __reduce__(self) -> tuple[type[Self], tuple[str, float]]:
        return type(self), (str(self), self.residual)
