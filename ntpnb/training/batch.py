"""Same-shaped problems as stacked arrays: what a step of training computes, for all at once."""

from collections.abc import Sequence

import numpy as np

from ntpnb.basics.threads import product
from ntpnb.basics.tolerances import WHOLE
from ntpnb.basics.validation import FloatArray, require_type
from ntpnb.problem.data import NextTokenData, counts_or_ones
from ntpnb.problem.loss import gradient

SAFE_SCORE = 600.0  # exp stays a normal number up to ±700: below, a softmax needs no shift


class ProblemBatch:
    """Same-shaped problems as stacked arrays; the gradient of all of them at once.

    Tables such as the scores have the shape ``(n, V, m)``: a context is a column here, and not a
    row as in :class:`ntpnb.NextTokenData`, so that both products of a gradient are plain products
    of matrices.

    Parameters
    ----------
    problems : sequence of n NextTokenData
        All with equal shapes, and all with token embeddings or all without.

    Attributes
    ----------
    H, Ht : ndarray, shapes (n, m, q) and (n, q, m)
        Context embeddings, and their transposes.
    pi : ndarray, shape (n, 1, m)
        Context probabilities.
    P : ndarray, shape (n, V, m)
        Next-token distributions.
    target : ndarray, shape (n, V, m)
        Joint probabilities ``π_j p_jv`` of context and next token.
    T, Tt : ndarray, shapes (n, V, p) and (n, p, V), or None
        Token embeddings and their transposes; None where tokens are one-hot.
    counts : ndarray, shape (n, V, m), or None
        Candidate counts; None where all are one.
    gram : ndarray, shape (n, m, m), or None
        Inner products of the contexts' embeddings, where descending on the scores is cheaper than
        on ``W``: with one-hot tokens and fewer than ``2 q`` contexts. None elsewhere.

    Raises
    ------
    TypeError
        Something else than data.
    ValueError
        No problem at all, or problems of different shapes.

    References
    ----------
    T24 (002) Eq. (2) and App. E; L24 (004) Eq. (19).

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.training.batch import ProblemBatch
    >>> data = ntpnb.datasets.toy()
    >>> W = [[[0.0, 0.0]] * 5]
    >>> ProblemBatch([data]).gradient(W).shape
    (1, 5, 2)
    """

    def __init__(self, problems: Sequence[NextTokenData]) -> None:
        require_equal_shapes(problems)
        self.H: FloatArray = np.stack([d.context_embeddings for d in problems])
        self.Ht: FloatArray = np.ascontiguousarray(np.swapaxes(self.H, 1, 2))
        self.pi: FloatArray = np.stack([d.context_probs for d in problems])[:, None, :]
        self.P: FloatArray = np.ascontiguousarray(np.stack([d.target_probs.T for d in problems]))
        self.target: FloatArray = self.pi * self.P
        self.T: FloatArray | None = None
        self.Tt: FloatArray | None = None
        tokens = [d.token_embeddings for d in problems if d.token_embeddings is not None]
        if tokens:
            self.T = np.stack(tokens)
            self.Tt = np.ascontiguousarray(np.swapaxes(self.T, 1, 2))
        self.counts: FloatArray | None = None
        if any(d.candidate_counts is not None for d in problems):
            self.counts = np.ascontiguousarray(np.stack([counts_or_ones(d).T for d in problems]))
        self._prepare_products()

    def _prepare_products(self) -> None:
        """Arrays that spare work in every step."""
        _, V, m = self.P.shape
        q = self.H.shape[2]
        # Broadcasting it in every step would take three times as long.
        self._pi_of_tokens: FloatArray = np.broadcast_to(self.pi, self.P.shape).copy()
        self._likeliest: FloatArray = np.zeros_like(self.P)
        likeliest = self.P.argmax(axis=1)[:, None, :]
        np.put_along_axis(self._likeliest, likeliest, 1.0, axis=1)
        # Products are several times faster than sums over a middle axis. Where tokens are few,
        # every row of the product holds the sum, which spares a slow broadcast.
        copies_of_the_sum = V if V <= 16 else 1
        self._ones: FloatArray = np.ones((copies_of_the_sum, V))
        # Residuals above 1e-4 of the context weights' norm lose at most four digits to cancellation
        # and keep twelve: only smaller ones need the correction in `residuals`.
        self._near_in_each: FloatArray = (1e-4 * self.pi[:, 0]) ** 2
        self._near = self._near_in_each.sum()
        self._looks_at_each_context = False
        self.gram: FloatArray | None = None
        if self.T is None and m < 2 * q:
            self.gram = product(self.H, self.Ht)

    def look_at_each_context(self) -> None:
        """Let residuals keep their digits in each context, however large those of others are.

        It is for methods that move by the signs of entries, or relative to their sizes: there a
        small entry counts as much as a large one. And it is for those that move relative to the
        gradient's size: contexts that can not be learned, for want of length or because they
        contradict each other, leave nothing of their large residuals in it.

        Examples
        --------
        >>> import ntpnb
        >>> from ntpnb.training.batch import ProblemBatch
        >>> data = ntpnb.NextTokenData([[60.0, 0.0], [0.0, 1.0]], [[1, 0], [0.5, 0.5]])
        >>> batch = ProblemBatch([data])
        >>> W = [[[1.0, 1.0], [0.0, 0.0]]]
        >>> batch.gradient(W)[0, :, 0]  # in the first context, where one token has all but e^-60
        array([0.00000000e+00, 2.62695323e-25])
        >>> batch.look_at_each_context()
        >>> batch.gradient(W)[0, :, 0]
        array([-2.62695323e-25,  2.62695323e-25])
        """
        self._looks_at_each_context = True

    def gradient(
        self, W: FloatArray, pi: FloatArray | None = None, target: FloatArray | None = None
    ) -> FloatArray:
        """Gradients of the cross-entropy of all problems, or of samples of them.

        Parameters
        ----------
        W : ndarray, shape (n, p, q)
        pi : ndarray, shape (n, 1, m), optional
            Context frequencies of a sample, instead of the problems' own.
        target : ndarray, shape (n, V, m), optional
            Joint frequencies of context and next token in the sample. Without both ``pi`` and
            ``target`` the gradient is that of the problems themselves.

        Returns
        -------
        ndarray, shape (n, p, q)

        Examples
        --------
        >>> import ntpnb
        >>> from ntpnb.training.batch import ProblemBatch
        >>> data = ntpnb.NextTokenData([[2.0]], [[1.0, 0.0]])
        >>> ProblemBatch([data]).gradient([[[0.0], [0.0]]])
        array([[[-1.],
                [ 1.]]])
        """
        S = self.scores(W)
        return self.pull_back(self.residuals(S, S, pi, target))

    def scores(self, W: FloatArray) -> FloatArray:
        """Scores ``t_v · W h_j`` of every token in every context.

        Parameters
        ----------
        W : ndarray, shape (n, p, q)

        Returns
        -------
        ndarray, shape (n, V, m)

        Examples
        --------
        >>> import ntpnb
        >>> from ntpnb.training.batch import ProblemBatch
        >>> data = ntpnb.NextTokenData([[2.0]], [[1.0, 0.0]])
        >>> ProblemBatch([data]).scores([[[3.0], [0.5]]])
        array([[[6.],
                [1.]]])
        """
        S = product(np.asarray(W), self.Ht)
        return S if self.T is None else product(self.T, S)

    def residuals(
        self,
        S: FloatArray,
        out: FloatArray,
        pi: FloatArray | None = None,
        target: FloatArray | None = None,
    ) -> FloatArray:
        """Derivatives ``π_j (q_jv − p_jv)`` of the loss along the scores.

        Parameters
        ----------
        S : ndarray, shape (n, V, m)
        out : ndarray, shape (n, V, m)
            Where the result is written; it may be ``S``.
        pi, target : ndarray, optional
            A sample's frequencies, as in :meth:`gradient`.

        Returns
        -------
        ndarray, shape (n, V, m)

        Examples
        --------
        >>> import ntpnb
        >>> import numpy as np
        >>> from ntpnb.training.batch import ProblemBatch
        >>> data = ntpnb.NextTokenData([[2.0]], [[1.0, 0.0]])
        >>> S = np.zeros((1, 2, 1))
        >>> ProblemBatch([data]).residuals(S, out=S).ravel()
        array([-0.5,  0.5])
        """
        R = self.softmax(S, out)
        R *= self._pi_of_tokens if pi is None else pi
        R -= self.target if target is None else target
        # Over a context's tokens R sums to zero. Computed from the others, the likeliest token's
        # entry keeps its digits when its probability rounds to one; otherwise normalized GD drifts.
        if self._may_be_near(R):
            R -= self._likeliest * (self._ones @ R)
        return R

    def _may_be_near(self, R: FloatArray) -> bool:
        """Whether residuals are so small that the likeliest token's may have lost digits."""
        if len(R) > 1:  # the size of R tells nothing: a large problem would hide a small one
            return True
        if self._looks_at_each_context:
            squares = np.einsum("nvm,nvm->nm", R, R)
            return bool((squares < self._near_in_each).any())
        return bool(np.vdot(R, R) < self._near)

    def probabilities(self, W: FloatArray) -> FloatArray:
        """Next-token probabilities.

        Parameters
        ----------
        W : ndarray, shape (n, p, q)

        Returns
        -------
        ndarray, shape (n, V, m)

        Examples
        --------
        >>> import ntpnb
        >>> from ntpnb.training.batch import ProblemBatch
        >>> data = ntpnb.NextTokenData([[2.0]], [[1.0, 0.0]])
        >>> ProblemBatch([data]).probabilities([[[0.0], [0.0]]]).ravel()
        array([0.5, 0.5])
        """
        S = self.scores(W)
        return self.softmax(S, S)

    def softmax(self, S: FloatArray, out: FloatArray) -> FloatArray:
        """Next-token probabilities from scores.

        Parameters
        ----------
        S : ndarray, shape (n, V, m)
        out : ndarray, shape (n, V, m)
            Where the result is written; it may be ``S``.

        Returns
        -------
        ndarray, shape (n, V, m)

        Examples
        --------
        >>> import ntpnb
        >>> import numpy as np
        >>> from ntpnb.training.batch import ProblemBatch
        >>> data = ntpnb.NextTokenData([[2.0]], [[1.0, 0.0]])
        >>> S = np.full((1, 2, 1), 1e6)
        >>> ProblemBatch([data]).softmax(S, out=S).ravel()
        array([0.5, 0.5])
        """
        # The sum of squares is cheaper than the largest entry and bounds it: it is asked first.
        if np.vdot(S, S) > SAFE_SCORE**2 and max(S.max(), -S.min()) > SAFE_SCORE:
            # Tokens that are no candidates may score higher than all candidates. Cut off at zero,
            # their exponentials stay finite, and the counts then take them away.
            allowed = S if self.counts is None else np.where(self.counts > 0, S, -np.inf)
            S = np.minimum(S - allowed.max(axis=1, keepdims=True), 0.0)
        np.exp(S, out=out)
        if self.counts is not None:
            out *= self.counts
        out /= self._ones @ out
        return out

    def pull_back(self, R: FloatArray) -> FloatArray:
        """Turn derivatives along the scores into derivatives along ``W``.

        Parameters
        ----------
        R : ndarray, shape (n, V, m)

        Returns
        -------
        ndarray, shape (n, p, q)

        Examples
        --------
        >>> import ntpnb
        >>> import numpy as np
        >>> from ntpnb.training.batch import ProblemBatch
        >>> data = ntpnb.NextTokenData([[2.0]], [[1.0, 0.0]])
        >>> ProblemBatch([data]).pull_back(np.ones((1, 2, 1))).ravel()
        array([2., 2.])
        """
        along_tokens = R if self.Tt is None else product(self.Tt, R)
        return product(along_tokens, self.H)


