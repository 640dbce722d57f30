"""Ranks over data sets and what they show: Friedman, exact Wilcoxon with Holm, cliques, bootstrap, correlation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]
ALPHA = 0.05
FEWEST = 5
"""Data sets below which nothing is said about how uncertain a mean or a correlation over them is."""


def ranks(values: Array) -> Array:
    """Rank of every column within its row, 1 for the largest; equal values share the mean.  # [data sets, models]

    >>> ranks(np.array([[90.0, 95.0, 90.0]])).tolist()
    [[2.5, 1.0, 2.5]]
    """
    return np.asarray(stats.rankdata(-np.asarray(values, dtype=float), axis=1), dtype=float)


@dataclass(frozen=True)
class Friedman:
    """Whether models differ at all: Friedman's chi-square, and Iman and Davenport's F from it."""

    chi2: float
    chi2_p: float
    f: float
    f_p: float
    datasets: int
    models: int


def friedman(values: Array) -> Friedman:
    """Friedman's test in both forms, corrected for ties.  # [data sets, models]

    >>> test = friedman(np.array([[3.0, 2, 1], [3, 2, 1], [3, 1, 2], [3, 2, 1]]))
    >>> round(test.chi2, 2), round(test.f, 2)
    (6.5, 13.0)
    """
    rows, columns = values.shape
    rank = ranks(values)
    ties = sum(
        float((count**3 - count).sum()) for count in (np.unique(row, return_counts=True)[1] for row in rank)
    )
    correction = 1 - ties / (rows * (columns**3 - columns))
    spread = float(((rank.sum(0) - rows * (columns + 1) / 2) ** 2).sum())
    chi2 = 12 * spread / (rows * columns * (columns + 1)) / correction if correction else math.nan
    most = rows * (columns - 1)
    f = math.inf if math.isclose(chi2, most) else (rows - 1) * chi2 / (most - chi2)
    freedom = columns - 1
    chi2_p, f_p = float(stats.chi2.sf(chi2, freedom)), float(stats.f.sf(f, freedom, freedom * (rows - 1)))
    return Friedman(chi2, chi2_p, f, f_p, rows, columns)


def wilcoxon(first: Array, second: Array) -> float:
    """Two-sided p of Wilcoxon's signed-rank test: exact, also with ties, and with Pratt's zeros.

    Pratt ranks the zeros along with the other differences, then drops them. The distribution is that of all signs
    of the remaining differences, given their ranks.

    >>> wilcoxon(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.0, 0.0, 0.0, 0.0]))
    0.125
    """
    difference = np.round(np.asarray(first, dtype=float) - np.asarray(second, dtype=float), 10)
    rank = stats.rankdata(np.abs(difference))[difference != 0]
    if not len(rank):
        return 1.0
    doubled = np.rint(2 * rank).astype(int)  # ties have ranks of halves
    ways = np.zeros(doubled.sum() + 1)  # number of choices of signs by the sum of positive ranks
    ways[0] = 1
    for each in doubled:
        ways[each:] += ways[:-each].copy()
    observed = int(doubled[difference[difference != 0] > 0].sum())
    tail = min(ways[: observed + 1].sum(), ways[observed:].sum())
    return float(min(1.0, 2 * tail / ways.sum()))


def holm(p: Sequence[float]) -> list[float]:
    """P-values adjusted by Holm's method, in the order given.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted, largest = [0.0] * len(p), 0.0
    for place, index in enumerate(sorted(range(len(p)), key=lambda number: p[number])):
        largest = max(largest, min(1.0, (len(p) - place) * p[index]))
        adjusted[index] = largest
    return adjusted


def pairwise(values: Array) -> tuple[Array, Array]:
    """Wilcoxon's p for every pair of columns, raw and adjusted by Holm over all pairs.  # [models, models] each"""
    columns = values.shape[1]
    pairs = [(i, j) for i in range(columns) for j in range(i + 1, columns)]
    raw = [wilcoxon(values[:, i], values[:, j]) for i, j in pairs]
    tables = np.ones((2, columns, columns))
    for (i, j), single, adjusted in zip(pairs, raw, holm(raw), strict=True):
        tables[0, i, j] = tables[0, j, i] = single
        tables[1, i, j] = tables[1, j, i] = adjusted
    return tables[0], tables[1]


