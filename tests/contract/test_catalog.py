"""The catalogue finds other packages' methods, and a broken one harms nothing."""

from __future__ import annotations

import importlib.metadata
import sys
import types

import pytest

from armillary import catalog
from armillary.errors import UnknownMethod


def planted(name: str, slug: str) -> types.ModuleType:
    package, card = types.ModuleType(name), types.ModuleType(f"{name}.card")
    paper = catalog.Paper("A title", "Some authors", "A venue")
    card.CARD = catalog.Card(slug, "graph", "A title", "A gift", paper, ("a",))  # type: ignore
    sys.modules[name], sys.modules[f"{name}.card"] = package, card
    return package


def test_methods_of_other_packages_join_and_broken_ones_are_named(monkeypatch):
    points = [
        importlib.metadata.EntryPoint("ring", "planted_ring", catalog.ENTRY_POINT_GROUP),
        importlib.metadata.EntryPoint("again", "planted_again", catalog.ENTRY_POINT_GROUP),
        importlib.metadata.EntryPoint("gone", "no_such_package", catalog.ENTRY_POINT_GROUP),
    ]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points)
    planted("planted_ring", "planted-ring")
    planted("planted_again", "planted-ring")
    assert catalog.get("planted-ring").package == "planted_ring"
    reasons = {failure.name: failure.reason for failure in catalog.broken()}
    assert "no_such_package" in reasons["gone"]
    assert "is taken by planted_ring" in reasons["again"]


def test_an_unknown_slug_is_told():
    with pytest.raises(UnknownMethod, match="no method 'no-such-ring' in the catalogue"):
        catalog.get("no-such-ring")
