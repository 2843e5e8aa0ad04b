"""Names for the arrays that functions take and return; their shapes stand in the docstrings."""

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import sparray, spmatrix

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]
BoolArray = npt.NDArray[np.bool_]
AnyPrecision = npt.NDArray[Any]  # of floats, in single or double precision
Sparse = sparray | spmatrix  # of any of scipy's formats
