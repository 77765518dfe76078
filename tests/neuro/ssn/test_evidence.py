"""The experiments: splits that do not leak, statistics on planted tables, decoders by hand."""

from __future__ import annotations

import numpy as np
import pytest

from armillary.corpora import images
from armillary.evidence.shapes import Case, Cell, Row
from armillary.evidence.table import Table
from armillary.neuro.ssn import (
    evidence_data,
    evidence_front,
    evidence_labels,
    evidence_regimes,
    evidence_robustness,
)
from armillary.neuro.ssn.decoding import classifier, cosine, fit_decoders
from armillary.neuro.ssn.dynamics import UnstableNetwork
from armillary.neuro.ssn.evidence_data import SCENES, TEXTURES, encoder, fold, patch_case

CELL = Cell(patch_case(6, 16, 2, 200, 16), 1000, "smoke")


def test_every_photograph_is_a_scene_or_a_texture():
    named = [*TEXTURES, *(name for scene in SCENES for name in scene)]
    assert sorted(named) == sorted(images.PHOTOS)


@pytest.fixture
def used(monkeypatch) -> list[set[tuple[str, int]]]:
    """Which (photograph, half) each part of a fold was drawn from, in the order of drawing."""
    names, calls = list(images.PHOTOS), []

    def marked(name):
        image = np.full((40, 40), names.index(name), dtype=float)
        image[:, 20:] += 0.5
        return image

    def recorded(given, size, count, rng):
        marks = {float(v) for image in given for v in np.unique(image)}
        calls.append({(names[int(v)], int(v % 1 * 2)) for v in marks})
        return rng.uniform(size=(count, size * size))

    monkeypatch.setattr(evidence_data.images, "photo", marked)
    monkeypatch.setattr(evidence_data, "draw_patches", recorded)
    evidence_data._fold.cache_clear()
    yield calls
    evidence_data._fold.cache_clear()


@pytest.mark.parametrize("seed", range(1000, 1006))
def test_decoding_is_tested_on_images_that_nobody_learned_from(used, seed):
    fold(Cell(CELL.case, seed, "smoke"))
    learn, fit, validation, test, texture_fit, texture_test = used
    assert fit == validation == learn
    tested = {name for name, _ in test}
    assert not tested & {name for name, _ in learn}
    assert tested | {name for name, _ in learn} == set(images.PHOTOS)
    assert len(tested & {"motorcycle_left", "motorcycle_right"}) in (0, 2)  # two views of one scene
    assert texture_fit == {(name, 0) for name in TEXTURES}  # left halves
    assert texture_test == {(name, 1) for name in TEXTURES}
    assert not texture_test & learn


def test_patches_of_the_experiments_have_full_contrast():
    data = fold(CELL)
    for patches in (data.fit, data.validation, data.test, data.texture_fit[0]):
        np.testing.assert_allclose(data.whitening.directions(patches).norm, 1, rtol=1e-9)
    model = encoder(CELL)
    np.testing.assert_allclose(model.encode(data.test).contrast, 2.0, rtol=1e-5)


def test_ours_is_read_by_the_decoder_that_serves_the_network_without_lateral_best():
    work = evidence_robustness.setup(CELL)
    low = evidence_robustness.Degradation(0.1, 0.0)
    assert work.intercept[low] is np.False_ or work.intercept[low] is False
    features = evidence_robustness.rates_of(work.encoder.ablate())
    decoders = fit_decoders(features(work.fold.fit), work.fold.target(work.fold.fit))
    chosen = evidence_robustness.best_intercept(features, decoders, work)
    assert chosen == work.intercept