def cliques(values: Array, alpha: float = ALPHA) -> list[list[int]]:
    """Maximal groups of models that do not differ, pair by pair; all of them if Friedman finds no difference.

    Groups are sorted by rank. One whose span of average ranks lies within another's is left out.
    """
    average = ranks(values).mean(0)
    columns = values.shape[1]
    order = sorted(range(columns), key=lambda number: average[number])
    if not friedman(values).chi2_p < alpha:
        return [order]
    alike = pairwise(values)[1] >= alpha
    neighbors = {i: {j for j in range(columns) if j != i and alike[i, j]} for i in range(columns)}
    groups = [sorted(group, key=order.index) for group in _maximal(set(), set(neighbors), set(), neighbors)]
    groups = sorted((group for group in groups if len(group) > 1), key=lambda g: (average[g[0]], -average[g[-1]]))
    kept: list[list[int]] = []
    for group in groups:
        if not any(
            average[each[0]] <= average[group[0]] and average[group[-1]] <= average[each[-1]] for each in kept
        ):
            kept.append(group)
    return kept


def _maximal(
    chosen: set[int], open_: set[int], done: set[int], neighbors: dict[int, set[int]]
) -> Iterator[set[int]]:
    """Bron and Kerbosch: the maximal sets of nodes that are all neighbours of each other."""
    if not open_ and not done:
        yield chosen
    for node in sorted(open_):
        yield from _maximal(chosen | {node}, open_ & neighbors[node], done & neighbors[node], neighbors)
        open_, done = open_ - {node}, done | {node}


@dataclass(frozen=True)
class Sample:
    """The results of one model on one data set: those of its seeds, or mean, deviation and runs as published."""

    seeds: dict[int, float]
    published: tuple[float, float, int] | None = None

    def draws(self, count: int, random: np.random.Generator, seeds: Array | None = None) -> Array:
        """Means over resampled seeds (rows of `seeds`, or drawn anew), or over as many normal draws.  # [count]"""
        if self.published is not None:
            mean, std, runs = self.published
            return random.normal(mean, std / math.sqrt(runs), size=count)
        if seeds is None:
            names = np.array(sorted(self.seeds))
            seeds = names[random.integers(len(names), size=(count, len(names)))]
        order = sorted(self.seeds)
        values = np.array([self.seeds[seed] for seed in order])
        return np.asarray(values[np.searchsorted(order, seeds)].mean(1), dtype=float)


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % interval; without one (NaN) where there are too few data sets to say."""

    mean: float
    low: float
    high: float


def paired_bootstrap(
    first: Sequence[Sample], second: Sequence[Sample], draws: int = 2000, seed: int = 0
) -> Interval:
    """Mean difference over data sets, with the percentile interval from resampling data sets and, in each, seeds.

    Where both models have the same seeds, these are drawn together: they were measured on the same events.
    """
    mean = float(np.mean([_center(a) - _center(b) for a, b in zip(first, second, strict=True)]))
    if len(first) < FEWEST:
        return Interval(mean, math.nan, math.nan)
    random = np.random.default_rng(seed)
    picked = random.integers(len(first), size=(draws, len(first)))
    differences = np.zeros(picked.shape)
    for number, (a, b) in enumerate(zip(first, second, strict=True)):
        chosen = picked == number
        differences[chosen] = _differences(a, b, int(chosen.sum()), random)
    low, high = np.quantile(differences.mean(1), [0.025, 0.975]).tolist()
    return Interval(mean, low, high)


def _differences(first: Sample, second: Sample, count: int, random: np.random.Generator) -> Array:
    """Resampled differences on one data set; the same seeds are drawn together, others apart.  # [count]"""
    common = np.array(sorted(first.seeds)) if first.seeds.keys() == second.seeds.keys() else np.array([])
    seeds = common[random.integers(len(common), size=(count, len(common)))] if len(common) else None
    return first.draws(count, random, seeds) - second.draws(count, random, seeds)


def _center(sample: Sample) -> float:
    return sample.published[0] if sample.published is not None else float(np.mean(list(sample.seeds.values())))


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> Interval:
    """Spearman's correlation with its 95 % interval by Bonett and Wright; without one below five points.

    >>> correlation = rank_correlation([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 6, 5])
    >>> round(correlation.mean, 3), round(correlation.low, 2), round(correlation.high, 2)
    (0.943, 0.38, 1.0)
    """
    rho = float(stats.spearmanr(first, second).statistic)
    if len(first) < FEWEST or not math.isfinite(rho):
        return Interval(rho, math.nan, math.nan)
    error = math.sqrt((1 + rho**2 / 2) / (len(first) - 3))
    middle = math.atanh(min(max(rho, -0.999999), 0.999999))
    return Interval(rho, math.tanh(middle - 1.959964 * error), math.tanh(middle + 1.959964 * error))
