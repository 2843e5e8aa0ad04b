"""The twin of a dataset: other next-token distributions on which training is the same."""

from scipy.special import softmax

from ntpnb.problem.data import NextTokenData
from ntpnb.problem.loss import logits
from ntpnb.tied.finite import finite_part, restrict

__all__ = ["twin"]


def twin(data: NextTokenData) -> NextTokenData:
    """Replace each distribution by the one that the finite part gives to the tied tokens.

    The twin has the same gradients as the data at every matrix, and it is compatible.

    Parameters
    ----------
    data : NextTokenData
        Separable or not; what training on data that are not separable tends to is another twin.

    Examples
    --------
    Compatible data are their own twin:

    >>> import numpy as np
    >>> import ntpnb
    >>> from ntpnb_book import twin
    >>> data = ntpnb.datasets.toy()
    >>> bool(np.abs(twin(data).target_probs - data.target_probs).max() < 1e-9)
    True
    """
    finite = finite_part(data)
    return data.replace(target_probs=softmax(logits(finite.W, restrict(data)), axis=-1))