def test_a_decoder_without_intercept_reads_a_proportional_code_at_any_contrast():
    """The null of the low-contrast claim: roots of feed-forward rates lose nothing."""
    work = evidence_robustness.setup(CELL)
    features = evidence_robustness.rates_of(work.encoder.ablate())
    decoders = fit_decoders(features(work.fold.fit), work.fold.target(work.fold.fit))
    target = work.fold.target(work.fold.test)
    plain = [cosine(decoders.decode(features(c * work.fold.test), False), target) for c in (1, 0.1)]
    assert plain[1] == pytest.approx(plain[0], rel=1e-6)
    affine = cosine(decoders.decode(features(0.01 * work.fold.test), True), target)
    assert affine < plain[0]


def table(cells: list[dict[str, dict[str, float]]]) -> Table:
    rows = [
        Row("ssn", "e", "full", "c", seed, who, metrics=metrics)
        for seed, contenders in enumerate(cells)
        for who, metrics in contenders.items()
    ]
    return Table.from_rows(rows, [Case("c")], "seed")


def points(spikes: list[float], accuracy: list[float]) -> dict[str, float]:
    contrasts = evidence_front.CONTRASTS
    return {
        **{f"spikes, contrast {c:g}": s for c, s in zip(contrasts, spikes, strict=True)},
        **{f"accuracy, contrast {c:g}": a for c, a in zip(contrasts, accuracy, strict=True)},
    }


def swept(cost: float, accuracy: float) -> dict[str, dict[str, float]]:
    """Every rival at all gains: so many spikes and such an accuracy, by the gain."""
    names = [list(sweep) for sweep in evidence_front.SWEEPS.values()]
    return {
        who: points([cost * g] * 5, [accuracy + 0.1 * np.log10(g)] * 5)
        for sweep in names
        for who, g in zip(sweep, evidence_front.GAINS, strict=True)
    }


def test_the_lead_on_the_front_is_over_rivals_that_cost_no_more():
    lead = evidence_front.lead_at(1.0)
    ours = points([1, 2, 3, 20, 5], [0.1, 0.3, 0.4, 0.6, 0.9])
    # A rival of 100 spikes and accuracy 0.8 is scaled down to our 20 spikes, between two gains.
    assert lead(table([{"ours": ours, **swept(100, 0.8)}])) == pytest.approx(
        0.6 - (0.8 + 0.1 * np.log10(0.2))
    )
    # One that is cheaper as it is counts in full; one that cannot be as cheap does not count.
    assert lead(table([{"ours": ours, **swept(10, 0.7)}])) == pytest.approx(-0.1)
    assert lead(table([{"ours": ours, **swept(1e4, 0.8)}])) is None
    # Another contrast has another cost.
    assert evidence_front.lead_at(2.0)(table([{"ours": ours, **swept(5, 0.7)}])) == pytest.approx(
        0.2
    )


def test_rivals_of_the_front_are_scaled_before_spikes_are_drawn():
    work = evidence_front.setup(CELL)
    plain, tenth = (evidence_front.without_lateral(g)(work, CELL) for g in (1.0, 0.1))
    assert tenth["spikes, contrast 1"] == pytest.approx(0.1 * plain["spikes, contrast 1"])
    soft, hard = (evidence_front.divisive(s, 1.0)(work, CELL) for s in (2.0, 0.125))
    assert hard["spikes, contrast 2"] < soft["spikes, contrast 2"] < plain["spikes, contrast 2"]


def test_ours_is_read_by_its_own_best_decoder_against_rivals():
    work = evidence_robustness.setup(CELL)
    found = evidence_robustness.ours_own_decoder(work, CELL)
    features = evidence_robustness.rates_of(work.encoder)
    decoders = fit_decoders(features(work.fold.fit), work.fold.target(work.fold.fit))
    chosen = evidence_robustness.best_intercept(features, decoders, work)
    by = evidence_robustness.GRID[8]
    expected = cosine(
        decoders.decode(features(work.test[by]), chosen[by]), work.fold.target(work.fold.test)
    )
    assert found[f"cosine, {by}"] == pytest.approx(expected)
    against = {c.id: c for c in evidence_robustness.ROBUSTNESS.claims}
    for name in ("low-contrast-against-all", "every-degradation-against-all"):
        assert {c.stat.of for c in against[name].conditions} == {"ours-own-decoder"}
    assert against["low-contrast-features"].conditions[0].stat.of == "ours"


