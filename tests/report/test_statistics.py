"""The tests of significance equal those of scipy and scikit-posthocs on the published numbers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dsrd.report.published import published_cells
from dsrd.report.statistics import (
    Interval,
    Sample,
    cliques,
    friedman,
    holm,
    paired_bootstrap,
    pairwise,
    rank_correlation,
    ranks,
    wilcoxon,
)

VIEWS = sorted({(cell.setting, cell.negatives, cell.metric) for cell in published_cells()})
every_view = pytest.mark.parametrize("view", VIEWS, ids="-".join)


def published(view: tuple[str, str, str]) -> tuple[list[str], np.ndarray]:
    """Models and their means, a row for each data set."""
    cells = [cell for cell in published_cells() if (cell.setting, cell.negatives, cell.metric) == view]
    models, datasets = ([*dict.fromkeys(getattr(cell, name) for cell in cells)] for name in ("model", "dataset"))
    by_place = {(cell.dataset, cell.model): cell.mean for cell in cells}
    return models, np.array([[by_place[dataset, model] for model in models] for dataset in datasets])


def has_ties(difference: np.ndarray) -> bool:
    """Whether there are equal differences, or a zero."""
    size = np.round(np.abs(difference), 10)
    return len(np.unique(size)) < len(size) or not size.all()


@every_view
def test_friedman_is_that_of_scipy(view: tuple[str, str, str]):
    _, values = published(view)
    test, theirs = friedman(values), stats.friedmanchisquare(*values.T)
    assert (test.chi2, test.chi2_p) == pytest.approx((theirs.statistic, theirs.pvalue), rel=1e-9)
    rows, columns = values.shape
    f = (rows - 1) * theirs.statistic / (rows * (columns - 1) - theirs.statistic)
    assert test.f == pytest.approx(f)
    assert test.f_p == pytest.approx(stats.f.sf(f, columns - 1, (columns - 1) * (rows - 1)))


def test_friedman_on_the_first_published_table():
    """Figures that were known before."""
    test = friedman(published(("transductive", "random", "ap"))[1])
    assert round(test.chi2, 1) == 96.9
    assert test.chi2_p == pytest.approx(7e-16, rel=0.05)
    assert (test.datasets, test.models) == (13, 12)


@every_view
def test_wilcoxon_is_that_of_scipy(view: tuple[str, str, str]):
    """Where differences have neither ties nor zeros scipy has it exact; otherwise it counts all signs itself."""
    _, values = published(view)
    for i, j in itertools.combinations(range(values.shape[1]), 2):
        difference = np.round(values[:, i] - values[:, j], 10)
        ties = has_ties(difference)
        if ties and (i + j) % 5:
            continue  # counting all signs takes scipy long; every fifth pair with ties will do
        method = stats.PermutationMethod(n_resamples=np.inf) if ties else "exact"
        theirs = stats.wilcoxon(difference, zero_method="pratt", method=method)
        assert wilcoxon(values[:, i], values[:, j]) == pytest.approx(theirs.pvalue, rel=1e-9), (i, j)


@every_view
def test_pairs_with_holm_are_those_of_scikit_posthocs(view: tuple[str, str, str]):
    posthocs = pytest.importorskip("scikit_posthocs", reason="scikit-posthocs is not installed")
    models, values = published(view)
    pairs = itertools.combinations(range(len(models)), 2)
    if any(has_ties(values[:, i] - values[:, j]) for i, j in pairs):
        values = values + np.random.default_rng(0).normal(0, 1e-5, values.shape)  # its exact p assumes none
    raw, adjusted = pairwise(values)
    options = {"method": "exact", "zero_method": "pratt"}
    upper = np.triu_indices(len(models), 1)
    theirs = posthocs.posthoc_wilcoxon(values.T, **options).to_numpy()
    np.testing.assert_allclose(raw[upper], theirs[upper], rtol=1e-9)
    theirs = posthocs.posthoc_wilcoxon(values.T, **options, p_adjust="holm").to_numpy()
    np.testing.assert_allclose(adjusted[upper], theirs[upper], rtol=1e-9)


def test_average_ranks_are_those_the_papers_print(paper: Any):
    """Of the published rows in all twelve tables, and of the table of nodes with the figures it is made from.

    The first paper gives tied models the better place, the second the mean of their places, as we do.
    """
    for view in VIEWS:
        models, values = published(view)
        printed = [paper["printed_average_ranks"]["/".join(view)][model] for model in models]
        better = stats.rankdata(-values, axis=1, method="min")
        np.testing.assert_allclose(better.mean(0), printed, atol=0.0051)
        alone = (better == stats.rankdata(-values, axis=1, method="max")).all(0)
        np.testing.assert_allclose(ranks(values).mean(0)[alone], np.array(printed)[alone], atol=0.0051)
        assert alone.sum() > 5
    nodes = paper["nodes"]
    averages = ranks(np.array(list(nodes["auc"].values()))).mean(0)
    reddit = nodes["auc"]["Reddit"]
    assert len(set(reddit)) < len(reddit), "a tie, which shares the mean"
    assert averages == pytest.approx(nodes["average_ranks"], abs=0.0051)


def test_the_rank_figure_fits_the_published_rows_in_part(paper: Any):
    """Its 14 data sets are the 13 published ones and one more, with a new model: a sum of ranks then grows by the
    rank on the new data set, and by one for each old one on which the new model is above.

    That is possible for one baseline in every row, and for others not: the figure has other numbers for them.
    """
    views = itertools.product(("transductive", "inductive"), ("random", "historical", "inductive"))
    for number, view in enumerate(views):
        for metric, figure in paper["rank_figure"].items():
            names, values = published((*view, metric.lower()))
            kept = [name for name in names if name != "edgebank"]  # the figure leaves it out
            own = ranks(values[:, [names.index(name) for name in kept]]).sum(0)
            above = round(14 * figure["DSRD"][number]) - 14  # pairs of a model and a data set above the new model
            grown = {
                name: 14 * average[number] - own[kept.index(name.lower())]
                for name, average in figure.items()
                if name.lower() in kept
            }
            fits = {name for name, by in grown.items() if 13 - above + 1 <= by <= 13 + 12}
            assert "TPNet" in fits, (view, metric)
            assert fits < set(grown)


def test_holm_is_that_of_statsmodels():
    multitest = pytest.importorskip("statsmodels.stats.multitest", reason="statsmodels is not installed")
    p = np.random.default_rng(1).random(40) ** 3
    assert holm(p.tolist()) == pytest.approx(multitest.multipletests(p, method="holm")[1])


def test_wilcoxon_counts_signs_by_hand():
    """Two zeros and a tie: Pratt's ranks are 3.5, 3.5 and 5 of five; the observed sum of positive ones is 8.5."""
    first, second = np.array([1.0, 2.0, 4.0, 5.0, 0.0]), np.array([1.0, 2.0, 3.0, 4.0, 2.0])
    sums = [sum(kept) for size in range(4) for kept in itertools.combinations((3.5, 3.5, 5), size)]
    observed = 7.0
    tail = min(sum(each <= observed for each in sums), sum(each >= observed for each in sums))
    assert wilcoxon(first, second) == min(1.0, 2 * tail / 8)
    assert wilcoxon(first, first) == 1.0


