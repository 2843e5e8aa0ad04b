"""How recorded matrices compare with what the theory predicts for them."""

import html
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from ntpnb.basics.errors import ConvergenceError, needs_extra
from ntpnb.basics.saving import Recorded
from ntpnb.basics.threads import one_thread
from ntpnb.basics.tolerances import HELD
from ntpnb.basics.validation import FloatArray, as_matrices, counted, require_type
from ntpnb.basics.watch import Progress
from ntpnb.bias import ImplicitBias, Twin, implicit_bias
from ntpnb.bias.floor import LossFloor
from ntpnb.margin.solution import MarginSolution
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.loss import as_weights, bilinear_scores, excess_loss
from ntpnb.problem.order import dominated
from ntpnb.problem.table import row_slices
from ntpnb.tied.finite import FinitePart

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Part = TypeVar("Part", FinitePart, MarginSolution, LossFloor)


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Recorded):
    """How recorded matrices ``W_k`` compare with the theory, arrays shaped like ``run.loss``.

    Attributes
    ----------
    alignment : ndarray
        Cosine between ``W_k`` and ``W^mm``; nan where ``W_k`` or ``W^mm`` is zero and has none.
    angle : ndarray
        The same angle in radians, accurate near zero where the cosine is not.
    corrected_alignment : ndarray
        Cosine between ``W_k − W*`` and ``W^mm``; nan where one of the two is zero.
    finite_error : ndarray
        ``‖P_F W_k − W*‖``, the Frobenius norm; not relative to ``‖W*‖``.

    References
    ----------
    T24 (002) Thm 2 and Figs 1, 4 and 5; L24 (004) Figs 3 and 4.

    Examples
    --------
    >>> import ntpnb
    >>> bias = ntpnb.implicit_bias(ntpnb.datasets.toy())
    >>> found = ntpnb.compare(bias.finite_part.W + 2 * bias.max_margin.W, bias)
    >>> found.corrected_alignment.round(6), found.finite_error.round(6)
    (np.float64(1.0), np.float64(0.0))
    """

    alignment: FloatArray
    angle: FloatArray
    corrected_alignment: FloatArray
    finite_error: FloatArray


