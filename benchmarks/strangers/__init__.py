"""Tasks that this library was not tuned for, with the best that can be had in each of them.

| task | half | reward | cost | truth |
|---|---|---|---|---|
| frozen-lake-4x4, -8x8 | develop | 1 across the lake | 1 in a hole | exact |
| taxi | develop | 20 less 1 a step | 1 for entering the crossing, 1 for a wrong call | exact |
| cart-pole | develop | place on the right side | square of the distance to the middle | bound |
| deep-sea-treasure | develop | treasure | 1 a step | exact |
| stock | develop | sales less holding and ordering | unmet demand | exact |
| queue | develop | served less waiting | power | exact |
| corridors-4 | develop | that of the cells | that of the cells | bound |
| highway-fast | develop | speed and right lane | 1 for a crash | none |
| cliff-walking | test | -1 a step | 1 for a fall, 0.1 at the edge | exact |
| blackjack | test | win | 1 for going bust | exact |
| mountain-car | test | -1 a step | 0.01 a push | bound |
| lunar-lander | test | that of Gymnasium without fuel | fuel | none |
| resource-gathering | test | gold and diamond | 1 for being killed | exact |
| four-room | test | shapes and goal | 1 for a red shape | exact |
| machine-repair | test | production | 1 for a breakdown | exact |
| treatment | test | months lived, less what ails | 1 for a stay in hospital | exact |
| slot-filling | test | that of the dialogue | 1 if the user hangs up | bound |
| intersection | test | speed and arrival | 1 for a crash | none |

- `envs.py` registers the environments, made by `toys.py`, `own.py`, `grids.py`, `boxes.py` and
  `driving.py`; `tables.py` is how finite ones are known.
- `tasks.py` has the tasks and their truths, which `make_truth.py` computes with `planning.py`.
- `data.py` makes logs, `measure.py` measures policies, `rivals.py` has baselines.
- `run.py` runs everything, `table.py` makes tables of it.
"""