@pytest.mark.parametrize(
    ("exponents", "expected"),
    [
        ([2, 1.5, 0.5, 0.1], 0.1 * 10**1.5),  # halfway between 1 and 10, in logarithms
        ([2, 2, 2, 2], 100.0),
        ([0.5, 0.4, 0.3, 0.2], 0.1),
    ],
)
def test_the_crossing_contrast_by_hand(exponents, expected):
    contrasts = np.array([0.1, 1.0, 10.0, 100.0])
    assert evidence_regimes.crossing(contrasts, np.array(exponents)) == pytest.approx(expected)


def test_ablations_change_what_they_say_and_keep_the_rest():
    model = encoder(CELL)
    even = evidence_regimes.even_inhibition(model)
    np.testing.assert_allclose(even.network_.w_ei.sum(1), model.network_.w_ei.sum(1), rtol=1e-5)
    assert float(even.network_.w_ei.std()) < 1e-6 < float(model.network_.w_ei.std())
    lone = evidence_regimes.no_excitation(model, fold(CELL))
    assert float(lone.network_.w_ee.abs().sum()) == 0
    assert float(model.network_.w_ee.sum()) > 0
    x = fold(CELL).test
    assert np.abs(lone.transform(x) - model.transform(x)).max() > 1e-6


def test_uniform_inhibition_lowers_the_excitation_until_nothing_runs_away(monkeypatch):
    tried = []

    def figures(model, data):
        tried.append(model.totals_)
        if len(tried) < 4:
            raise UnstableNetwork("rates ran away")
        return {"excitation held": model.totals_[0] / model.J[0]}

    monkeypatch.setattr(evidence_regimes, "figures", figures)
    found = evidence_regimes.uniform_inhibition(fold(CELL), CELL)
    assert found["excitation held"] == pytest.approx(tried[0][0] / encoder(CELL).J[0] * 0.98**3)
    assert {totals[1:] for totals in tried} == {encoder(CELL).totals_[1:]}


def test_images_to_learn_from_and_to_tell_apart_do_not_overlap_and_have_full_contrast():
    case = evidence_labels.LABELS.cases["smoke"][0]
    work = evidence_labels.setup(Cell(case, 1000, "smoke"))
    rows = {row.tobytes() for row in work.learn.round(6)}
    clean = work.test[evidence_labels.Degradation(1.0, 0.0)]
    assert not rows & {row.tobytes() for row in clean.round(6)}
    np.testing.assert_allclose(work.encoder.encode(work.learn).contrast, 2.0, rtol=1e-4)
    # Unit-norm codes that are proportional to contrast are told apart alike at every contrast.
    found = evidence_labels.without_lateral(work, Cell(case, 1000, "smoke"))
    assert found["accuracy, contrast 0.1, noise 0"] == found["accuracy, contrast 1, noise 0"] > 0.3


def test_decoders_find_a_linear_code_and_a_classifier_clusters():
    rng = np.random.default_rng(0)
    target, mix = rng.normal(size=(300, 5)), rng.normal(size=(5, 8))
    decoders = fit_decoders(target @ mix + 2.0, target)
    assert cosine(decoders.decode(target @ mix + 2.0, True), target) > 0.999
    assert cosine(np.zeros((4, 5)), target[:4]) == 0
    labels = np.repeat([0, 1, 2], 100)
    centres = np.eye(3)[labels] + 0.1 * rng.normal(size=(300, 3))
    accuracy = classifier(centres, labels)
    assert accuracy(5 * centres, labels) > 0.98  # size is not seen
    assert accuracy(np.zeros((3, 3)), np.array([0, 1, 2])) == pytest.approx(1 / 3)
