"""Level probabilities in many digits, from the integrals that define them.

P(k) = binom(n, k) E Φ(i x / √w)^k E Φ(x / √w)^(n − k),  w = S + k,  x ~ N(0, 1)
"""

import mpmath as mp

DIGITS = 30
LEFT_OUT = 1e-22  # terms that small, relative to the sum, end it


def normal_cdf(t):
    return mp.erfc(-t / mp.sqrt(2)) / 2


def line_sum(term, step):
    """Trapezoid rule on the whole line, from zero to both sides until terms are negligible."""
    total = term(mp.mpf(0))
    for sign in (-1, 1):
        count = 0
        value = total
        while count < 5 or abs(value) > LEFT_OUT * abs(total):
            count += 1
            value = term(sign * count * step)
            total += value
    return total * step


def by_definition(outside, support_size, k):
    """P(k) on the real axis, where for small n digits are lost that are there to lose."""
    with mp.workdps(2 * DIGITS):
        root = mp.sqrt(support_size + k)
        step = mp.mpf(1) / 8
        pooled = line_sum(lambda x: (mp.npdf(x) * normal_cdf(1j * x / root) ** k).real, step)
        below = line_sum(lambda x: mp.npdf(x) * normal_cdf(x / root) ** (outside - k), step)
        return mp.binomial(outside, k) * pooled * below


def by_shifted_lines(outside, support_size, k):
    """P(k) for any n, with each integral relative to its integrand's stationary value.

    In ``t = i x / √w`` the first runs along a vertical line, where it is moved half a width beside
    the saddle point: what it gives does not depend on the line.
    """
    with mp.workdps(DIGITS):
        n = mp.mpf(outside)
        w = mp.mpf(support_size + k)

        def log_pooled(t):
            return w * t**2 / 2 + k * mp.log(normal_cdf(t))

        def log_below(t):
            return -w * t**2 / 2 + (n - k) * mp.log(normal_cdf(t))

        def hazard(t):
            return mp.npdf(t) / normal_cdf(t)

        a = increasing_root(lambda t: w * t + k * hazard(t), -2000, 0)
        b = increasing_root(lambda t: w * t - (n - k) * hazard(t), 0, 40)
        at = a + mp.mpf(1) / 2 / mp.sqrt(w)
        step = 1 / mp.sqrt(support_size) / 8
        pooled = line_sum(lambda u: mp.exp(log_pooled(at + 1j * u) - log_pooled(at)).real, step)
        step = 1 / mp.sqrt(w + (n - k) * hazard(b) * (hazard(b) + b)) / 6
        below = line_sum(lambda u: mp.exp(log_below(b + u) - log_below(b)), step)
        log_ways = mp.loggamma(n + 1) - mp.loggamma(k + 1) - mp.loggamma(n - k + 1)
        scale = mp.exp(log_ways + log_pooled(at) + log_below(b))
        return w / (2 * mp.pi) * scale * pooled * below


def increasing_root(f, low, high):
    """Root of an increasing function, by bisection."""
    for _ in range(60):
        middle = mp.mpf(low + high) / 2
        if f(middle) < 0:
            low = middle
        else:
            high = middle
    return middle
