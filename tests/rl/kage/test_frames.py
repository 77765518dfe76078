"""Frames: shapes, slots and filters against closed forms; the world never shows in what changes."""

from __future__ import annotations

import copy
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from armillary.rl.kage import assets, filters, noise, shapes, world
from armillary.rl.kage.draw import KINDS, pack, unpack
from armillary.rl.kage.engine import Kage, Mode, check_room, state_bytes
from armillary.rl.kage.pairs import BASE, any_config, suites
from armillary.rl.kage.palettes import CHARACTERS, SHAPES
from armillary.rl.kage.params import StaticCaps, load_config

GROUPS = {
    "filters": [look for pair in suites()["filters"] for look in (pair.train, pair.eval)],
    "shapes": [
        {**BASE, "character": {"use_shape": True, "shape_rotate": True}},
        {**BASE, "character": {}},
        {**BASE, "background": {"mode": "color", "switch_frequency": 0.5}},
    ],
}


@functools.cache
def program(caps: StaticCaps, mode: Mode, size: int | None):
    """Compiled once a test run: a frame after so many steps of the expert."""
    kage = Kage(caps, mode, size)

    def run(key, steps, params):
        def step(_, state):
            return kage.step(state, world.expert(state.world, caps), params)[0]

        return kage.render(jax.lax.fori_loop(0, steps, step, kage.reset(key, params)), params)

    return kage, jax.jit(run)


def frame_of(config: dict, steps: int = 0, mode: Mode = "rgb", size=None, group="") -> np.ndarray:
    """A frame in the program of a group of looks, or in the configuration's own."""
    ready = load_config(config)
    looks = [load_config(look).caps for look in GROUPS.get(group, [])]
    kage, run = program(StaticCaps.union(looks) if looks else ready.caps, mode, size)
    return np.asarray(run(jax.random.PRNGKey(0), steps, kage.params(ready)))


def test_the_plainest_frame_pixel_by_pixel(kage, params):
    """Ground from its tops, one column at a time; the agent's circle of radius 8."""
    state = jax.jit(kage.reset)(jax.random.PRNGKey(4), params)
    frame = np.asarray(jax.jit(kage.render)(state, params))
    expected = np.zeros((128, 128, 3), np.uint8)
    tops = np.asarray(state.world.tops).astype(int)
    camera = round(float(state.world.camera_x))
    for column in range(128):
        c = column + camera
        top, before = tops[c // 25], tops[max(c - 1, 0) // 25]
        expected[top : top + 2, column] = (0, 255, 255)
        expected[min(top, before) : max(top, before), column] = (0, 255, 255)
    x, y = round(float(state.world.x - state.world.camera_x)), round(float(state.world.y + 1))
    rows, columns = np.mgrid[0:128, 0:128]
    expected[(columns - x) ** 2 + (rows - y) ** 2 <= 64] = (0, 128, 128)
    np.testing.assert_array_equal(frame, expected)


def test_small_frames_are_means_of_blocks():
    config = suites()["filters"][0].train
    full = frame_of(config, 3, group="filters").astype(float)
    means = full.reshape(32, 4, 32, 4, 3).mean((1, 3))
    small = frame_of(config, 3, size=32).astype(float)
    assert np.abs(small - means).max() <= 0.5


def test_grey_frames_and_index_maps():
    config = suites()["distractors"][1].eval
    rgb = frame_of(config, 2).astype(float)
    grey = frame_of(config, 2, "gray")
    assert grey.shape == (128, 128, 1)
    assert np.abs(grey[..., 0] - rgb @ (0.299, 0.587, 0.114)).max() <= 0.501
    kinds = frame_of(config, 2, "index")[..., 0]
    assert set(np.unique(kinds)) <= set(range(len(KINDS)))
    ground, agent = KINDS.index("ground"), KINDS.index("agent")
    assert (rgb[kinds == ground] == (0, 255, 255)).all()
    assert 100 < (kinds == agent).sum() < 384


def test_unknown_modes_and_sizes():
    caps = any_config().caps
    with pytest.raises(ValueError, match="observation_mode='rgba'"):
        Kage(caps, "rgba")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="size=48"):
        Kage(caps, size=48)
    with pytest.raises(ValueError, match="draws no brightness"):
        Kage(caps).params(load_config({**BASE, "filters": {"brightness": 1.0}}))


