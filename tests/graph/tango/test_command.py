"""The command on a user's files: what it writes, and what it refuses."""

from __future__ import annotations

import csv
import itertools
import json
import re

import networkx as nx
import numpy as np
import pytest
import torch

from armillary.cli.root import run
from armillary.graph.tango.command import targets_as
from armillary.graph.tango.files import Columns, read
from armillary.graph.tango.storage import load_model


@pytest.fixture
def karate(tmp_path):
    """The karate club as tables: every third member's side is unknown."""
    graph = nx.karate_club_graph()
    edges = "\n".join(f"m{a},m{b}" for a, b in graph.edges)
    (tmp_path / "edges.csv").write_text(f"source,target\n{edges}\n")
    rows = "\n".join(
        f"m{i},{d['club'] if i % 3 else ''},{graph.degree[i]},{(i * 7) % 5}"
        for i, d in graph.nodes(data=True)
    )
    (tmp_path / "nodes.csv").write_text(f"id,club,friends,noise\n{rows}\n")
    nx.write_graphml(graph, tmp_path / "karate.graphml")
    return tmp_path


def tango(*arguments: object) -> int:
    return run(["tango", *map(str, arguments)])


def test_train_predict_and_trace_tables(karate, capsys):
    model, tables = (
        karate / "m.safetensors",
        [karate / "edges.csv", "--nodes", karate / "nodes.csv"],
    )
    assert (
        tango("train", *tables, "--target", "club", "-o", model, "--epochs", 4, "--layers", 3) == 0
    )
    assert "22 labelled nodes, 2 classes (text), 2 features" in capsys.readouterr().out
    assert tango("predict", model, *tables, "-o", karate / "p.csv") == 0
    rows = list(csv.DictReader((karate / "p.csv").open()))
    assert [row["node"] for row in rows] == [f"m{i}" for i in range(34)]
    assert {row["predicted"] for row in rows} <= {"Mr. Hi", "Officer"}
    chart = karate / "t.svg"
    assert tango("trace", model, *tables, "-o", karate / "t.csv", "--chart", chart) == 0
    steps = list(csv.DictReader((karate / "t.csv").open()))
    energies = [float(row["energy"]) for row in steps]
    assert len(energies) == 4
    assert all(b <= a * (1 + 1e-6) for a, b in itertools.pairwise(energies))
    assert all(abs(float(row["cosine"])) <= 1e-5 for row in steps[:-1])
    assert chart.read_text().startswith("<svg")


def test_a_trace_of_endless_energies_says_so(karate, capsys):
    model, nodes = karate / "m.safetensors", karate / "nodes.csv"
    tables = [karate / "edges.csv", "--nodes", nodes]
    assert tango("train", *tables, "--target", "club", "-o", model, "--epochs", 2) == 0
    rows = nodes.read_text("utf-8").splitlines()
    columns = rows[0].split(",")
    place = next(i for i, name in enumerate(columns) if name not in ("id", "node", "club"))
    cells = rows[1].split(",")
    cells[place] = "1e20"
    nodes.write_text("\n".join([rows[0], ",".join(cells), *rows[2:]]) + "\n", "utf-8")
    capsys.readouterr()
    assert tango("trace", model, *tables, "-o", karate / "t.csv") == 0
    assert "1 of 1 graphs are not finite" in capsys.readouterr().err


def test_a_model_comes_back_as_it_was(karate):
    model, graph = karate / "m.safetensors", karate / "karate.graphml"
    assert tango("train", graph, "--target", "club", "-o", model, "--epochs", 2) == 0
    estimator, note = load_model(model)
    assert note["features"] == ["constant", "degree"]
    data = read(graph, None, Columns())
    first = estimator.predict_proba(data.graph)
    again = load_model(model)[0].predict_proba(data.graph)
    np.testing.assert_array_equal(first, again)
    assert tango("predict", model, graph, "-o", karate / "p.json") == 0
    written = json.loads((karate / "p.json").read_text())
    assert [row["predicted"] for row in written] == estimator.predict(data.graph).tolist()


