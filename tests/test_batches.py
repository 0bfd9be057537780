"""Batches: endless permutations, a function of (seed, step) alone, and every sample with a draw of its own."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
from builders import ALL, COUNTS, RAMP, batches
from hypothesis import given
from hypothesis import strategies as st

from cissl import schedules
from cissl.batches import Batches, Shuffled, StackedBatches
from cissl.methods import method
from cissl.views import Views

N, U = 5, 8  # of the builders' batches
EVERYTHING = method("ict+sntg")


def plain(x, generator):
    return x


def numbered(**changes):
    """Batches whose every sample is its own index, unchanged by any view."""
    settings = {
        "x": torch.arange(60.0)[:, None].expand(60, 2),
        "labels": torch.arange(60),
        "labeled": np.arange(12),
        "unlabeled": np.arange(12, 60),
        "labeled_batch": 20,
        "unlabeled_batch": 7,
        "seed": 0,
        "view": plain,
    }
    return Batches(**{**settings, **changes})


def same(one, other):
    assert one.keys() == other.keys()
    return all(torch.equal(one[name], other[name]) for name in one)


# --- orders ---


@given(
    n=st.integers(1, 1500),
    seed=st.integers(0, 5),
    places=st.lists(st.integers(0, 5000), min_size=2, max_size=6),
)
def test_an_order_is_a_chain_of_permutations(n, seed, places):
    indices = np.arange(n) * 3 + 1
    shuffled = Shuffled(indices, seed, "test")
    epochs = shuffled.take(0, 4 * n).reshape(4, n)
    assert (np.sort(epochs, axis=1) == indices).all()
    # However it is asked for, it is the same order.
    whole = shuffled.take(0, 5001)
    for start, stop in pairwise(places):
        if start < stop:
            assert (Shuffled(indices, seed, "test").take(start, stop) == whole[start:stop]).all()
            assert (shuffled.take(start, stop) == whole[start:stop]).all()


@pytest.mark.parametrize("n", [1, 12, 300, 1024, 1500])
def test_an_order_is_drawn_where_it_is_needed_and_nowhere_else(n, monkeypatch):
    drawn, permuted = [], Shuffled._permuted

    def count(self, chunk, epochs):
        drawn.append(chunk)
        return permuted(self, chunk, epochs)

    shuffled = Shuffled(np.arange(n), 0, "test")
    size = max(1, 1024 // n) * n  # small sets are permuted many times at once
    whole = shuffled.take(0, 3 * size)
    monkeypatch.setattr(Shuffled, "_permuted", count)
    for start, stop, chunks in [
        (0, size, [0]),
        (0, size + 1, [0, 1]),
        (size, size + 1, [1]),
        (size - 1, 2 * size, [0, 1]),
    ]:
        drawn.clear()
        assert (shuffled.take(start, stop) == whole[start:stop]).all()
        assert len(whole[start:stop]) == stop - start
        assert drawn == chunks


@pytest.mark.parametrize("n", [12, 300, 1500])
def test_every_epoch_has_its_own_order(n):
    epochs = Shuffled(np.arange(n), 0, "test").take(0, 6 * n).reshape(6, n)
    assert len({tuple(epoch) for epoch in epochs}) == 6
    assert not any((epoch == np.arange(n)).all() for epoch in epochs)


def test_orders_are_uniform():
    """Each sample comes equally often at each place of an epoch, and after each other one."""
    epochs = Shuffled(np.arange(4), 0, "test").take(0, 4 * 6000).reshape(6000, 4)
    found = Counter(map(tuple, epochs))
    assert len(found) == 24
    assert min(found.values()) > 190
    assert max(found.values()) < 310


def test_orders_differ_by_seed_and_name():
    orders = [Shuffled(np.arange(50), seed, name).take(0, 50) for seed, name in [(0, "a"), (1, "a"), (0, "b")]]
    assert len({tuple(order) for order in orders}) == 3


# --- batches ---


def test_a_thousand_steps_of_a_tiny_labeled_set():
    drawn = numbered()
    found = [drawn.step(step) for step in range(1, 1001)]
    labeled = torch.cat([batch["x"][:20, 0] for batch in found])[: 1666 * 12].reshape(-1, 12)
    assert (labeled.sort(1).values == torch.arange(12)).all()  # 20 of 12: the epochs run on through the batches
    unlabeled = torch.cat([batch["x"][20:, 0] for batch in found])[: 145 * 48].reshape(-1, 48)
    assert (unlabeled.sort(1).values == torch.arange(12, 60)).all()
    for batch in found:
        assert batch["x"].shape == (27, 2)
        assert torch.equal(batch["labels"], batch["x"][:20, 0].long())  # each with its own label
        assert (batch["x"][20:] >= 12).all()


def test_images_are_batched_alike():
    x = torch.arange(60.0)[:, None, None, None].expand(60, 1, 4, 4)
    drawn = numbered(x=x, labeled_batch=5, unlabeled_batch=6)
    found = [drawn.step(step) for step in range(1, 25)]
    assert (
        torch.cat([batch["x"][:5, 0, 0, 0] for batch in found]).reshape(-1, 12).sort(1).values == torch.arange(12)
    ).all()
    unlabeled = torch.cat([batch["x"][5:, 0, 0, 0] for batch in found]).reshape(3, 48)
    assert (unlabeled.sort(1).values == torch.arange(12, 60)).all()
    assert all(torch.equal(batch["labels"], batch["x"][:5, 0, 0, 0].long()) for batch in found)


@pytest.mark.parametrize("shape", [(2,), (1, 4, 4)])
def test_a_batch_is_a_function_of_seed_and_step(shape):
    def fresh(**changes):
        return batches(EVERYTHING, shape, torch.float32, **changes)

    steps = [1, 2, 99, 100, 101, 202]
    in_order = [fresh().step(step) for step in steps]
    drawn = fresh()
    for place in (5, 0, 3, 4, 1, 1, 2, 5):
        assert same(drawn.step(steps[place]), in_order[place])
    assert not any(torch.equal(one["x"], other["x"]) for one, other in pairwise(in_order))
    other_seed = fresh(seed=2).step(1)
    for name in ("x", "x_again", "share", "partner", "pairs"):
        assert not torch.equal(other_seed[name], in_order[0][name])


@pytest.mark.parametrize(("shape", "steps"), [((2,), 100), ((1, 4, 4), 1)])
def test_a_block_of_steps_is_drawn_once(shape, steps):
    """A hundred steps of vectors together, images one by one."""
    calls = []

    def view(x, generator):
        calls.append(len(x))
        return x

    drawn = batches(method("pi"), shape, view=view)
    stacked = StackedBatches([drawn, drawn])
    for each in (drawn, stacked):
        calls.clear()
        for step in (1, 1, steps, steps + 1, steps + 1):
            each.step(step)
        times = 2 if each is drawn else 4
        assert calls == [N * steps, N * steps, U * steps, U * steps] * times


# Of step 102: whole rows of numbers that choose, the last three of the others.
GOLDEN = {
    (2,): {
        "labels": [1, 0, 0, 2, 0],
        "partner": [3, 2, 0, 1, 4, 10, 12, 7, 5, 6, 11, 9, 8],
        "pairs": [9, 6, 2, 0, 12, 8, 11, 1, 10, 5, 7, 4, 3],
        "x": [0.9749, 0.6675, -1.7566],
        "x_again": [0.6647, 0.4154, -1.5154],
        "share": [0.5843, 0.3757],
        "direction": [1.0125, 0.4032, 0.6591],
    },
    (1, 2, 2): {
        "labels": [1, 0, 0, 2, 0],
        "partner": [0, 3, 4, 2, 1, 6, 8, 12, 11, 9, 7, 10, 5],
        "pairs": [2, 12, 0, 7, 9, 5, 1, 3, 10, 8, 11, 4, 6],
        "x": [-0.6927, 1.7192, 1.8831],
        "x_again": [-0.4197, 1.9502, 1.6960],
        "share": [0.3686, 0.9946],
        "direction": [0.6852, -0.2164, -0.8664],
    },
}


@pytest.mark.parametrize("shape", GOLDEN)
def test_batches_stay_what_they_were(shape):
    """Another name of a stream, another order or another number of steps drawn at once is another run for all seeds."""
    batch = {}
    for name in ("ict+sntg", "vat"):
        batch |= batches(method(name), shape, torch.float32).step(102)
    for name, expected in GOLDEN[shape].items():
        found = batch[name] if isinstance(expected[0], int) else batch[name].flatten()[-3:]
        assert found.tolist() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(("n", "expected"), [(12, [10, 6, 8, 5, 0, 2]), (1500, [626, 1253, 1286, 456, 459, 706])])
def test_orders_stay_what_they_were(n, expected):
    assert Shuffled(np.arange(n), 3, "batches/labeled").take(5 * n, 5 * n + 6).tolist() == expected


@pytest.mark.parametrize("name", ALL)
def test_a_batch_holds_what_its_method_needs_and_nothing_else(name):
    made = method(name)
    batch = batches(made).step(1)
    expected = {"x", "labels", "ramp", *made.draws}
    expected |= {"x_again"} if made.base.needs_second_view else set()
    expected |= {"suppression"} if made.scl is not None else set()
    assert batch.keys() == expected
    assert len(batch["x"]) == N + (U if made.needs_unlabeled else 0)


def test_a_new_draw_moves_no_other():
    """Whatever a method asks for, the samples and their first view stay."""
    first = batches(method("supervised+em")).step(7)
    for name in ALL:
        batch = batches(method(name)).step(7)
        assert torch.equal(batch["x"][:N], first["x"][:N])
        assert torch.equal(batch["labels"], first["labels"])
        if name != "supervised":
            assert torch.equal(batch["x"], first["x"])
    of = {
        name: batches(method(name)).step(7)
        for name in ("vat", "vat+sntg", "ict", "ict+sntg", "mean-teacher", "pi+sntg")
    }
    assert torch.equal(of["vat"]["direction"], of["vat+sntg"]["direction"])
    assert torch.equal(of["vat+sntg"]["pairs"], of["pi+sntg"]["pairs"])
    assert torch.equal(of["ict"]["partner"], of["ict+sntg"]["partner"])
    assert torch.equal(of["ict"]["share"], of["ict+sntg"]["share"])
    assert torch.equal(of["ict"]["x_again"], of["mean-teacher"]["x_again"])


def test_a_change_of_one_set_moves_no_draw_of_the_other():
    first = numbered(view=Views(noise=1.0), second_view=True).step(3)
    fewer = numbered(view=Views(noise=1.0), second_view=True, unlabeled=np.arange(20, 40), unlabeled_batch=3).step(3)
    assert torch.equal(first["x"][:20], fewer["x"][:20])
    assert torch.equal(first["x_again"][:20], fewer["x_again"][:20])
    other = numbered(view=Views(noise=1.0), second_view=True, labeled=np.arange(3), labeled_batch=4).step(3)
    assert torch.equal(first["x"][20:], other["x"][4:])


# --- views ---


def test_views_are_drawn_for_each_sample_each_step_and_each_view():
    viewed, bare = (numbered(view=view, second_view=True) for view in (Views(noise=1.0), plain))
    first, second = (viewed.step(1)[key] - bare.step(1)[key] for key in ("x", "x_again"))
    later = viewed.step(2)["x"] - bare.step(2)["x"]
    every = torch.cat([first, second, later])
    assert len(set(every.flatten().round(decimals=3).tolist())) > 0.95 * every.numel()
    assert every.std().item() == pytest.approx(1, abs=0.15)
    assert torch.corrcoef(torch.stack([first.flatten(), second.flatten()]))[0, 1].abs() < 0.4


def test_both_views_are_of_the_same_samples():
    batch = numbered(second_view=True).step(4)
    assert torch.equal(batch["x"], batch["x_again"])


def test_images_are_viewed_one_by_one():
    x = torch.randn(60, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    settings = {"x": x, "view": Views(flip=True, crop=2), "labeled_batch": 40, "second_view": True}
    batch = numbered(**settings).step(2)
    assert batch["x"].shape == batch["x_again"].shape == (47, 3, 8, 8)
    assert torch.equal(batch["x"], numbered(**settings).step(2)["x"])
    assert batch["x"].is_contiguous(memory_format=torch.channels_last)  # what convolutions are fastest with
    labels = batch["labels"].tolist()
    repeated = [rows for label in set(labels) if len(rows := [i for i, y in enumerate(labels) if y == label]) > 1]
    assert len(repeated) > 10  # 40 of 12 samples
    for rows in repeated:
        views = torch.cat([batch[key][rows].flatten(1) for key in ("x", "x_again")])
        assert len({tuple(view) for view in views.tolist()}) > 1


# --- the draws of methods ---


def draws(name, steps=300, **changes):
    drawn = batches(method(name), **changes)
    return [drawn.step(step) for step in range(1, steps + 1)]


def test_partners_are_permutations_within_each_part():
    found = torch.stack([batch["partner"] for batch in draws("ict", 600)])
    assert (found[:, :N].sort(1).values == torch.arange(N)).all()
    assert (found[:, N:].sort(1).values == torch.arange(N, N + U)).all()
    often = torch.stack([(found == row).double().mean(0) for row in range(N + U)])
    assert (often[:N, :N] - 1 / N).abs().max() < 0.08
    assert (often[N:, N:] - 1 / U).abs().max() < 0.08
    assert len({tuple(row[:N].tolist()) for row in found}) == 120
    # Labeled and unlabeled are permuted independently.
    assert 0.2 * 0.125 < ((found[:, 0] == 0) & (found[:, N] == N)).double().mean() * 2 < 4 * 0.2 * 0.125


def test_pairs_are_permutations_of_all_rows():
    found = torch.stack([batch["pairs"] for batch in draws("pi+sntg", 600)])
    assert (found.sort(1).values == torch.arange(N + U)).all()
    often = torch.stack([(found == row).double().mean(0) for row in range(N + U)])
    assert (often - 1 / (N + U)).abs().max() < 0.05


@pytest.mark.parametrize(
    ("alpha", "deviation"), [(1.0, 12**-0.5), (0.1, (0.25 / 1.2) ** 0.5), (8.0, (0.25 / 17) ** 0.5)]
)
def test_shares_are_beta_and_one_for_each_part(alpha, deviation):
    found = torch.stack([batch["share"] for batch in draws("ict", 4000, mix_alpha=alpha)])
    assert found.shape == (4000, 2)
    assert found.min() >= 0
    assert found.max() <= 1
    assert found.mean().item() == pytest.approx(0.5, abs=0.02)
    for part in (0, 1):
        assert found[:, part].std().item() == pytest.approx(deviation, rel=0.05)
    assert torch.corrcoef(found.T)[0, 1].abs() < 0.05


def test_directions_are_normal_and_one_for_each_unlabeled_sample():
    found = torch.stack([batch["direction"] for batch in draws("vat")])
    assert found.shape == (300, U, 2)
    assert found.std().item() == pytest.approx(1, abs=0.03)
    assert len(set(found.flatten().tolist())) == found.numel()
    images = batches(method("vat"), (3, 4, 4)).step(1)["direction"]
    assert images.shape == (U, 3, 4, 4)


def test_an_unknown_draw_is_an_error():
    with pytest.raises(ValueError, match="a method asks for the draw 'dice', which batches do not know"):
        numbered(draws=("dice",)).step(1)


# --- constants and the ramp ---


def test_the_ramp_is_that_of_the_step():
    drawn = batches(method("pi"))
    for step in (1, 39, 40, 41, 100, 101, 250):
        assert drawn.step(step)["ramp"].item() == schedules.ramp(step, RAMP)
    assert numbered().step(1)["ramp"] == 1


def test_constants_are_in_every_batch():
    weights = torch.tensor([1.0, 2.0])
    drawn = numbered(constants={"class_weights": weights})
    assert all(drawn.step(step)["class_weights"] is weights for step in (1, 101))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_everything_is_in_the_precision_of_the_data(dtype):
    for name in ALL:
        batch = batches(method(name), dtype=dtype).step(1)
        assert {value.dtype for value in batch.values()} <= {dtype, torch.int64}
        assert batch["ramp"].dtype == dtype


# --- shards ---


@pytest.mark.parametrize("shape", [(2,), (1, 4, 4)])
@pytest.mark.parametrize("processes", [2, 3])
def test_shards_partition_the_global_batch(shape, processes):
    def drawn(*shard):
        made = method("vat")
        return batches(made, shape, sizes=(6, 12), second_view=True, **({"shard": shard} if shard else {})).step(11)

    whole, shards = drawn(), [drawn(rank, processes) for rank in range(processes)]
    n, u = 6 // processes, 12 // processes
    for name, parts in {
        "x": [(0, 6, n), (6, 18, u)],
        "x_again": [(0, 6, n), (6, 18, u)],
        "labels": [(0, 6, n)],
    }.items():
        for start, stop, size in parts:
            offset = 0 if start == 0 else n
            dealt = torch.stack([shard[name][offset : offset + size] for shard in shards], 1).flatten(0, 1)
            assert torch.equal(dealt, whole[name][start:stop])
    dealt = torch.stack([shard["direction"] for shard in shards], 1).flatten(0, 1)
    assert torch.equal(dealt, whole["direction"])
    assert {tuple(shard["x"].shape) for shard in shards} == {(n + u, *shape)}


def test_partners_and_pairs_stay_within_a_shard():
    shards = [batches(EVERYTHING, sizes=(6, 10), shard=(rank, 2)).step(5) for rank in (0, 1)]
    for shard in shards:
        assert sorted(shard["partner"][:3].tolist()) == [0, 1, 2]
        assert sorted(shard["partner"][3:].tolist()) == [3, 4, 5, 6, 7]
        assert sorted(shard["pairs"].tolist()) == list(range(8))
    assert torch.equal(shards[0]["share"], shards[1]["share"])  # one λ for the whole batch
    assert not torch.equal(shards[0]["pairs"], shards[1]["pairs"])


def test_a_batch_that_cannot_be_shared_is_an_error():
    with pytest.raises(ValueError, match="20 labeled samples a batch cannot be shared by 3 processes"):
        numbered(shard=(0, 3))
    with pytest.raises(ValueError, match="7 unlabeled samples a batch cannot be shared by 2 processes"):
        numbered(shard=(0, 2))


def test_samples_that_are_not_there_cannot_be_trained_on():
    with pytest.raises(
        ValueError, match="the run trains on unlabeled samples and there are none: give some, or another"
    ):
        numbered(unlabeled=np.arange(0))
    with pytest.raises(ValueError, match="the run trains on labeled samples and there are none"):
        numbered(labeled=np.arange(0))
    assert numbered(unlabeled=np.arange(0), unlabeled_batch=0).step(1)["x"].shape == (20, 2)


# --- many seeds ---


@pytest.mark.parametrize("shape", [(2,), (1, 4, 4)])
@pytest.mark.parametrize("name", ["ict+sntg+scl", "vat+em", "supervised"])
def test_stacked_batches_are_the_single_ones(name, shape):
    made = method(name)
    counts = [COUNTS, (9, 4, 4), (3, 5, 9)]  # each seed has classes of its own size
    singles = [batches(made, shape, seed=seed, counts=counts[seed]) for seed in range(3)]
    stacked = StackedBatches([batches(made, shape, seed=seed, counts=counts[seed]) for seed in range(3)])
    alone = StackedBatches([singles[1]])
    for step in (1, 2, 100, 101, 5):
        together = stacked.step(step)
        for place, single in enumerate(singles):
            assert same({key: value[place] for key, value in together.items()}, single.step(step))
        assert same({key: value[0] for key, value in alone.step(step).items()}, singles[1].step(step))
