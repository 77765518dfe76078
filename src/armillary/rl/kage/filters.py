"""Photometric filters and lights, in float32 on [0, 255], on three planes: (3, H, W).

Order: preset, brightness, contrast, gamma, saturation and hue, temperature, jitter, blur, sharpen,
pixelate, Gaussian noise, Poisson noise, vignette, radial light; then whole numbers; then lights.
Only those among the program's features are compiled; of these, one whose value is neutral is
passed over when the program runs: its condition hangs on the configuration alone, so that it stays
a branch when environments are run in a batch.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from armillary.rl.kage import noise
from armillary.rl.kage.look import Look
from armillary.rl.kage.palettes import PRESETS
from armillary.rl.kage.params import StaticCaps, VisualParams

PHOTOMETRIC = (
    "presets",
    "brightness",
    "contrast",
    "gamma",
    "saturation",
    "hue",
    "temperature",
    "jitter",
    "blur",
    "sharpen",
    "noise",
    "poisson",
    "vignette",
    "radial_light",
)


def pixelates_late(caps: StaticCaps) -> bool:
    """Whether pixels are merged after blur or sharpening, instead of by what is drawn at all."""
    return caps.has("pixelate") and caps.has("blur", "sharpen")


def active(caps: StaticCaps) -> bool:
    """Whether a frame of the program is ever filtered or lit."""
    return caps.has(*PHOTOMETRIC) or pixelates_late(caps) or caps.lights > 0


def apply(
    frame: jax.Array,
    look: Look,
    key: jax.Array,
    time: jax.Array,
    visual: VisualParams,
    caps: StaticCaps,
) -> jax.Array:
    """Filter a frame of packed colours (H, W), then light it."""
    if caps.has(*PHOTOMETRIC) or pixelates_late(caps):
        image = planes(frame)
        if caps.has("presets"):
            image = jnp.floor(_preset(image, look.preset))
        image = _photometric(image, visual, caps)
        image = _spatial(image, key, time, visual, caps)
        image = _stochastic(image, key, time, visual, caps)
        image = _shading(image, visual, caps)
        frame = packed(image)
    if caps.lights:
        frame = _where(
            visual.light_count > 0,
            lambda word: packed(planes(word) + _lights(look, visual, caps)),
            frame,
        )
    return frame


def planes(frame: jax.Array) -> jax.Array:
    """Packed colours (H, W) as (3, H, W) float32."""
    return jnp.stack([((frame >> (8 * i)) & jnp.uint32(255)).astype(jnp.float32) for i in range(3)])


def packed(image: jax.Array) -> jax.Array:
    """(3, H, W) float32 clipped to bytes and packed."""
    red, green, blue = (_clip(image[i]).astype(jnp.uint32) for i in range(3))
    return red | (green << 8) | (blue << 16)


def _clip(image: jax.Array) -> jax.Array:
    return jnp.clip(image, 0.0, 255.0)


# Colour -----------------------------------------------------------------------------------------


def brightness(image: jax.Array, amount: jax.Array | float) -> jax.Array:
    return _clip(image + amount * 100.0)


def contrast(image: jax.Array, amount: jax.Array | float) -> jax.Array:
    return _clip((image - 128.0) * amount + 128.0)


def gamma(image: jax.Array, power: jax.Array | float) -> jax.Array:
    return 255.0 * jnp.power(image / 255.0, power)


def temperature(image: jax.Array, amount: jax.Array | float) -> jax.Array:
    """Warm (above 0) adds red and takes blue; cool the other way round."""
    warm, cool = jnp.maximum(0.0, amount), jnp.maximum(0.0, -jnp.asarray(amount))
    shift = jnp.stack([30.0 * warm - 15.0 * cool, 0.0 * warm, 30.0 * cool - 15.0 * warm])
    return _clip(image + shift[:, None, None])


def saturation_and_hue(
    image: jax.Array, saturation: jax.Array | float, degrees: jax.Array | float
) -> jax.Array:
    """Scale the saturation and turn the hue of HSV.

    The hue of a grey is undefined; it counts as 0, and its division is guarded.
    """
    r, g, b = (image[i] / 255.0 for i in range(3))
    value = jnp.maximum(jnp.maximum(r, g), b)
    delta = value - jnp.minimum(jnp.minimum(r, g), b)
    safe = jnp.where(delta > 0, delta, 1.0)
    sector = jnp.where(
        value == b,
        (r - g) / safe + 4.0,
        jnp.where(value == g, (b - r) / safe + 2.0, ((g - b) / safe) % 6.0),
    )
    sector = jnp.where(value == r, ((g - b) / safe) % 6.0, sector)
    hue = jnp.where(delta > 0, sector, 0.0) + degrees / 60.0
    full = jnp.where(value > 0, delta / jnp.where(value > 0, value, 1.0), 0.0)
    chroma = value * jnp.clip(full * saturation, 0.0, 1.0)

    def channel(offset: float) -> jax.Array:
        k = (offset + hue) % 6.0
        return value - chroma * jnp.clip(jnp.minimum(k, 4.0 - k), 0.0, 1.0)

    return _clip(255.0 * jnp.stack([channel(5.0), channel(3.0), channel(1.0)]))


def _where(
    active: jax.Array | bool, change: Callable[[jax.Array], jax.Array], image: jax.Array
) -> jax.Array:
    """The image, changed where that is active at all."""
    return jax.lax.cond(active, change, lambda same: same, image)


def _photometric(image: jax.Array, visual: VisualParams, caps: StaticCaps) -> jax.Array:
    if caps.has("brightness"):
        image = _where(visual.brightness != 0.0, lambda x: brightness(x, visual.brightness), image)
    if caps.has("contrast"):
        image = _where(visual.contrast != 1.0, lambda x: contrast(x, visual.contrast), image)
    if caps.has("gamma"):
        image = _where(visual.gamma != 1.0, lambda x: gamma(x, visual.gamma), image)
    if caps.has("saturation", "hue"):
        turned = (visual.saturation != 1.0) | (visual.hue_shift != 0.0)
        image = _where(
            turned, lambda x: saturation_and_hue(x, visual.saturation, visual.hue_shift), image
        )
    if caps.has("temperature"):
        image = _where(
            visual.temperature != 0.0, lambda x: temperature(x, visual.temperature), image
        )
    return image


def _preset(image: jax.Array, preset: jax.Array) -> jax.Array:
    """One of the named looks; each is a short chain of the filters above."""

    def hsv(x: jax.Array, amount: float, degrees: float = 0.0) -> jax.Array:
        return saturation_and_hue(x, amount, degrees)

    def cyberpunk(x: jax.Array) -> jax.Array:
        x = contrast(temperature(hsv(x, 1.8), -0.2), 1.3)
        return sharpen(x, 0.5)

    chains = {
        "none": lambda x: x,
        "vintage": lambda x: contrast(vignette(temperature(hsv(x, 0.7), 0.3), 0.3), 1.1),
        "horror": lambda x: contrast(
            vignette(brightness(temperature(hsv(x, 0.3), -0.4), -0.2), 0.6), 1.4
        ),
        "retro": lambda x: contrast(brightness(hsv(hsv(x, 1.5), 1.0, 15.0), 0.1), 0.9),
        "cyberpunk": cyberpunk,
        "noir": lambda x: vignette(contrast(hsv(x, 0.0), 1.6), 0.4),
    }
    return jax.lax.switch(preset.astype(jnp.int32), [chains[name] for name in PRESETS], image)


# Neighbourhoods -----------------------------------------------------------------------------------


def box_blur(image: jax.Array) -> jax.Array:
    """The mean of 3 x 3 pixels, edges repeated."""
    padded = jnp.pad(image, ((0, 0), (1, 1), (1, 1)), mode="edge")
    rows = padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]
    return (rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]) / 9.0


def blur(image: jax.Array, sigma: jax.Array | float) -> jax.Array:
    share = jnp.clip(jnp.asarray(sigma) / 2.5, 0.0, 1.0)
    return image * (1.0 - share) + box_blur(image) * share


def sharpen(image: jax.Array, amount: jax.Array | float) -> jax.Array:
    return _clip(image + amount * (image - blur(image, 1.0)))


def coarse(n: int, factor: jax.Array) -> jax.Array:
    """Which pixel is read at each of n places when pixels are merged by ``factor``."""
    return jnp.arange(n) // factor * factor


def _spatial(
    image: jax.Array, key: jax.Array, time: jax.Array, visual: VisualParams, caps: StaticCaps
) -> jax.Array:
    if caps.has("jitter"):
        seed = noise.stream(key, time, noise.JITTER)
        image = _where(visual.jitter > 0, lambda x: _jitter(x, seed, visual.jitter), image)
    if caps.has("blur"):
        image = _where(visual.blur > 0, lambda x: blur(x, visual.blur), image)
    if caps.has("sharpen"):
        image = _where(visual.sharpen > 0, lambda x: sharpen(x, visual.sharpen), image)
    if pixelates_late(caps):
        rows, columns = image.shape[1:]
        image = image[:, coarse(rows, visual.pixelate)][..., coarse(columns, visual.pixelate)]
    return image


def _jitter(image: jax.Array, seed: jax.Array, amount: jax.Array) -> jax.Array:
    """Channels mixed by a matrix near the unit matrix, whose rows' sizes sum to one."""
    mix = jnp.eye(3) + amount * noise.normal(seed, jnp.arange(9)).reshape(3, 3)
    mix = mix / jnp.abs(mix).sum(axis=1, keepdims=True)
    return _clip(jnp.stack([sum(mix[c, i] * image[i] for i in range(3)) for c in range(3)]))