def test_graphs_in_npz_and_in_pyg_files(tmp_path):
    data = pytest.importorskip("torch_geometric.data")
    rng = np.random.default_rng(0)
    edges = np.array([[0, 1, 2, 3, 4, 5], [1, 2, 0, 4, 5, 3]])
    batch, x = np.repeat([0, 1], 3), rng.normal(size=(6, 2))
    np.savez(tmp_path / "g.npz", x=x, edge_index=edges, batch=batch, y=np.array([0.5, 1.5]))
    model = tmp_path / "m.safetensors"
    assert tango("train", tmp_path / "g.npz", "--task", "graph", "-o", model, "--epochs", 2) == 0
    assert tango("predict", model, tmp_path / "g.npz", "-o", tmp_path / "p.csv") == 0
    values = [float(r["predicted"]) for r in csv.DictReader((tmp_path / "p.csv").open())]
    one = [
        data.Data(
            x=torch.from_numpy(x[3 * i : 3 * i + 3]).float(),
            edge_index=torch.from_numpy(edges[:, :3]),
            y=torch.tensor([0.5 + i]),
        )
        for i in range(2)
    ]
    torch.save(one, tmp_path / "g.pt")
    found = read(tmp_path / "g.pt", None, Columns())
    assert found.targets.tolist() == [0.5, 1.5]
    torch.testing.assert_close(found.graph.edge_index, torch.from_numpy(edges))
    estimator, _ = load_model(model)
    np.testing.assert_allclose(estimator.predict(found.graphs), values, rtol=1e-5)


@pytest.fixture
def several(tmp_path):
    """Three triangles: a label for each node, a class and a value for each graph, with gaps."""
    edges = [(f"{g}{i}", f"{g}{(i + 1) % 3}") for g in "abc" for i in range(3)]
    (tmp_path / "e.csv").write_text("source,target\n" + "\n".join(map(",".join, edges)) + "\n")
    rows = [
        f"{g}{i},{g},{i}.5,{'odd' if i % 2 else 'even'},{'' if g == 'b' else k % 2},{k}.25"
        for k, g in enumerate("abc")
        for i in range(3)
    ]
    (tmp_path / "n.csv").write_text("id,mol,v,label,toxic,size\n" + "\n".join(rows) + "\n")
    return tmp_path


def test_nodes_of_many_graphs_have_their_own_targets(several, capsys):
    tables = [several / "e.csv", "--nodes", several / "n.csv", "--graph-column", "mol"]
    model, out = several / "m.safetensors", several / "p.csv"
    quick = ["-o", model, "--epochs", 2, "--layers", 2, "--features", "v"]
    assert tango("train", *tables, "--target", "label", *quick) == 0
    assert "9 labelled nodes, 2 classes (text)" in capsys.readouterr().out
    assert tango("predict", model, *tables[:3], "-o", out) == 0
    assert [r["node"] for r in csv.DictReader(out.open())] == [
        f"{g}{i}" for g in "abc" for i in range(3)
    ]
    assert tango("train", *tables, "--target", "label", "--task", "graph", *quick) == 2
    said = capsys.readouterr().err
    assert "differs within graph 'a' ('even' and 'odd')" in said
    assert "take --task node" in said
    assert tango("train", *tables, "--target", "toxic", "--task", "graph", "--kind", "numbers",
                 *quick) == 0  # fmt: skip
    assert "2 labelled graphs, values (--kind numbers)" in capsys.readouterr().out
    assert tango("predict", model, *tables[:3], "-o", out) == 0
    assert [r["graph"] for r in csv.DictReader(out.open())] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("values", "kind", "dtype", "says"),
    [
        ([1, 2, None, 1, 2], "", "i", "2 classes (2 different whole numbers; --kind numbers"),
        ([1, 2, 3, None, 5], "", "f", "values (4 different whole numbers; --kind classes"),
        ([1, 2, 3, None, 5], "classes", "i", "4 classes (--kind classes)"),
        ([1, 2, None, 1, 2], "numbers", "f", "values (--kind numbers)"),
        ([1, 2, 1, 2], "", "i", "2 classes (2 different whole numbers"),
        (list(range(50)) * 2, "", "f", "values (50 different whole numbers"),
        ([1.5, 2.5, 1.5], "", "f", "values (decimals)"),
        ([1.5, 2.5, 1.5], "classes", "U", "2 classes (--kind classes)"),
        (["1", "2", "1"], "", "U", "2 classes (text)"),
        (["1", "2", None], "numbers", "f", "values (--kind numbers)"),
        ([True, False, True], "", "b", "2 classes (booleans)"),
    ],
)
def test_what_targets_are_taken_for(values, kind, dtype, says):
    import pandas as pd

    y = pd.Series(values).to_numpy()
    known = ~pd.isna(pd.Series(values)).to_numpy()
    found, told = targets_as(y, known, kind)
    assert found.dtype.kind == dtype
    assert told.startswith(says)
    assert len(found) == len(values)


