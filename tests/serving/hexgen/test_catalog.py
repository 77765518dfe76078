"""The catalogue of GPUs, and what it refuses."""

from __future__ import annotations

import pytest

from armillary.serving.hexgen import Catalog, UnknownGpuError


def write(tmp_path, text: str):
    path = tmp_path / "gpus.yaml"
    path.write_text(text)
    return path


def test_paper_prices_give_the_paper_fleets() -> None:
    """16 H100 cost 49.12 an hour, 8 H100 and 16 H20 cost 54.16."""
    paper = Catalog.load(book="paper")
    assert 16 * paper["h100"].price == pytest.approx(49.12)
    assert 8 * paper["h100"].price + 16 * paper["h20"].price == pytest.approx(54.16)
    assert paper["h20"].estimated
    assert not paper["h100"].estimated


def test_books_hold_their_own_gpus() -> None:
    assert set(Catalog.load().gpus) == {"h100", "h200", "a100", "l40s", "b200"}
    assert set(Catalog.load(book="spot").gpus) == {"h100", "a100", "l40s"}


def test_own_file_overrides_single_fields(tmp_path) -> None:
    path = write(tmp_path, "gpus: {h100: {price: 2.5, inventory: 4}}")
    own = Catalog.load(path)
    assert own["h100"].price == 2.5
    assert own["h100"].inventory == 4
    assert own["h100"].bandwidth == Catalog.load()["h100"].bandwidth


def test_own_gpu_needs_four_fields(tmp_path) -> None:
    whole = "gpus: {mine: {memory: 4.8e10, bandwidth: 1e12, flops: 1e14, price: 1.0}}"
    assert Catalog.load(write(tmp_path, whole))["mine"].estimated
    with pytest.raises(UnknownGpuError, match=r"bandwidth, flops missing"):
        Catalog.load(write(tmp_path, "gpus: {mine: {memory: 4.8e10, price: 1.0}}"))


def test_unknown_gpu_names_the_nearest() -> None:
    with pytest.raises(UnknownGpuError, match=r"nearest: .*h100"):
        Catalog.load()["h1000"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpus: {h100: {price: 0}}", "above 0"),
        ("gpus: {h100: {price: dear}}", "no number"),
        ("gpus: {h100: {price: 1, inventory: -1}}", "negative"),
        (
            "gpus: {h100: {currency: USD, price: 1}, a100: {currency: EUR, price: 1}}",
            "one currency",
        ),
        ("gpus: {}", "empty"),
        ("- h100", "needs `gpus:`"),
        ("gpus: {h100: [", "no YAML"),
    ],
)
def test_broken_catalogues_are_refused(tmp_path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Catalog.load(write(tmp_path, text))


def test_unknown_book_is_refused() -> None:
    with pytest.raises(ValueError, match="no such price book"):
        Catalog.load(book="tomorrow")


def test_missing_file_is_told(tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match="no such catalogue"):
        Catalog.load(tmp_path / "none.yaml")


def test_fingerprint_changes_with_a_price(tmp_path) -> None:
    one = Catalog.load(write(tmp_path, "gpus: {h100: {price: 2}}")).fingerprint
    two = Catalog.load(write(tmp_path, "gpus: {h100: {price: 3}}")).fingerprint
    assert one != two
    assert Catalog.load().fingerprint == Catalog.load().fingerprint