@pytest.mark.parametrize("radius", [6.0, 8.0, 10.0])
def test_areas_of_shapes(radius):
    expected = {
        "circle": np.pi * radius**2,
        "square": 4 * radius**2,
        "triangle": 0.75 * np.sqrt(3) * radius**2,
        "polygon": 1.5 * np.sqrt(3) * radius**2,
        "star": 1.1226 * radius**2,  # a pentagram: 10 tan 18 deg / (3 - tan^2 18 deg) R^2
        "diamond": 2 * radius**2,
    }
    for angle in (0.0, 33.0):
        for name, area in expected.items():
            words = shapes.patch(SHAPES.index(name), radius, radius, angle)
            pixels = sum(int(w).bit_count() for w in words)
            assert pixels == pytest.approx(area, rel=0.2), (name, angle)


def test_bits_of_shapes_are_the_same_in_both_libraries():
    for kind in range(len(SHAPES)):
        slow = shapes.patch(kind, 7.0, 9.0, 20.0)
        fast = np.asarray(shapes.patch(kind, 7.0, 9.0, 20.0, jnp))
        wrong = sum(int(a ^ b).bit_count() for a, b in zip(slow, fast, strict=True))
        assert wrong <= 1  # one pixel may lie on an edge


def test_a_triangle_has_a_corner_on_top():
    words = shapes.patch(SHAPES.index("triangle"), 8.0, 8.0, 0.0)
    rows = [int(w).bit_count() for w in words]
    assert rows.index(max(rows)) > 16
    assert 0 < next(r for r in rows if r) <= 2


def test_27_characters_differ_and_repeat_in_two_frames():
    rows, colours = assets._characters()
    assert rows.shape == (27, 2, 24)
    assert colours.shape == (27, 3, 3)
    drawn = {rows[i].tobytes() + colours[i].tobytes() for i in range(27)}
    assert len(drawn) == len(CHARACTERS) == 27
    assert all((rows[i, 0] != rows[i, 1]).any() for i in range(27))


def test_128_backgrounds_differ_and_repeat_without_a_seam():
    drawn = assets._backgrounds(128)
    assert drawn.shape == (128, 128, 128, 3)
    assert len({d.tobytes() for d in drawn}) >= 100
    assert all(d.std() > 5 for d in drawn)


def test_packing_is_undone_by_unpacking():
    colours = np.random.default_rng(0).integers(0, 256, (5, 7, 3)).astype(np.uint8)
    np.testing.assert_array_equal(np.asarray(unpack(pack(jnp.asarray(colours)))), colours)


# Filters ------------------------------------------------------------------------------------------

COLOURS = jnp.asarray(np.random.default_rng(1).integers(0, 256, (3, 16, 16)), jnp.float32)


def test_photometric_filters_by_hand():
    np.testing.assert_allclose(
        filters.brightness(COLOURS, 0.5), np.clip(COLOURS + 50, 0, 255), rtol=1e-5
    )
    np.testing.assert_allclose(
        filters.contrast(COLOURS, 2.0), np.clip((COLOURS - 128) * 2 + 128, 0, 255), rtol=1e-5
    )
    warm = np.asarray(filters.temperature(COLOURS, 1.0))
    np.testing.assert_allclose(warm[0], np.clip(COLOURS[0] + 30, 0, 255), rtol=1e-5)
    np.testing.assert_allclose(warm[2], np.clip(COLOURS[2] - 15, 0, 255), rtol=1e-5)