def test_kinds_that_targets_cannot_be_are_refused(several, capsys):
    with pytest.raises(ValueError, match="'many' in row 1"):
        targets_as(np.array(["1", "many"]), np.array([True, True]), "numbers")
    tables = [several / "e.csv", "--nodes", several / "n.csv", "--target", "label"]
    assert tango("train", *tables, "--kind", "text", "-o", several / "m.safetensors") == 2
    assert "--kind 'text': it must be classes or numbers" in capsys.readouterr().err
    (several / "gap.csv").write_text((several / "n.csv").read_text().replace("a1,a,", "a1,,"))
    assert tango("train", several / "e.csv", "--nodes", several / "gap.csv", "--target", "label",
                 "--graph-column", "mol", "-o", several / "m.safetensors") == 2  # fmt: skip
    assert "--graph-column 'mol' is empty at node row 1" in capsys.readouterr().err


def test_edges_go_both_ways_once(tmp_path):
    (tmp_path / "e.csv").write_text("source,target,weight\na,b,2\nb,a,2\nb,c,3\nc,c,1\n")
    (tmp_path / "n.csv").write_text("id,v\na,1\nb,2\nc,3\n")
    found = read(tmp_path / "e.csv", tmp_path / "n.csv", Columns()).graph
    pairs = dict(
        zip(map(tuple, found.edge_index.T.tolist()), found.edge_weight.tolist(), strict=True)
    )
    assert pairs == {(0, 1): 2, (1, 0): 2, (1, 2): 3, (2, 1): 3, (2, 2): 1}
    one_way = read(tmp_path / "e.csv", tmp_path / "n.csv", Columns(directed=True)).graph
    assert one_way.edge_index.T.tolist() == [[0, 1], [1, 0], [1, 2], [2, 2]]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["edges.csv"], "needs --nodes"),
        (["absent.csv"], "there is no such file"),
        (["edges.csv", "--nodes", "nodes.csv", "--target", "side"], "no such column"),
        (["edges.csv", "--nodes", "nodes.csv"], "name the column with --target"),
        (["edges.csv", "--nodes", "nodes.csv", "--target", "club", "--id", "name"], "--id"),
        (["edges.csv", "--nodes", "nodes.csv", "--target", "noise", "--features", "club"],
         "is not numeric"),
        (["edges.csv", "--nodes", "nodes.csv", "--target", "club", "--task", "edge"],
         "must be node or graph"),
        (["edges.csv", "--nodes", "nodes.csv", "--target", "club", "--task", "graph"],
         "--task graph needs"),
        (["edges.csv", "--nodes", "short.csv", "--target", "club"], "is not in the table of nodes"),
        (["edges.csv", "--nodes", "twice.csv", "--target", "club"], "stands twice"),
        (["odd.csv", "--nodes", "nodes.csv", "--target", "club"], "it needs source and target"),
        (["odd.txt"], "a graph is read from"),
        (["bad.graphml"], "cannot be read as GraphML"),
        (["pickle.pt"], "weights_only=True"),
        (["empty.npz"], "has no x and no edge_index"),
    ],
)  # fmt: skip
def test_bad_files_are_told(karate, monkeypatch, capsys, arguments, says):
    monkeypatch.chdir(karate)
    (karate / "short.csv").write_text("id,club,friends\nm0,a,1\nm1,b,2\n")
    (karate / "twice.csv").write_text("id,club,friends\nm0,a,1\nm0,b,2\n")
    (karate / "odd.csv").write_text("from,to\nm0,m1\n")
    (karate / "odd.txt").write_text("0 1\n")
    (karate / "bad.graphml").write_text("<graphml")
    (karate / "pickle.pt").write_bytes(b"no archive")
    np.savez(karate / "empty.npz", y=np.zeros(2))
    assert tango("train", *arguments, "-o", "m.safetensors") == 2
    error = capsys.readouterr().err
    assert says in error
    assert "Traceback" not in error
    assert not (karate / "m.safetensors").exists()


