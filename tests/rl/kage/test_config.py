"""Configurations: the benchmark's keys, errors that name the place, pairs of one axis each."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from armillary.rl.kage.config import check_pair, differences, read
from armillary.rl.kage.errors import AssetError, AxisLeakError, ConfigError
from armillary.rl.kage.pairs import BASE, all_pairs, select, suites
from armillary.rl.kage.params import StaticCaps, load_config


def test_there_are_34_pairs_in_six_suites():
    counts = {axis: len(pairs) for axis, pairs in suites().items()}
    assert counts == {
        "background": 10,
        "agent_appearance": 5,
        "distractors": 6,
        "filters": 9,
        "effects": 3,
        "layout": 1,
    }


@pytest.mark.parametrize("pair", all_pairs(), ids=lambda p: p.id)
def test_each_pair_differs_in_its_axis_alone(pair):
    assert check_pair(pair.train, pair.eval) == pair.axis


def test_selecting_pairs():
    assert [p.id for p in select("filters-3,layout")] == ["filters-3", "layout-1"]
    assert len(select("all")) == 34
    with pytest.raises(ValueError, match="no suite or pair 'colour'"):
        select("colour")


def test_an_unknown_key_is_told_with_file_line_and_near_names(tmp_path):
    file = tmp_path / "look.yaml"
    file.write_text("H: 128\nfilters:\n  brigthness: 1.0\n")
    with pytest.raises(ConfigError) as told:
        load_config(file)
    for part in ("look.yaml, line 3", "'filters.brigthness'", "'filters.brightness'"):
        assert part in str(told.value)
    with pytest.raises(ConfigError, match=r"unknown key .filter.: did you mean .filters."):
        load_config({"filter": {}})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"layout": {"layout_colors": ["cyann"]}}, "unknown 'cyann': did you mean 'cyan'"),
        ({"character": {"shape_types": ["circel"]}}, "unknown 'circel': did you mean 'circle'"),
        ({"filters": {"pop_filter_list": ["noire"]}}, "unknown 'noire': did you mean 'noir'"),
        ({"filters": {"contrast": float("nan")}}, "a finite number is expected"),
        ({"filters": {"gaussian_noise_std": -1.0}}, "at least 0"),
        ({"H": -128}, "at least 16"),
        ({"layout": {"run_width": 0}}, "at least 1"),
        ({"layout": {"run_width": 2.5}}, "a whole number"),
        ({"background": {"mode": "image"}}, "needs image_dir"),
        ({"background": {"mode": "video"}}, "unknown 'video'"),
        ({"background": "black"}, "'background' holds keys"),
        ({"physics": {"move_speed": 1, "max_speed_x": 2}}, "mean the same"),
        ({"npc": {"min_npc_count": 6, "max_npc_count": 5}}, "exceeds"),
        ({"npc": {"enabled": "yes"}}, "true or false"),
        ({"character": {"use_shape": True, "use_sprites": True}}, "both true"),
        (
            {"character": {"use_sprites": True, "sprite_path": "art/dragon"}},
            "no character 'dragon'",
        ),
        ({"filters": {"radial_light_color": [1, 2]}}, "three whole numbers"),
    ],
)
def test_what_has_no_meaning_is_refused(given, told):
    with pytest.raises(ConfigError, match=told):
        load_config(given)


def test_extreme_values_of_the_benchmark_are_allowed():
    visual = load_config({"filters": {"contrast": 128.0, "vignette_strength": 10.0}}).visual
    assert float(visual.contrast) == 128.0


def test_no_yaml_and_no_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="no configuration file"):
        load_config(tmp_path / "absent.yaml")
    (tmp_path / "bad.yaml").write_text("a: [1")
    with pytest.raises(ConfigError, match="is no YAML"):
        load_config(tmp_path / "bad.yaml")
    (tmp_path / "list.yaml").write_text("- 1\n")
    with pytest.raises(ConfigError, match="a mapping of keys is expected"):
        load_config(tmp_path / "list.yaml")


def test_a_latent_difference_is_a_leak():
    other = copy.deepcopy(BASE)
    other["physics"]["gravity"] = 0.7
    other["layout"]["run_width"] = 20
    with pytest.raises(AxisLeakError, match=r"physics\.gravity") as told:
        check_pair(BASE, other)
    assert set(told.value.keys) == {"physics.gravity", "layout.run_width"}


def test_two_axes_or_none_are_a_leak():
    both = copy.deepcopy(BASE)
    both["filters"] = {"brightness": 1.0}
    both["layout"]["layout_colors"] = ["red"]
    with pytest.raises(AxisLeakError, match="in filters, layout"):
        check_pair(BASE, both)
    with pytest.raises(AxisLeakError, match="in nothing that is drawn"):
        check_pair(BASE, BASE)


def test_keys_that_nobody_reads_make_no_difference():
    other = copy.deepcopy(BASE)
    other["distractors"]["max_speed"] = 3.0
    other["background"]["color_names"] = ["red"]
    assert differences(BASE, other) == []


def test_empty_folders_and_unreadable_pictures(tmp_path):
    with pytest.raises(AssetError, match="holds no picture"):
        load_config({"background": {"mode": "image", "image_dir": str(tmp_path)}})
    with pytest.raises(AssetError, match="is no folder"):
        load_config({"background": {"mode": "image", "image_dir": str(tmp_path / "absent")}})
    with pytest.raises(AssetError, match="no such file, and no picture of the library"):
        load_config({"background": {"mode": "image", "image_path": "beach.png"}})
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no picture")
    from armillary.rl.kage.engine import Kage

    config = load_config({"background": {"mode": "image", "image_dir": str(tmp_path)}})
    with pytest.raises(AssetError, match=r"broken\.png"):
        Kage(config.caps).params(config)


def test_paths_are_relative_to_the_file(tmp_path):
    from PIL import Image

    Image.new("RGB", (40, 20), (10, 200, 30)).save(tmp_path / "own.png")
    file = tmp_path / "look.yaml"
    file.write_text("background:\n  mode: image\n  image_path: own.png\n")
    config = load_config(file)
    assert config.caps.image_files == (str(tmp_path / "own.png"),)


def test_the_defaults_are_the_librarys():
    flat = read({})
    assert flat["layout.run_width"] == 20
    assert flat["physics.move_speed"] == 3
    assert flat["dist_to_success"] == 490.0


def test_a_union_serves_all_and_other_worlds_are_refused():
    looks = [load_config(look) for p in all_pairs() for look in (p.train, p.eval)]
    union = StaticCaps.union([c.caps for c in looks])
    assert (union.npcs, union.stickies, union.distractors, union.lights) == (20, 5, 7, 4)
    assert all(c.caps.features <= union.features for c in looks)
    with pytest.raises(ConfigError, match="separate programs"):
        StaticCaps.union([union, load_config({"layout": {"run_width": 20}}).caps])


def test_values_reach_the_arrays():
    latent, visual, caps = load_config(BASE)
    assert float(latent.gravity) == 0.75
    assert float(latent.move_speed) == 1
    assert (int(latent.min_step), int(latent.max_step)) == (5, 17)
    assert np.asarray(visual.shape_colours)[0].tolist() == [0, 128, 128]
    assert caps.segments == 82