@pytest.mark.parametrize(
    ("saturation", "degrees"), [(1.0, 0.0), (0.4, 0.0), (1.0, 180.0), (1.7, 77)]
)
def test_saturation_and_hue_against_the_standard_library(saturation, degrees):
    import colorsys

    found = np.asarray(filters.saturation_and_hue(COLOURS, saturation, degrees))
    for at in np.ndindex(16, 16):
        h, s, v = colorsys.rgb_to_hsv(*(float(COLOURS[c][at]) / 255 for c in range(3)))
        r, g, b = colorsys.hsv_to_rgb((h + degrees / 360) % 1, min(1.0, s * saturation), v)
        np.testing.assert_allclose(found[(slice(None), *at)], np.array([r, g, b]) * 255, atol=0.02)


def test_the_hue_of_greys_gives_no_nan():
    greys = jnp.stack([jnp.linspace(0, 255, 16).reshape(4, 4)] * 3)
    np.testing.assert_allclose(filters.saturation_and_hue(greys, 2.0, 90.0), greys, atol=1e-3)


def test_a_blur_of_nine_pixels_and_sharpening_of_a_flat_picture():
    spike = jnp.zeros((3, 5, 5)).at[:, 2, 2].set(90)
    np.testing.assert_allclose(np.asarray(filters.box_blur(spike))[:, 1:4, 1:4], 10, rtol=1e-5)
    flat = jnp.full((3, 4, 4), 77.0)
    np.testing.assert_allclose(filters.sharpen(flat, 2.0), 77, rtol=1e-5)


def test_pixelate_reads_the_first_pixel_of_a_block():
    pair = suites()["filters"][6]
    plain, merged = (frame_of(look, 2, group="filters") for look in (pair.train, pair.eval))
    at = np.arange(128) // 3 * 3
    np.testing.assert_array_equal(merged, plain[at][:, at])


def test_brightness_contrast_vignette_of_whole_frames():
    by = {p.id: p for p in suites()["filters"]}
    plain = frame_of(by["filters-1"].train, 2, group="filters").astype(np.float32)
    bright = frame_of(by["filters-1"].eval, 2, group="filters")
    np.testing.assert_array_equal(bright, np.clip(plain + 100, 0, 255).astype(np.uint8))
    harsh = frame_of(by["filters-2"].eval, 2, group="filters")
    np.testing.assert_array_equal(
        harsh, np.clip((plain - 128) * 128 + 128, 0, 255).astype(np.uint8)
    )
    dark = frame_of(by["filters-8"].eval, 2, group="filters")
    y, x = np.mgrid[0:128, 0:128] - 64.0
    share = np.clip(1 - 10 * (x**2 + y**2) / (2 * 64.0**2), 0, 1)[..., None]
    assert np.abs(dark - np.floor(plain * share)).max() <= 1


def test_lights_add_their_formula():
    pair = suites()["effects"][2]
    config = load_config(pair.eval)
    kage = Kage(config.caps)
    params = kage.params(config)
    state = jax.jit(kage.reset)(jax.random.PRNGKey(0), params)
    lit = np.asarray(jax.jit(kage.render)(state, params)).astype(float)
    plain = frame_of(pair.train, 0, group="filters").astype(float)
    y, x = np.mgrid[0:128, 0:128]
    total = np.zeros((128, 128, 3))
    for (u, v), name in zip(np.asarray(state.look.lights), (0, 1, 2, 0), strict=True):
        colour = np.array([(100, 150, 255), (255, 150, 200), (255, 215, 0)][name])
        d = np.hypot(x - u * 128, y - v * 128) / (0.1 * np.hypot(128, 128))
        total += (1 / (1 + d**2))[..., None] * colour
    assert np.abs(lit - np.clip(plain + total, 0, 255)).max() <= 1.01


def test_noise_has_its_distribution_and_its_own_stream_each_frame():
    from scipy import stats

    key = jnp.array([3, 5], jnp.uint32)
    index = jnp.arange(60_000)
    a = np.asarray(noise.normal(noise.stream(key, jnp.int32(1), noise.PIXELS), index))
    b = np.asarray(noise.normal(noise.stream(key, jnp.int32(2), noise.PIXELS), index))
    assert stats.kstest(a, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(a[:-1], a[1:])[0, 1]) < 0.02
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.02
    u = np.asarray(noise.uniform(noise.stream(key, jnp.int32(1), noise.JUMPS), index))
    assert 0 < u.min() < u.max() < 1