def test_models_and_targets_are_checked_before_work(karate, capsys):
    graph, model = karate / "karate.graphml", karate / "m.safetensors"
    assert tango("train", graph, "--target", "club", "-o", karate / "m.pt") == 2
    assert "must end in .safetensors" in capsys.readouterr().err
    assert tango("predict", graph, graph, "-o", karate / "p.csv") == 2
    assert "is no model of tango" in capsys.readouterr().err
    assert tango("train", graph, "--target", "club", "-o", model, "--epochs", 1) == 0
    tables = [karate / "edges.csv", "--nodes", karate / "nodes.csv"]
    (karate / "other.npz").write_bytes(b"")
    np.savez(karate / "other.npz", x=np.ones((2, 3)), edge_index=np.array([[0], [1]]))
    assert tango("predict", model, karate / "other.npz", "-o", karate / "p.csv") == 2
    assert "the model was trained on constant, degree" in capsys.readouterr().err
    assert tango("predict", model, *tables, "-o", karate / "nowhere" / "p.csv") == 2
    assert "no such folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04 cut off", b"not an archive at all"], ids=["empty", "cut", "junk"]
)
def test_broken_archives_are_told_with_their_name(tmp_path, capsys, content):
    (tmp_path / "broken.npz").write_bytes(content)
    assert tango("train", tmp_path / "broken.npz", "-o", tmp_path / "m.safetensors") == 2
    said = capsys.readouterr().err
    assert "broken.npz" in said
    assert "allow_pickle" not in said


def test_one_class_and_folders_as_targets_are_refused(karate, capsys):
    (karate / "one.csv").write_text(
        "id,club,friends\n" + "\n".join(f"m{i},hi,{i}" for i in range(34)) + "\n"
    )
    tables = [karate / "edges.csv", "--nodes", karate / "one.csv", "--target", "club"]
    assert tango("train", *tables, "-o", karate / "m.safetensors") == 2
    assert "'hi'" in capsys.readouterr().err
    (karate / "d.safetensors").mkdir()
    assert tango("train", *tables, "-o", karate / "d.safetensors") == 2
    assert "folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"edge_index": np.array([[0.0, 1.0], [1.0, 0.0]])}, "edge_index holds float64 numbers"),
        ({"batch": np.array([0, 0, 1, 1])}, "edge 1 (counted from 0) joins nodes of two graphs"),
    ],
)
def test_arrays_that_do_not_belong_together_are_refused(tmp_path, capsys, arrays, said):
    held = {"x": np.ones((4, 2)), "edge_index": np.array([[0, 1], [1, 2]]), "y": np.arange(4.0)}
    np.savez(tmp_path / "g.npz", **{**held, **arrays})
    assert tango("train", tmp_path / "g.npz", "-o", tmp_path / "m.safetensors") == 2
    assert said in capsys.readouterr().err
    (tmp_path / "g.npz").write_text("no archive")
    assert tango("train", tmp_path / "g.npz", "-o", tmp_path / "m.safetensors") == 2
    assert "is no .npz file" in capsys.readouterr().err


def written(folder, name: str, text: str):
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