# Noise and shading --------------------------------------------------------------------------------


def _stochastic(
    image: jax.Array, key: jax.Array, time: jax.Array, visual: VisualParams, caps: StaticCaps
) -> jax.Array:
    seed = noise.stream(key, time, noise.PIXELS)
    if caps.has("noise"):
        image = _where(visual.noise > 0, lambda x: _gaussian(x, seed, visual.noise), image)
    if caps.has("poisson"):
        image = _where(visual.poisson > 0, lambda x: _poisson(x, seed, visual.poisson), image)
    return image


def _gaussian(image: jax.Array, seed: jax.Array, deviation: jax.Array) -> jax.Array:
    rows, columns = image.shape[1:]
    plane = jnp.arange(rows)[:, None] * columns + jnp.arange(columns)
    index = jnp.arange(3)[:, None, None] * (rows * columns) + plane
    return _clip(image + deviation * noise.normal(seed, index))


def _poisson(image: jax.Array, seed: jax.Array, scale: jax.Array) -> jax.Array:
    # Where the filter is off its branch may still be traced with a scale of 0.
    scale = jnp.where(scale > 0, scale, 1.0)
    counts = jax.random.poisson(jax.random.PRNGKey(seed.astype(jnp.uint32)), image * scale)
    return _clip(counts / scale)


