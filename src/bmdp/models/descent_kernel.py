"""The kernel of `bmdp.models.descent`, which is imported where Triton is installed."""
# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def descend(  # noqa: PLR0913
    rows, shift, columns, feature, threshold, child, leaf_of, found,
    n, n_numbers, n_columns, size, depth, BLOCK: tl.constexpr,
):  # fmt: skip
    """Takes rows of a block down the trees of a column."""
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    column = tl.program_id(1)
    is_row = row < n
    going = is_row
    tree = tl.load(shift + row, mask=is_row, other=0) + tl.load(columns + column)
    first = tree.to(tl.int64) * size
    node = tl.zeros((BLOCK,), tl.int32)
    for _ in range(depth):
        at = first + node
        number = tl.load(feature + at, mask=going, other=0)
        value = tl.load(rows + row * n_numbers + number, mask=going, other=0.0)
        border = tl.load(threshold + at, mask=going, other=0.0)
        side = (value > border).to(tl.int64)
        after = tl.load(child + 2 * at + side, mask=going, other=0)
        after = tl.where(going, after, node)
        going = going & (after != node)
        node = after
    leaf = tl.load(leaf_of + first + node, mask=is_row, other=0)
    tl.store(found + row * n_columns + column, leaf, mask=is_row)