@pytest.mark.parametrize(
    ("nodes", "edges"),
    [
        ("001 1 2 x1", "001,1 1,2"),  # 001 and 1 are two nodes
        ("1 2 3", "1,2 2, 3"),
        ("NA null nan None", "NA,null nan,None"),
    ],
)
def test_names_of_nodes_are_text_as_it_stands(tmp_path, nodes, edges):
    names = nodes.split()
    rows = "\n".join(f"{name},{i}.5" for i, name in enumerate(names))
    table = written(tmp_path, "n.csv", f"id,größe\n{rows}\n")
    ends = edges.replace(", ", ",~").replace(" ", "\n").replace("~", " ")
    found = read(written(tmp_path, "e.csv", f"source,target\n{ends}\n"), table, Columns())
    assert found.nodes == names
    assert found.features == ["größe"]
    assert found.graph.edge_index.shape == (2, 4)


def test_words_that_are_taken_for_no_target_are_told(tmp_path, capsys):
    rows = "\n".join(f"{i},{i % 3},{['None', 'NA', 'yes', 'no', ''][i % 5]}" for i in range(20))
    nodes = written(tmp_path, "n.csv", f"id,a,answer\n{rows}\n")
    edges = written(tmp_path, "e.csv", "source,target\n0,1\n1,2\n")
    out = tmp_path / "m.safetensors"
    arguments = ("train", edges, "--nodes", nodes, "--target", "answer", "-o", out, "--epochs", 1)
    assert tango(*arguments) == 0
    said = capsys.readouterr()
    assert "8 labelled nodes, 2 classes" in said.out
    assert "whose answer reads NA or None are taken for unlabelled" in " ".join(said.err.split())


@pytest.mark.parametrize(
    ("nodes", "edges", "said"),
    [
        ("id,a\nu,1\nv,\n", "source,target\nu,v\n", "feature 'a' is nan at node 'v'"),
        ("id,a\nu,1e300\nv,1\n", "source,target\nu,v\n", "feature 'a' is 1e+300 at node 'u'"),
        ("id,a\nu,1\n,2\n", "source,target\nu,u\n", "'id' is empty in data row 1"),
        ("id,a\nu,1\nv,2\n", "source,target,weight\nu,v,heavy\n", "weight holds text"),
        ("", "source,target\nu,v\n", "n.csv cannot be read as a table"),
        ("id,a\nu,1\nv,2\n", "", "e.csv cannot be read as a table"),
    ],
)
def test_tables_are_refused_by_column_and_row(tmp_path, nodes, edges, said):
    table, ends = written(tmp_path, "n.csv", nodes), written(tmp_path, "e.csv", edges)
    with pytest.raises(ValueError, match=re.escape(said)):
        read(ends, table, Columns())


@pytest.mark.parametrize("x", [np.ones(6), np.ones((6, 1)).astype(str), np.ones((6, 1)) * 1j])
def test_features_that_are_no_table_of_numbers_are_refused(tmp_path, x):
    np.savez(tmp_path / "g.npz", x=x, edge_index=np.zeros((2, 0), int), y=np.arange(6) % 2)
    with pytest.raises(ValueError, match=r"g\.npz: x holds .* it must hold numbers"):
        read(tmp_path / "g.npz", None, Columns())


def test_graphs_with_several_targets_keep_them_all(tmp_path):
    data = pytest.importorskip("torch_geometric.data").Data

    def saved(*rows: list[float]):
        graphs = [
            data(x=torch.ones(2, 1), edge_index=torch.tensor([[0], [1]]), y=torch.tensor([row]))
            for row in rows
        ]
        torch.save(graphs, tmp_path / "g.pt")
        return read(tmp_path / "g.pt", None, Columns(task="graph")).targets

    np.testing.assert_array_equal(saved([1.0, 2.0], [3.0, 4.0]), [[1, 2], [3, 4]])
    np.testing.assert_array_equal(saved([1.0], [3.0]), [1, 3])
    with pytest.raises(ValueError, match="y of graph 1 holds 1 values and that of graph 0 2"):
        saved([1.0, 2.0], [3.0])
