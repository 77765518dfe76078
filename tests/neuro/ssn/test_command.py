"""The sub-command on a user's own files."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from skimage import io

from armillary.cli.root import run
from armillary.corpora import images
from armillary.neuro.ssn import SSNEncoder, command, storage
from armillary.neuro.ssn.patches import draw_patches, grid_patches, read_image


@pytest.fixture(scope="module")
def folder(tmp_path_factory, encoder):
    root = tmp_path_factory.mktemp("ssn")
    (root / "in" / "more").mkdir(parents=True)
    for name, where in (("camera", "in"), ("grass", "in/more")):
        picture = (255 * images.photo(name)[200:290, 150:230]).astype(np.uint8)
        io.imsave(root / where / f"{name}.png", picture, check_contrast=False)
    storage.save(encoder, root / "encoder.npz", note={"patch": 8})
    return root


def fit(folder, *more) -> int:
    return run(
        ["ssn", "fit", str(folder / "in"), "-o", str(folder / "new.npz"), "--patch", "6",
         "--patches", "200", "--units", "32", "--iterations", "4", *more]
    )  # fmt: skip


def test_fit_writes_what_the_library_learns(folder, capsys):
    assert fit(folder) == 0
    assert "200 patches of 2 images, 32 units" in capsys.readouterr().out
    found = SSNEncoder.load(folder / "new.npz")
    pictures = [read_image(folder / "in" / n) for n in ("camera.png", "more/grass.png")]
    drawn = draw_patches(pictures, 6, 200, np.random.default_rng(0)).astype(np.float32)
    model = SSNEncoder(n_exc=32, n_inh=8, n_iter=4, random_state=0).fit(drawn)
    np.testing.assert_array_equal(found.network_.w_ei, model.network_.w_ei)
    assert storage.read_note(folder / "new.npz") == {"patch": 6, "images": 2}


def test_encode_gives_the_codes_of_the_library(folder, encoder, capsys):
    out, flags = folder / "codes.npy", folder / "flags.csv"
    source = folder / "in" / "camera.png"
    command = ["ssn", "encode", str(folder / "encoder.npz"), str(source), "-o", str(out)]
    assert run([*command, "--step", "20", "--flags", str(flags)]) == 0
    x = grid_patches(read_image(source), 8, 20)
    np.testing.assert_array_equal(np.load(out), encoder.transform(x))
    rows = list(csv.DictReader(flags.open()))
    assert len(rows) == len(x)
    np.testing.assert_allclose([float(r["contrast"]) for r in rows], encoder.encode(x).contrast)
    np.save(folder / "x.npy", (255 * x).round().astype(np.uint8).reshape(-1, 8, 8))
    command[3] = str(folder / "x.npy")
    assert run([*command, "--contrast", "0.5", "--no-lateral"]) == 0
    cut = encoder.ablate()
    with pytest.warns(UserWarning, match="outside 1 to 3"):
        expected = cut.transform((255 * x).round() / 255, contrast=0.5)
    np.testing.assert_allclose(np.load(out), expected)


def test_regime_writes_a_table_and_a_chart(folder):
    source, out = folder / "in" / "camera.png", folder / "regime.csv"
    command = ["ssn", "regime", str(folder / "encoder.npz"), str(source), "-o", str(out)]
    assert run([*command, "--contrasts", ".1:4:3", "--chart", str(folder / "r.json")]) == 0
    rows = list(csv.DictReader(out.open()))
    np.testing.assert_allclose([float(r["contrast"]) for r in rows], np.geomspace(0.1, 4, 3))
    assert float(rows[0]["active"]) > float(rows[2]["active"])
    drawn = json.loads((folder / "r.json").read_text())["data"]["values"]
    assert [float(r["active"]) for r in rows] == [point["active"] for point in drawn]


def test_report_compares_with_and_without_lateral_connections(folder):
    source, out = folder / "in" / "camera.png", folder / "report.json"
    command = ["ssn", "report", str(folder / "encoder.npz"), str(source), "-o", str(out)]
    assert run(command) == 0
    rows = json.loads(out.read_text())
    assert len(rows) == 16
    assert all(-1 <= row[name] <= 1 for row in rows for name in ("lateral", "no_lateral"))
    clean = [row["no_lateral"] for row in rows if row["noise"] == 0]
    noisy = [row["no_lateral"] for row in rows if row["noise"] == 2]
    assert min(clean) > max(noisy)


def refused(capsys, *arguments: object) -> str:
    assert run(["ssn", *map(str, arguments)]) == 2
    told = capsys.readouterr().err
    assert "Traceback" not in told
    return told


def test_bad_files_are_told(folder, tmp_path, capsys):
    encoder, camera = folder / "encoder.npz", folder / "in" / "camera.png"
    assert "no folder" in refused(capsys, "fit", tmp_path / "none", "-o", tmp_path / "e.npz")
    assert "no image in" in refused(capsys, "fit", tmp_path, "-o", tmp_path / "e.npz")
    assert "must end in .npz" in refused(capsys, "fit", folder / "in", "-o", tmp_path / "e.pt")
    told = refused(capsys, "encode", camera, camera, "-o", tmp_path / "c.npy")
    assert "is not an ssn encoder" in told
    np.save(tmp_path / "x.npy", np.ones((3, 7)))
    told = refused(capsys, "encode", encoder, tmp_path / "x.npy", "-o", tmp_path / "c.npy")
    assert "has the shape (3, 7): expected (n, 64)" in told
    told = refused(
        capsys, "regime", encoder, camera, "-o", tmp_path / "r.csv", "--contrasts", "0:1"
    )
    assert "give LOW:HIGH:COUNT" in told
    told = refused(capsys, "regime", encoder, camera, "-o", tmp_path / "no" / "r.csv")
    assert "there is no such folder" in told


def test_images_that_cannot_be_used_are_refused_or_left_out(folder, tmp_path, capsys):
    for name, picture in (("good", images.photo("grass")[:60, :60]), ("tiny", np.eye(4))):
        eight = (255 * picture).astype(np.uint8)
        io.imsave(tmp_path / f"{name}.png", eight, check_contrast=False)
    (tmp_path / "text.png").write_text("no image")
    told = refused(capsys, "fit", tmp_path, "-o", tmp_path / "e.npz", "--iterations", "1")
    assert "text.png" in told or "tiny.png" in told
    arguments = ["ssn", "fit", str(tmp_path), "-o", str(tmp_path / "e.npz"), "--iterations", "1"]
    assert run([*arguments, "--patches", "60", "--units", "16", "--skip-bad-files"]) == 3
    told = capsys.readouterr().err
    assert "holds no patch of 10 by 10" in told
    assert "2 files were left out" in told
    assert (tmp_path / "e.npz").is_file()


def test_a_white_image_is_named_and_left_out(tmp_path, capsys):
    for name, picture in (("good", images.photo("grass")[:60, :60]), ("white", np.ones((60, 60)))):
        eight = (255 * picture).astype(np.uint8)
        io.imsave(tmp_path / f"{name}.png", eight, check_contrast=False)
    arguments = ["fit", tmp_path, "-o", tmp_path / "e.npz", "--iterations", "1"]
    told = refused(capsys, *arguments)
    assert "white.png" in told
    assert "is empty nearly everywhere" in told
    more = ["--patches", "60", "--units", "16", "--skip-bad-files"]
    assert run(["ssn", *map(str, arguments), *more]) == 3
    assert "white.png" in capsys.readouterr().err


def test_faint_images_are_looked_at(folder, tmp_path):
    faint = 0.5 + 0.02 * (images.photo("camera")[200:290, 150:230] - 0.5)
    io.imsave(tmp_path / "faint.tif", faint.astype(np.float32), check_contrast=False)
    for verb, more in (("regime", ["--contrasts", "1"]), ("report", [])):
        out = tmp_path / f"{verb}.csv"
        command = ["ssn", verb, str(folder / "encoder.npz"), str(tmp_path / "faint.tif")]
        assert run([*command, "-o", str(out), *more]) == 0
        assert out.is_file()


def test_encoders_that_are_none_are_told_in_one_line(folder, tmp_path, capsys):
    with np.load(folder / "encoder.npz") as file:
        arrays = dict(file)
    wrong = {
        "list": {"header": np.array("[1]")},
        "bare": {"header": np.array('{"format": "armillary.ssn/1"}')},
        "lost": {name: array for name, array in arrays.items() if name != "basis"},
    }
    for name, held in wrong.items():
        np.savez(tmp_path / f"{name}.npz", **held)
        told = refused(
            capsys, "encode", tmp_path / f"{name}.npz", folder / "in" / "camera.png",
            "-o", tmp_path / "c.npy",
        )  # fmt: skip
        assert "ssn encoder" in told


def test_contrasts_that_were_not_learned_are_noted(folder, tmp_path, capsys):
    x = grid_patches(read_image(folder / "in" / "camera.png"), 8, 20)
    for name, patches, more in (("own", 0.01 * x, []), ("set", x, ["--contrast", "0.5"])):
        np.save(tmp_path / f"{name}.npy", patches)
        command = ["ssn", "encode", str(folder / "encoder.npz"), str(tmp_path / f"{name}.npy")]
        assert run([*command, "-o", str(tmp_path / "c.npy"), *more]) == 0
        told = " ".join(capsys.readouterr().err.split())
        assert "patches enter at contrasts outside 1 to 3" in told


def test_signed_integers_are_scaled_or_refused(folder, tmp_path, capsys):
    x = grid_patches(read_image(folder / "in" / "camera.png"), 8, 20)
    codes = []
    for name, patches in (
        ("signed", (255 * x).round().astype(np.int64)),
        ("unsigned", (255 * x).round().astype(np.uint8)),
    ):
        np.save(tmp_path / f"{name}.npy", patches)
        command = ["ssn", "encode", str(folder / "encoder.npz"), str(tmp_path / f"{name}.npy")]
        assert run([*command, "-o", str(tmp_path / "c.npy")]) == 0
        codes.append(np.load(tmp_path / "c.npy"))
        assert ("are taken as 0 to 255" in capsys.readouterr().err) == (name == "signed")
    np.testing.assert_array_equal(*codes)
    for bad in ((1000 * x).astype(np.int32), x * 1j):
        np.save(tmp_path / "bad.npy", bad)
        told = refused(
            capsys, "encode", folder / "encoder.npz", tmp_path / "bad.npy",
            "-o", tmp_path / "c.npy",
        )  # fmt: skip
        assert "expected floats in [0, 1], uint8 or uint16" in " ".join(told.split())


def test_the_halves_of_a_report_share_no_pixel(folder):
    picture = np.tile(np.arange(40.0), (30, 1)) + 0.01 * np.random.default_rng(0).random((30, 40))
    io.imsave(folder / "ramp.tif", picture.astype(np.float32), check_contrast=False)
    left, right = command._halves(folder / "ramp.tif", 8)
    top = float(read_image(folder / "ramp.tif")[:, :20].max())
    assert left.max() <= top < right.min()


def test_where_results_go_is_looked_at_before_learning(folder, tmp_path, capsys):
    (tmp_path / "e.npz").mkdir()
    assert "is a folder" in refused(capsys, "fit", folder / "in", "-o", tmp_path / "e.npz")


def test_patches_of_another_scale_are_noted_and_none_are_refused(folder, tmp_path, capsys):
    x = np.random.default_rng(0).random((4, 64))
    command = ["ssn", "encode", str(folder / "encoder.npz"), str(tmp_path / "x.npy")]
    for scale, noted in ((1.0, False), (9.0, True)):
        np.save(tmp_path / "x.npy", scale * x)
        assert run([*command, "-o", str(tmp_path / "c.npy")]) == 0
        assert ("which are taken as they are" in capsys.readouterr().err) == noted
    np.save(tmp_path / "x.npy", x[:0])
    told = refused(capsys, *command[1:], "-o", tmp_path / "c.npy")
    assert "holds no patches" in told
    (tmp_path / "x.npy").write_text("no array")
    told = refused(capsys, *command[1:], "-o", tmp_path / "c.npy")
    assert "numpy.save" in told
    assert "pickle" not in told