def test_noise_is_drawn_anew_in_each_frame_and_clipped():
    config = suites()["filters"][5].eval
    one, two = (frame_of(config, n, group="filters").astype(int) for n in (0, 1))
    assert (one != two).mean() > 0.6  # many are cut at 0 or 255 in both
    assert one.min() == 0
    assert one.max() == 255


def test_presets_and_the_rarer_filters():
    """Six presets, blur, Poisson noise, late pixels, gamma and temperature, in one program."""
    plain = suites()["filters"][0].train
    rare = {"blur_sigma": 2.5, "poisson_noise_scale": 0.5, "pixelate_factor": 4, "gamma": 2.0}
    rare |= {"color_temp": -0.5, "sharpen_amount": 0.5}
    GROUPS["rare"] = [{**plain, "filters": {**rare, "pop_filter_list": ["noir"]}}]
    before = frame_of(plain, group="filters")
    names = ["none", "vintage", "horror", "retro", "cyberpunk", "noir"]
    shown = {
        name: frame_of({**plain, "filters": {"pop_filter_list": [name]}}, group="rare")
        for name in names
    }
    np.testing.assert_array_equal(shown["none"], before)  # and all else is neutral
    assert len({frame.tobytes() for frame in shown.values()}) == 6
    assert (shown["noir"][..., 0] == shown["noir"][..., 1]).all()
    grainy = frame_of({**plain, "filters": rare}, group="rare")
    assert len(np.unique(grainy)) > 20
    assert (grainy[:3, :3] == before[:3, :3]).mean() < 0.5


def test_turning_shapes_and_rectangles():
    config = copy.deepcopy(BASE)
    config["character"] |= {"shape_types": ["square"], "shape_rotate": True}
    config["character"] |= {"shape_rotation_speed": 45.0}
    still, turned = (frame_of(config, n, "index", group="shapes") == 5 for n in (0, 1))
    assert still.sum() == 17 * 17
    assert abs(int(turned.sum()) - 256) < 40
    plain = copy.deepcopy(BASE)
    plain["character"] = {}
    assert (frame_of(plain, 0, "index", group="shapes") == 5).sum() == 17 * 25


def test_switching_backgrounds_change_within_an_episode():
    config = copy.deepcopy(BASE)
    config["background"] = {
        "mode": "color",
        "color_names": ["red", "blue"],
        "switch_frequency": 0.5,
    }
    colours = {tuple(frame_of(config, n, group="shapes")[0, 0]) for n in range(8)}
    assert len(colours) == 2


# The state ----------------------------------------------------------------------------------------


def test_a_state_is_small_and_holds_no_picture():
    looks = [load_config(look) for s in suites().values() for p in s for look in (p.train, p.eval)]
    assert state_bytes(any_config().caps) <= 232
    assert state_bytes(StaticCaps.union([c.caps for c in looks])) <= 1024


def test_the_room_is_checked_before_it_is_taken():
    caps = any_config().caps
    needed = check_room(10, (128, 128, 3), caps, limit=10**9)
    assert needed == 10 * (2 * state_bytes(caps) + 128 * 128 * 3)
    with pytest.raises(MemoryError, match="take at most"):
        check_room(10**6, (128, 128, 3), caps, limit=10**9)
    with pytest.raises(ValueError, match="n=0"):
        check_room(0, (128, 128, 3), caps)


def test_one_program_serves_configurations(kage):
    runs = 0

    def first(key, params):
        nonlocal runs
        runs += 1
        return kage.render(kage.reset(key, params), params)

    compiled = jax.jit(first)
    pictures = set()
    for colour in ("teal", "pink", "gold"):
        config = copy.deepcopy(BASE)
        config["character"]["shape_colors"] = [colour]
        pictures.add(
            np.asarray(compiled(jax.random.PRNGKey(0), kage.params(load_config(config)))).tobytes()
        )
    assert runs == 1
    assert len(pictures) == 3