@dataclass(frozen=True, eq=False, repr=False)
class WeightComparison(Comparison):
    """How matrices ``W_k`` compare with the theory, and what they do on the data.

    The arrays have the shape of the stack of matrices that were compared: none for a single one.

    Attributes
    ----------
    alignment : ndarray
        Cosine between ``W_k`` and ``W^mm``; nan where ``W_k`` or ``W^mm`` is zero and has none.
    angle : ndarray
        The same angle in radians, accurate near zero where the cosine is not.
    corrected_alignment : ndarray
        Cosine between ``W_k − W*`` and ``W^mm``; nan where one of the two is zero.
    finite_error : ndarray
        ``‖P_F W_k − W*‖``, the Frobenius norm; not relative to ``‖W*‖``.
    norm : ndarray
        Frobenius norm of ``W_k``.
    loss : ndarray
        Cross-entropy in nats.
    excess : ndarray
        Loss above the entropy in nats, see :func:`ntpnb.excess_loss`.
    margin : ndarray, shape (..., m)
        Smallest margin in each context: how far the lowest score of a token that follows it, or
        that ties with one, is above the highest score of one that must lose. Negative where some
        pair is still in the wrong order, ``inf`` where none must lose.
    above_floor : ndarray
        Loss above the infimum over all matrices in nats, from the entropy where data are separable
        and compatible, and else from ``LossFloor.lower``; nan where that is not known.
    missing : str
        Why the data have no known ``W^mm`` or ``W*``, or their least loss is not known or not well,
        a line each; what needs one of them is nan. Empty where all is known.
    names : tuple of str
        Of the matrices, where they were given with names.
    worst : tuple of str
        The context in which each of these has its smallest margin, by its label or its row.

    References
    ----------
    T24 (002) Thm 2 and Defs 1–2; L24 (004) Figs 3 and 4.

    Examples
    --------
    >>> import ntpnb
    >>> data = ntpnb.datasets.toy()
    >>> run = ntpnb.descend(data, ntpnb.GD(step=0.5), 1000, record=[10, 100, 1000])
    >>> found = ntpnb.compare(run.W, data)
    >>> found.excess.round(3), found.margin.round(1).tolist()
    (array([0.302, 0.048, 0.006]), [[0.6, 0.4, 0.0], [2.2, 1.4, 1.1], [4.5, 2.8, 3.2]])
    """

    norm: FloatArray
    loss: FloatArray
    excess: FloatArray
    margin: FloatArray
    above_floor: FloatArray
    missing: str = ""
    names: tuple[str, ...] = ()
    worst: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Write a line for each matrix that has a name; else as ``repr`` does."""
        if not self.names:
            return repr(self)
        wide = max(map(len, self.names))
        lines = [f"{'':{wide}}  degrees to W^mm  off W*     nats above the floor  smallest margin"]
        for k, name in enumerate(self.names):
            lines.append(
                f"{name:{wide}}  {np.degrees(self.angle[k]):<15.3g}  {self.finite_error[k]:<9.3g}  "
                f"{self.above_floor[k]:<20.3g}  {self.smallest_margin[k]:.3g}, "
                f"after context {self.worst[k]}"
            )
        return "\n".join([*lines, *self.missing.splitlines()])

    def _repr_html_(self) -> str:
        """Show those that have names as :func:`print` does, for notebooks."""
        return f"<pre>{html.escape(str(self))}</pre>" if self.names else super()._repr_html_()

    def plot(self) -> "Figure":
        """Draw what is known of each matrix, one after the other.

        Returns
        -------
        matplotlib Figure

        Raises
        ------
        ImportError
            Matplotlib is not installed; the extra ``plot`` brings it.

        Examples
        --------
        >>> import matplotlib
        >>> matplotlib.use("Agg")
        >>> import ntpnb
        >>> data = ntpnb.datasets.toy()
        >>> run = ntpnb.descend(data, ntpnb.GD(step=0.5), 1000, record=[10, 1000])
        >>> found = ntpnb.compare({"early": run.W[0], "late": run.W[1]}, data)
        >>> [ax.get_title() for ax in found.plot().axes]
        ['degrees to W^mm', 'off W*', 'nats above the floor', 'smallest margin']
        """
        with needs_extra("plot", "WeightComparison.plot"):
            import matplotlib.pyplot as plt

        panels = {
            "degrees to W^mm": np.degrees(self.angle),
            "off W*": self.finite_error,
            "nats above the floor": self.above_floor,
            "smallest margin": self.smallest_margin,
        }
        known = {title: values for title, values in panels.items() if np.isfinite(values).any()}
        names = self.names or tuple(map(str, range(self.excess.size)))
        fig, axes = plt.subplots(
            1,
            len(known),
            figsize=(1.6 + 2.1 * len(known), 1.2 + 0.3 * len(names)),
            sharey=True,
            layout="constrained",
            squeeze=False,
        )
        for ax, (title, values) in zip(axes[0], known.items(), strict=True):
            ax.plot(np.ravel(values), np.arange(len(names)), "o-")
            ax.set_title(title)
        axes[0, 0].set_yticks(np.arange(len(names)), names)
        axes[0, 0].invert_yaxis()  # the first one above
        return fig

    @property
    def smallest_margin(self) -> FloatArray:
        """The smallest margin in any context, shape (...)."""
        smallest: FloatArray = self.margin.min(axis=-1)
        return smallest


@one_thread
def compare(
    W: npt.ArrayLike | Mapping[str, npt.ArrayLike],
    data: NextTokenData | ImplicitBias | Mapping[str, NextTokenData | ImplicitBias],
    *,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> WeightComparison:
    """Compare matrices, such as a trained decoder's, with what the theory predicts for a dataset.

    Data may have no max-margin direction, or one that is not found: not separable, undecided, or
    too large. What needs it is then nan and ``missing`` says why; the rest is there. ``W*`` is that
    of the data, to which training tends where they are separable; elsewhere it tends to that of
    their twin, and comparing with ``ntpnb.implicit_bias(data).twin`` answers all.

    Parameters
    ----------
    W : array_like, shape (..., p, q), or mapping from str to array_like
        One matrix, or a stack or list of them, such as checkpoints of a training, or matrices by
        their names, which may be numbers of steps.
    data : NextTokenData or ImplicitBias, or mapping from str to one of them
        Those of all matrices, or of each by its name, such as a checkpoint's own hidden states.
    seconds, progress : optional
        As in :func:`ntpnb.implicit_bias`, where ``data`` is no bias yet.

    Returns
    -------
    WeightComparison
        With arrays of shape (...).

    Raises
    ------
    ValueError
        ``W`` has the wrong shape or is not finite, or a matrix has no data of its name.
    TypeError
        ``data`` is neither data nor a bias, or a mapping where ``W`` is none.

    References
    ----------
    T24 (002) Thm 2; L24 (004) Thms 3 and 4.

    Examples
    --------
    >>> import ntpnb
    >>> data = ntpnb.datasets.toy()
    >>> run = ntpnb.descend(data, ntpnb.GD(step=0.5), 1000)
    >>> ntpnb.compare(run.W[-1], data).angle.round(2)
    np.float64(0.3)

    Two contexts with one embedding ask for different words; no direction does what both ask for:

    >>> contradicting = ntpnb.NextTokenData([[1.0], [1.0]], [[1, 0], [0, 1]])
    >>> found = ntpnb.compare([[1.0], [0.0]], contradicting)
    >>> found.angle, found.margin.tolist()
    (array(nan), [1.0, -1.0])
    >>> found.missing.partition(":")[0]
    'no direction W^mm'

    Checkpoints by name, of which the loss above the infimum says how much training can gain:

    >>> print(ntpnb.compare({"early": run.W[-1] / 2, "late": run.W[-1]}, data))
           degrees to W^mm  off W*     nats above the floor  smallest margin
    early  17               1.09       0.106                 1.4, after context 1
    late   17               0.0277     0.00574               2.79, after context 1
    """
    if isinstance(W, Mapping):
        return _by_name(W, data, seconds, progress)
    if isinstance(data, Mapping):
        raise TypeError(
            f"data is of type {type(data).__name__}; where W has no names, NextTokenData or an "
            "ImplicitBias is needed"
        )
    bias = implicit_bias(data, seconds=seconds, progress=progress)
    return compare_trained(as_weights("W", W, bias.data), bias, bias)


def _by_name(
    W: Mapping[str, npt.ArrayLike],
    data: NextTokenData | ImplicitBias | Mapping[str, NextTokenData | ImplicitBias],
    seconds: float | None,
    progress: Progress | None,
) -> WeightComparison:
    """Compare matrices by their names, with common data or with those of the same names."""
    if not W:
        raise ValueError("W names no matrix; at least one is needed")
    if not isinstance(data, Mapping):
        data = dict.fromkeys(W, implicit_bias(data, seconds=seconds, progress=progress))
    if without := W.keys() - data.keys():
        raise ValueError(f"data has none for {min(without)!r}, which W names")
    found = []
    worst = []
    reasons = []
    for name, matrix in W.items():
        bias = data[name]
        if not isinstance(bias, ImplicitBias):
            bias = implicit_bias(bias, seconds=seconds, progress=progress)
        one = as_weights(f"W[{name!r}]", matrix, bias.data)
        if one.ndim != 2:
            raise ValueError(
                f"W[{name!r}] has {counted(one.ndim, 'dimension')}; a name has one matrix"
            )
        compared = compare_trained(one, bias, bias)
        found.append(compared)
        worst.append(bias.data.label(int(compared.margin.argmin())))
        reasons += [f"{name}: {line}" for line in compared.missing.splitlines()]
    shared = {compared.missing for compared in found}
    # Margins are padded with inf to the most contexts.
    margins = np.full((len(found), max(compared.margin.size for compared in found)), np.inf)
    for padded, compared in zip(margins, found, strict=True):
        padded[: compared.margin.size] = compared.margin
    fields = vars(found[0]).keys() - {"margin", "missing", "names", "worst"}
    numbers = {field: np.array([getattr(one, field) for one in found]) for field in fields}
    return WeightComparison(
        **numbers,
        margin=margins,
        missing=shared.pop() if len(shared) == 1 else "\n".join(reasons),
        names=tuple(map(str, W)),
        worst=tuple(worst),
    )


def compare_trained(W: FloatArray, bias: ImplicitBias, trained: ImplicitBias) -> WeightComparison:
    """Compare matrices with those parts of the theory that are known.

    Parameters
    ----------
    W : ndarray, shape (..., p, q)
    bias : ImplicitBias
        Of the data on which losses and margins are taken.
    trained : ImplicitBias
        Whose direction and finite part training tends to: the same, or the data's twin.

    Returns
    -------
    WeightComparison
        With nan for whatever needs a part that is not known.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.training.comparison import compare_trained
    >>> bias = ntpnb.implicit_bias(ntpnb.NextTokenData([[1.0], [1.0]], [[1, 0], [0, 1]]))
    >>> compare_trained(bias.twin.finite_part.W, bias, bias.twin).finite_error.round(6)
    np.float64(0.0)
    """
    data = bias.data
    missing: list[str] = []

    def known(name: str, compute: Callable[[], Part]) -> Part | None:
        try:
            return compute()
        except (ConvergenceError, ValueError, MemoryError) as error:  # not separable: a ValueError
            if error is trained._watch.raised:
                raise
            missing.append(f"no {name}: {error}")
            return None

    finite = known("finite part W*", lambda: trained.finite_part)
    svm = known("direction W^mm", trained.require_max_margin)
    # The infimum of the loss, from below.
    floor = np.nan
    if svm is not None and finite is not None and finite.compatible:
        floor = data.entropy
        if isinstance(trained, Twin) and trained is not bias:
            floor = trained.loss_limit
    elif data.num_contexts * data.vocab_size > HELD and not bias.has_time_limit:
        missing.append(
            "no least loss: it would take minutes; a time limit (seconds=…) allows for it, and so "
            "does loss_floor(data)"
        )
    elif (bounds := known("least loss", lambda: bias.floor)) is not None:
        floor = bounds.lower
        if bounds.gap > 1e-6:  # what is asked of it
            missing.append(
                f"the least loss is known only to lie between {bounds.lower:.6g} and "
                f"{bounds.upper:.6g} nats: {bounds.ended}"
            )
    # One after the other, to save memory.
    each = [excess_loss(matrix, data) for matrix in W.reshape(-1, *W.shape[-2:])]
    excess = np.array(each).reshape(W.shape[:-2])
    return WeightComparison(
        **vars(_compared(W, finite, svm)),
        norm=np.linalg.norm(W, axis=(-2, -1)),
        loss=excess + data.entropy,
        excess=excess,
        margin=context_margins(W, bias),
        above_floor=excess + (data.entropy - floor),
        missing="\n".join(missing),
    )


def context_margins(W: FloatArray, bias: ImplicitBias) -> FloatArray:
    """Smallest margin in each context, of each matrix of a stack.

    Where each context is a group of its own, this takes a block of contexts at a time.

    Parameters
    ----------
    W : ndarray, shape (..., p, q)
    bias : ImplicitBias

    Returns
    -------
    ndarray, shape (..., m)
        See :class:`WeightComparison`.

    Examples
    --------
    >>> import numpy as np, ntpnb
    >>> from ntpnb.training.comparison import context_margins
    >>> data = ntpnb.NextTokenData([[1.0], [2.0]], [[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])
    >>> context_margins(np.array([[3.0], [2.0], [0.5]]), ntpnb.implicit_bias(data))
    array([1.5, inf])
    """
    data = bias.data
    flat = W.reshape(-1, *W.shape[-2:])
    margins = np.empty((len(flat), data.num_contexts))
    # Where each context is a group of its own, its support is one component: no order is needed.
    is_grouped = len(data.group_names) < data.num_contexts
    losers = dominated(data, bias.order) if is_grouped else None
    for rows in row_slices(data.block_shape):
        block = data.block(rows)
        counts = block.candidate_counts
        candidates = np.full_like(block.support, True) if counts is None else counts > 0
        loses = candidates & ~block.support if losers is None else losers[rows]
        ties = candidates & ~loses
        for k, matrix in enumerate(flat):
            S = bilinear_scores(matrix, block)
            lowest = np.where(ties, S, np.inf).min(axis=1)
            highest = np.where(loses, S, -np.inf).max(axis=1)
            margins[k, rows] = lowest - highest
    return margins.reshape(*W.shape[:-2], data.num_contexts)


@one_thread
def compare_with(
    W: FloatArray,
    finite: FinitePart | ImplicitBias,
    svm: MarginSolution | None = None,
    *,
    inside: FloatArray | None = None,
) -> Comparison:
    """Compare matrices with a bias, or with a finite part and a max-margin solution.

    Parameters
    ----------
    W : ndarray, shape (..., p, q)
    finite : FinitePart or ImplicitBias
        A bias holds both parts; ``svm`` may then be left out.
    svm : MarginSolution, optional
        Needed beside a finite part; beside a bias it takes the place of the bias's own, which may
        be one of another norm.
    inside : ndarray, shape (..., p, q), optional
        ``P_F W`` where the caller knows it better than the rounded ``W`` does.

    Returns
    -------
    Comparison
        With arrays of shape (...).

    Raises
    ------
    NotSeparableError, ConvergenceError
        The refusal of a bias that has no max-margin solution.
    TypeError
        A finite part without a max-margin solution.
    ValueError
        Matrices of other shapes than those parts, or ``inside`` of another one than ``W``.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.training import compare_with
    >>> bias = ntpnb.implicit_bias(ntpnb.datasets.toy())
    >>> compare_with(-bias.max_margin.W, bias).angle.round(6)
    np.float64(3.141593)
    """
    if isinstance(finite, ImplicitBias):
        bias = finite
        finite = bias.finite_part
        svm = bias.require_max_margin() if svm is None else svm
    require_type("finite", finite, FinitePart)
    if svm is None:
        raise TypeError("svm is missing; give a finite part and a max-margin solution, or a bias")
    require_type("svm", svm, MarginSolution)
    p, q = finite.W.shape
    W = as_matrices("W", W, (p, q))
    as_matrices("svm.W", svm.W, (p, q))
    if inside is not None and np.shape(inside) != W.shape:
        raise ValueError(f"inside has shape {np.shape(inside)}; it needs {W.shape}")
    return _compared(W, finite, svm, inside)


def _compared(
    W: FloatArray,
    finite: FinitePart | None,
    svm: MarginSolution | None,
    inside: FloatArray | None = None,
) -> Comparison:
    """Compare with the parts that are known; what needs another is nan."""
    unknown = np.full(W.shape[:-2], np.nan)
    angle, corrected, finite_error = unknown, unknown, unknown
    if svm is not None:
        angle = _angle(W, svm.W)
    if finite is not None:
        if inside is None:
            inside = finite.subspace.project(W)
        finite_error = np.linalg.norm(inside - finite.W, axis=(-2, -1))
    if svm is not None and finite is not None:
        corrected = np.cos(_angle(W - finite.W, svm.W))
    return Comparison(np.cos(angle), angle, corrected, finite_error)


def _angle(W: FloatArray, direction: FloatArray) -> FloatArray:
    """Angle in radians between matrices, shape (...); Kahan's formula, accurate near 0 and π."""
    largest = np.abs(W).max(axis=(-2, -1), keepdims=True)
    W = np.ldexp(W, -np.frexp(largest)[1])  # squares below 1e-308 would be lost
    W_norm = np.linalg.norm(W, axis=(-2, -1), keepdims=True)
    direction_norm = np.linalg.norm(direction, axis=(-2, -1), keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        u = W / W_norm
        v = direction / direction_norm
    twice_sine_of_half = np.linalg.norm(u - v, axis=(-2, -1))
    twice_cosine_of_half = np.linalg.norm(u + v, axis=(-2, -1))
    angle: FloatArray = 2 * np.arctan2(twice_sine_of_half, twice_cosine_of_half)
    return angle
