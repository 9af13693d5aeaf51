import json

import numpy as np
import onnxruntime

import commands
from bmdp.policies import HullPolicy, RandomBudgetedPolicy, TabularQ

Q = TabularQ(q_r=[[[0.0, 0.0], [10.0, 10.0]]], q_c=[[[0.0, 0.0], [1.0, 1.0]]])


def run(*arguments):
    return commands.run("export", *arguments)


def test_a_policy_is_written_and_decides_in_onnxruntime(tmp_path):
    HullPolicy(Q, [0.0, 1.0]).save(tmp_path / "policy")
    result = run(tmp_path / "policy", "--out", tmp_path / "policy.onnx")
    assert result.exit_code == 0, result.stderr
    told = result.stdout.splitlines()
    assert told[0].endswith(" bytes, HullPolicy, budgets 0 to 1")
    assert told[1] == "inputs: states [N] int64, budgets [N] float64, uniforms [N, 1] float64"
    model = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    given = {"states": np.array([0, 0]), "budgets": np.full(2, 0.25)}
    found = model.run(None, given | {"uniforms": np.array([[0.2], [0.3]])})
    assert found[0].tolist() == [1, 0]


def test_a_file_is_overwritten_by_force_alone(tmp_path):
    HullPolicy(Q, [0.0, 1.0]).save(tmp_path / "policy")
    out = tmp_path / "policy.onnx"
    out.write_text("mine")
    result = run(tmp_path / "policy", "--out", out)
    assert (result.exit_code, out.read_text()) == (1, "mine")
    assert "exists already" in result.stderr
    result = run(tmp_path / "policy", "--out", out, "--force", "--json")
    about = json.loads(result.stdout)
    assert about["bytes"] == out.stat().st_size
    assert (about["policy"], about["budget_range"], about["n_draws"]) == ("HullPolicy", [0, 1], 1)


def test_what_cannot_be_exported_is_told_in_one_line(tmp_path):
    RandomBudgetedPolicy(2, 0.0, 1.0).save(tmp_path / "policy")
    result = run(tmp_path / "policy", "--out", tmp_path / "policy.onnx")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: RandomBudgetedPolicy cannot be written as ONNX")
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "policy.onnx").exists()
