"""A policy as one ONNX file, which decides without Python: in C++, in a browser, on a phone.

    states, budgets, uniforms -> actions, next_budgets, statuses

The file is the whole policy: its Q-function, the frontier at the state, and the mixture that spends
the budget (Algorithm 3). Uniform numbers are the caller's, as everywhere in this library.
"""

from __future__ import annotations

import importlib.util
import json
import os
from typing import Any

from bmdp.data.encoder import EncodedPolicy
from bmdp.errors import MissingDependency, PolicyError, StoreError
from bmdp.storage import AnyPath, one_line, written

_MOST_BYTES = 2**31 - 2**20  # of one file of ONNX


def export_onnx(policy: Any, path: AnyPath, *, overwrite: bool = False) -> None:
    """Writes a policy as an ONNX file, whole or not at all. See `bmdp.policies.Policy.export_onnx`.

    Args:
        policy: to be written.
        path: of the file.
        overwrite: whether it may replace a file.

    Raises:
        PolicyError: if there is no graph of the policy, or it is too large for one file.
        StoreError: if the file exists and may not be overwritten, or cannot be written.
        MissingDependency: if onnx is not installed.
    """
    if importlib.util.find_spec("onnx") is None:
        raise MissingDependency("onnx must be installed for its files: pip install 'bmdp[onnx]'")
    with written(path, overwrite=overwrite) as new:
        new.write_bytes(onnx_bytes(policy))


def metadata_of(path: AnyPath) -> dict[str, Any]:
    """Returns what an exported file says of itself, with its inputs and outputs as text.

    Raises:
        StoreError: if it is no such file.
    """
    import onnx

    try:
        model = onnx.load(os.fspath(path))
        about = {prop.key: json.loads(prop.value) for prop in model.metadata_props}
    except Exception as error:  # of what reads it
        raise StoreError(f"{path} is no exported policy: {one_line(error)[:200]}.") from error
    return {
        **about,
        "inputs": [_told(value) for value in model.graph.input],
        "outputs": [_told(value) for value in model.graph.output],
    }


def onnx_bytes(policy: Any) -> bytes:
    """Returns the content of the file."""
    from onnx import checker, helper

    from bmdp import __version__
    from bmdp.deployment.graph import IR, OPSET, TREES, TREES_OPSET
    from bmdp.deployment.policy_graphs import form_of, plain, policy_graph

    inner = plain(policy)
    form = form_of(inner)
    whole = policy_graph(inner, form)
    size = sum(len(array.raw_data) for array in whole.initializer)
    if size > _MOST_BYTES:
        raise PolicyError(
            f"{type(policy).__name__} cannot be written as ONNX: its {size / 2**30:.1f} GiB of "
            "numbers do not fit into one file. Learn it with fewer trees, or fewer members."
        )
    about = {
        "bmdp": __version__,
        "policy": type(policy).__name__,
        "decides_by": type(inner).__name__,
        "budget_range": [float(end) for end in policy.budget_range],
        "n_draws": form.n_draws,
        "n_steps": form.n_steps,
        "carried": form.carried,
    }
    if isinstance(policy, EncodedPolicy):
        about |= {
            "state_names": policy.encoder.state_names,
            "action_names": policy.action_names,
        }
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(TREES, TREES_OPSET)]
    has_trees = any(node.domain == TREES for node in whole.node)
    model = helper.make_model(
        whole,
        opset_imports=opsets if has_trees else opsets[:1],
        ir_version=IR,
        producer_name="bmdp",
        producer_version=__version__,
        doc_string=_DOCUMENT,
    )
    helper.set_model_props(model, {name: json.dumps(value) for name, value in about.items()})
    checker.check_model(model)
    content: bytes = model.SerializeToString()
    return content


def _told(value: Any) -> str:
    """Name, shape and type of an input or output."""
    from onnx import helper

    kind = value.type.tensor_type
    shape = ", ".join(d.dim_param or str(d.dim_value) for d in kind.shape.dim)
    return f"{value.name} [{shape}] {helper.tensor_dtype_to_np_dtype(kind.elem_type)}"


_DOCUMENT = """A policy of bmdp: what to do at N states, given a budget for each.
states [N, D] float64, all axes of a state as one, or numbers of states [N] int64.
budgets [N] float64, in expected discounted cost from now on; see budget_range.
uniforms [N, n_draws] float64, random numbers from 0 to 1, if n_draws is above 0.
step [] int64, number of the step of the episode from 0 on, if n_steps is above 1.
carried [N, C] float64, if there are such columns: -1 in all of them at the start of an episode, -2
where the dial has just been moved; then the next_carried of the decision before.
actions [N] int64; next_budgets [N] float64, to hold at the next state; statuses [N] int64, 0 for
INFEASIBLE, 1 for TIGHT, 2 for SLACK. A row that is refused has action -1 and status -1: its budget
is no number or below the range, or a number of its state is not finite."""