class BlockBatch(ProblemBatch):
    """A batch whose tables would not fit into memory: each gradient goes by blocks of contexts.

    It holds the problems in place of tables, and can do nothing but :meth:`gradient`, see
    :func:`ntpnb.gradient`.

    Parameters
    ----------
    problems : sequence of n NextTokenData
        That :func:`batch_of` has found to have equal shapes.

    Examples
    --------
    >>> import numpy as np, ntpnb
    >>> from ntpnb.training.batch import BlockBatch
    >>> data = ntpnb.NextTokenData([[2.0]], [[1.0, 0.0]])
    >>> BlockBatch([data]).gradient(np.zeros((1, 2, 1)))
    array([[[-1.],
            [ 1.]]])
    """

    def __init__(self, problems: Sequence[NextTokenData]) -> None:
        self._problems = problems
        self.gram = None

    def gradient(
        self, W: FloatArray, pi: FloatArray | None = None, target: FloatArray | None = None
    ) -> FloatArray:
        """Gradients of the cross-entropy of all problems, one after the other.

        Parameters
        ----------
        W : ndarray, shape (n, p, q)
        pi, target : None
            Samples are tables themselves, so that there is no gradient of one.

        Returns
        -------
        ndarray, shape (n, p, q)

        Examples
        --------
        >>> import ntpnb
        >>> from ntpnb.training.batch import BlockBatch
        >>> data = ntpnb.datasets.toy()
        >>> BlockBatch([data]).gradient(ntpnb.datasets.lecun_init(data, seed=0)[None]).shape
        (1, 5, 2)
        """
        return np.stack([gradient(w, data) for w, data in zip(W, self._problems, strict=True)])