def _distance(rows: int, columns: int) -> jax.Array:
    """(H, W) distance from the middle, the corner's being 1."""
    dy = jnp.arange(rows)[:, None] - rows / 2.0
    dx = jnp.arange(columns)[None, :] - columns / 2.0
    far = (rows**2 / 4.0 + columns**2 / 4.0) ** 0.5
    return jnp.sqrt(dy * dy + dx * dx) / far


def vignette(image: jax.Array, strength: jax.Array | float) -> jax.Array:
    d = _distance(*image.shape[1:])
    return image * jnp.clip(1.0 - strength * d * d, 0.0, 1.0)


def _shading(image: jax.Array, visual: VisualParams, caps: StaticCaps) -> jax.Array:
    if caps.has("vignette"):
        image = _where(visual.vignette != 0.0, lambda x: vignette(x, visual.vignette), image)
    if caps.has("radial_light"):
        image = _where(visual.radial_light != 0.0, lambda x: _radial(x, visual), image)
    return image


def _radial(image: jax.Array, visual: VisualParams) -> jax.Array:
    fades = jnp.clip(1.0 - _distance(*image.shape[1:]) ** 1.5, 0.0, 1.0)
    colour = jnp.asarray(visual.radial_colour)[:, None, None]
    return _clip(image + visual.radial_light * fades * colour)


def _lights(look: Look, visual: VisualParams, caps: StaticCaps) -> jax.Array:
    """Sum of ``colour * intensity / (1 + (d / R)^falloff)`` over the lights, R a share of the
    frame's diagonal."""
    total: jax.Array | float = 0.0
    radius = visual.light_radius * (caps.height**2 + caps.width**2) ** 0.5
    rows, columns = jnp.arange(caps.height)[:, None], jnp.arange(caps.width)[None, :]
    for i in range(caps.lights):
        dx = columns - look.lights[i, 0] * caps.width
        dy = rows - look.lights[i, 1] * caps.height
        nearness = jnp.sqrt(dx * dx + dy * dy) / radius
        lit = visual.light_intensity / (1.0 + nearness**visual.light_falloff)
        lit = jnp.where(i < visual.light_count, lit, 0.0)
        total = total + lit * jnp.asarray(visual.light_colours)[i][:, None, None]
    return jnp.asarray(total)