def test_cliques_join_models_that_do_not_differ():
    noise = np.random.default_rng(0).normal(0, 0.1, (14, 4))
    values = np.array([90.0, 89.99, 70.0, 69.99]) + noise
    assert [sorted(group) for group in cliques(values)] == [[0, 1], [2, 3]]
    assert [sorted(group) for group in cliques(noise)] == [[0, 1, 2, 3]], "Friedman finds no difference"
    assert cliques(np.array([90.0, 80.0, 70.0]) + noise[:, :3]) == []


def test_cliques_of_the_published_rows():
    """No two of a group differ; the first and a model far behind it do."""
    models, values = published(("transductive", "random", "ap"))
    _, adjusted = pairwise(values)
    groups = cliques(values)
    assert groups
    for group in groups:
        assert all(adjusted[i, j] >= 0.05 for i, j in itertools.combinations(group, 2))
    first = models.index("tpnet")
    assert not any(first in group and models.index("jodie") in group for group in groups)


def test_the_paired_bootstrap_covers_the_difference():
    random = np.random.default_rng(3)
    seeds = random.normal(0, 5, (8, 3))  # what seeds share cancels between the models
    first = [Sample({seed: 80 + shared + 1 for seed, shared in enumerate(row)}) for row in seeds]
    second = [Sample({seed: 80 + shared for seed, shared in enumerate(row)}) for row in seeds]
    assert paired_bootstrap(first, second) == Interval(pytest.approx(1), pytest.approx(1), pytest.approx(1))
    published_row = [Sample({}, (80.0, 1.0, 5))] * 8
    interval = paired_bootstrap(first, published_row)
    assert interval.low < interval.mean < interval.high
    assert interval.mean == pytest.approx(1 + seeds.mean())


def test_a_bootstrap_over_few_data_sets_has_no_interval():
    first, second = [Sample({0: 81.0, 1: 82.0})] * 4, [Sample({0: 80.0})] * 4
    few = paired_bootstrap(first, second)
    assert few.mean == pytest.approx(1.5)
    assert np.isnan([few.low, few.high]).all()


def test_seeds_that_only_one_model_has_count_as_well():
    first, second = [Sample({0: 81.0, 1: 85.0})] * 6, [Sample({0: 80.0})] * 6
    interval = paired_bootstrap(first, second)
    assert interval.mean == pytest.approx(3)
    assert interval.low < 2.9 < 3.1 < interval.high


def test_the_bootstrap_interval_is_as_wide_as_theory_says():
    random = np.random.default_rng(4)
    gaps = random.normal(2, 3, 40)
    first = [Sample({0: 50 + gap}) for gap in gaps]
    interval = paired_bootstrap(first, [Sample({0: 50.0})] * 40, draws=8000)
    half = 1.96 * gaps.std() / np.sqrt(40)
    assert (interval.high - interval.low) / 2 == pytest.approx(half, rel=0.08)


def test_rank_correlation_has_an_interval_from_five_points_on():
    few = rank_correlation([1, 2, 3, 4], [1, 2, 3, 4])
    assert few.mean == pytest.approx(1)
    assert np.isnan(few.low)
    many = rank_correlation(range(50), [*range(25), *range(50, 25, -1)])
    assert -1 < many.low < many.mean < many.high < 1