def batch_of(problems: Sequence[NextTokenData]) -> ProblemBatch:
    """Stack problems where their tables fit, else take them block by block.

    Parameters
    ----------
    problems : sequence of NextTokenData

    Returns
    -------
    ProblemBatch

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.training.batch import batch_of
    >>> type(batch_of([ntpnb.datasets.toy()])).__name__
    'ProblemBatch'
    """
    require_equal_shapes(problems)
    num_entries = problems[0].num_contexts * problems[0].vocab_size
    return BlockBatch(problems) if num_entries > WHOLE else ProblemBatch(problems)


def require_equal_shapes(problems: Sequence[NextTokenData]) -> None:
    """Raise unless there are problems, and all are data of one shape and kind."""
    if not problems:
        raise ValueError("data is an empty list; it needs at least one problem")
    first = problems[0]
    for i, data in enumerate(problems):
        require_type(f"data[{i}]" if len(problems) > 1 else "data", data, NextTokenData)
        table = (data.num_contexts, data.vocab_size)
        first_table = (first.num_contexts, first.vocab_size)
        if (data.shape, table) != (first.shape, first_table):
            raise ValueError(
                f"data[{i}] has W {data.shape} and target_probs {table}, data[0] "
                f"{first.shape} and {first_table}; a batch needs equal shapes"
            )
        if (data.token_embeddings is None) != (first.token_embeddings is None):
            raise ValueError(f"data[{i}] and data[0] must both have token_embeddings, or none")
