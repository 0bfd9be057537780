"""Networks: the sizes that the paper's numbers depend on, gradients everywhere, and errors that help."""

import pytest
import torch
from torch import nn

from cissl import networks

SHAPES = {
    "toy-mlp": (2,),
    "mlp": (7,),
    "wide-resnet-10-1": (3, 16, 16),
    "cnn13": (3, 12, 12),
    "convnet": (1, 8, 8),
}
every = pytest.mark.parametrize(("name", "shape"), SHAPES.items(), ids=SHAPES)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def count(network):
    return sum(p.numel() for p in network.parameters())


def test_sizes():
    assert count(networks.build("wide-resnet-28-2", (3, 32, 32), 10, seeded())) == 1_467_610
    assert count(networks.build("toy-mlp", (2,), 4, seeded())) == 2 * 30 + 30 + 30 * 30 + 30 + 30 * 4 + 4
    # 13 layers: nine convolutions without bias, each with a BatchNorm, and the classifier.
    assert count(networks.build("cnn13", (3, 32, 32), 10, seeded())) == 3_121_802


def test_the_toy_network_is_its_formula():
    network = networks.build("toy-mlp", (2,), 2, seeded()).double()
    p = dict(network.named_parameters())
    x = torch.randn(5, 2, dtype=torch.float64, generator=seeded(1))
    h = x @ p["first.weight"].T + p["first.bias"]
    h = torch.where(h > 0, h, 0.1 * h)
    for _ in range(3):
        h = h @ p["hidden.weight"].T + p["hidden.bias"]
        h = torch.where(h > 0, h, 0.1 * h)
    torch.testing.assert_close(network(x), h @ p["classifier.weight"].T + p["classifier.bias"])


def test_the_shortcut_of_a_widening_block_starts_from_the_activated_input():
    block = networks.ResidualBlock(4, 8, 2, seeded()).eval()
    with torch.no_grad():
        block.conv2.weight.zero_()
        block.norm1.bias.fill_(0.3)
    x = torch.randn(2, 4, 6, 6, generator=seeded(1))
    scaled = x / (1 + 1e-5) ** 0.5 + 0.3
    activated = torch.where(scaled > 0, scaled, 0.1 * scaled)
    torch.testing.assert_close(block(x), nn.functional.conv2d(activated, block.shortcut.weight, stride=2))


def test_a_block_of_equal_width_passes_its_input_on():
    block = networks.ResidualBlock(4, 4, 1, seeded())
    with torch.no_grad():
        block.conv2.weight.zero_()
    x = torch.randn(2, 4, 6, 6, generator=seeded(1))
    assert torch.equal(block(x), x)


def test_constants_of_the_paper_reach_every_layer():
    network = networks.build("wide-resnet-28-2", (3, 32, 32), 10, seeded())
    norms = [m for m in network.modules() if isinstance(m, nn.BatchNorm2d)]
    assert len(norms) == 25
    assert {(m.momentum, m.eps) for m in norms} == {(0.1, 1e-5)}
    assert network.classifier.bias.abs().max() == 0
    # Kaiming-normal by fan-out: variance 2 / (1.01 · outputs · k²). Xavier-normal: 2 / (ins + outs).
    for name, module in network.named_modules():
        if isinstance(module, nn.Conv2d) and module.weight.numel() > 4000:
            fan = module.out_channels * module.kernel_size[0] ** 2
            assert module.weight.var().item() == pytest.approx(2 / 1.01 / fan, rel=0.1), name
            assert module.bias is None
    assert network.classifier.weight.var().item() == pytest.approx(2 / (128 + 10), rel=0.15)


@pytest.mark.parametrize(("name", "layers"), [("cnn13", 9), ("convnet", 3)])
def test_the_papers_constants_reach_the_other_networks_too(name, layers):
    network = networks.build(name, (3, 16, 16), 10, seeded())
    slopes = [m.negative_slope for m in network.modules() if isinstance(m, nn.LeakyReLU)]
    norms = [(m.momentum, m.eps) for m in network.modules() if isinstance(m, nn.BatchNorm2d)]
    assert slopes == [0.1] * layers
    assert norms == [(0.1, 1e-5)] * layers


@every
def test_every_parameter_gets_a_gradient(name, shape):
    network = networks.build(name, shape, 3, seeded())
    x = torch.randn(8, *shape, generator=seeded(1))
    nn.functional.cross_entropy(network(x), torch.arange(8) % 3).backward()
    for key, parameter in network.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.abs().sum() > 0, key


@every
def test_features_are_what_the_classifier_reads(name, shape):
    network = networks.build(name, shape, 3, seeded()).eval()
    x = torch.randn(4, *shape, generator=seeded(1))
    logits, features = network(x, features=True)
    assert features.ndim == 2
    torch.testing.assert_close(logits, network.classifier(features))
    torch.testing.assert_close(logits, network(x))


@pytest.mark.parametrize("name", ["cnn13", "convnet"])
def test_features_are_the_mean_over_the_image(name):
    network = networks.build(name, (3, 16, 16), 3, seeded()).eval()
    x = torch.randn(2, 3, 16, 16, generator=seeded(1))
    torch.testing.assert_close(network.body(x), network.layers(x).flatten(2).mean(2))
    wide = networks.build("wide-resnet-10-1", (3, 16, 16), 3, seeded()).eval()
    maps = networks.act(wide.norm(wide.blocks(wide.first(x))))
    assert maps.shape == (2, 64, 4, 4)
    torch.testing.assert_close(wide.body(x), maps.flatten(2).mean(2))


@every
def test_a_batch_of_one_stays_a_batch(name, shape):
    logits, features = networks.build(name, shape, 3, seeded()).eval()(torch.zeros(1, *shape), features=True)
    assert logits.shape == (1, 3)
    assert len(features) == 1
    assert features.ndim == 2


@every
def test_weights_come_from_the_generator_alone(name, shape):
    state = torch.get_rng_state()
    first = networks.build(name, shape, 3, seeded(5)).state_dict()
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(99)
    again = networks.build(name, shape, 3, seeded(5)).state_dict()
    other = networks.build(name, shape, 3, seeded(6)).state_dict()
    assert all(torch.equal(first[key], again[key]) for key in first)
    weights = [key for key in first if key.endswith("weight") and first[key].ndim > 1]
    assert not any(torch.equal(first[key], other[key]) for key in weights)


@pytest.mark.parametrize("name", ["toy-mlp", "mlp"])
def test_many_networks_run_as_one(name):
    nets = [networks.build(name, SHAPES[name], 3, seeded(s)) for s in range(4)]
    parameters, buffers = torch.func.stack_module_state(nets)
    x = torch.randn(4, 6, *SHAPES[name], generator=seeded(1))

    def call(p, b, x):
        return torch.func.functional_call(nets[0], (p, b), (x,), {"features": True})

    logits, features = torch.vmap(call, randomness="error")(parameters, buffers, x)
    for i, network in enumerate(nets):
        torch.testing.assert_close(logits[i], network(x[i]))
        torch.testing.assert_close(features[i], network(x[i], features=True)[1])


@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 28, 28), (3, 33, 20)])
def test_convnet_takes_any_size(shape):
    assert networks.build("convnet", shape, 5, seeded())(torch.zeros(2, *shape)).shape == (2, 5)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("wide-resnet-28", (3, 32, 32), "did you mean 'wide-resnet-28-2'"),
        ("convnett", (3, 32, 32), "did you mean 'convnet'"),
        ("wide-resnet-27-2", (3, 32, 32), "depth has to be 10, 16, 22, 28"),
        ("wide-resnet-4-2", (3, 32, 32), "depth has to be 10, 16, 22, 28"),
        ("wide-resnet-28-0", (3, 32, 32), "width >= 1"),
        ("wide-resnet-28-2", (2,), "got samples of shape \\(2,\\): use mlp"),
        ("cnn13", (3, 8, 8), "at least 12 x 12"),
        ("toy-mlp", (1, 8, 8), "use mlp or convnet"),
    ],
)
def test_wrong_names_and_shapes_say_what_to_do(name, shape, message):
    with pytest.raises(ValueError, match=message):
        networks.build(name, shape, 10, seeded())


def test_one_class_is_refused():
    with pytest.raises(ValueError, match="at least 2 classes, got n_classes=1"):
        networks.build("mlp", (4,), 1, seeded())


USER_CODE = """
import torch
from torch import nn

class Good(nn.Module):
    def __init__(self, input_shape, n_classes):
        super().__init__()
        self.inner = nn.Linear(input_shape[0], 5)
        self.outer = nn.Linear(5, n_classes)
    def forward(self, x, features=False):
        h = self.inner(x)
        return (self.outer(h), h) if features else self.outer(h)

class Plain(Good):
    def forward(self, x):
        return super().forward(x)

class Squeezed(Good):
    def forward(self, x):
        return super().forward(x).sum(1)

class FeatureMaps(Good):
    def forward(self, x, features=False):
        logits = super().forward(x)
        return (logits, x[:, :, None, None]) if features else logits

class Broken(Good):
    def forward(self, x):
        return self.inner(x[:, :1])

class Counting(Good):
    def __init__(self, input_shape, n_classes):
        super().__init__(input_shape, n_classes)
        self.norm = nn.BatchNorm1d(input_shape[0])
    def forward(self, x):
        return super().forward(self.norm(x))

def raising(input_shape, n_classes):
    raise RuntimeError("no such thing")

def not_a_module(input_shape, n_classes):
    return 3

number = 7
"""


@pytest.fixture
def user(tmp_path, monkeypatch):
    (tmp_path / "their_networks.py").write_text(USER_CODE)
    (tmp_path / "their_bug.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)

    def build(name, seed=0):
        return networks.build(f"their_networks:{name}", (4,), 3, seeded(seed))

    return build


def test_a_users_network_is_used_as_it_is(user):
    state = torch.get_rng_state()
    network = user("Good", seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    x = torch.randn(6, 4, generator=seeded(3))
    logits, features = network(x, features=True)
    torch.testing.assert_close(logits, network.module(x))
    torch.testing.assert_close(features, network.module.inner(x))
    assert network.training
    assert torch.equal(user("Good", seed=1).module.inner.weight, network.module.inner.weight)
    assert not torch.equal(user("Good", seed=2).module.inner.weight, network.module.inner.weight)


def test_trying_a_users_network_leaves_its_statistics_alone(user):
    network = user("Counting")
    assert network.module.norm.num_batches_tracked == 0
    assert network.module.norm.running_var.eq(1).all()


def test_a_users_network_without_features_works_until_sntg_asks(user):
    network = user("Plain")
    assert network(torch.zeros(6, 4)).shape == (6, 3)
    with pytest.raises(ValueError, match="Plain gives no features, which sntg needs"):
        network(torch.zeros(6, 4), features=True)


def test_features_that_are_not_flat_are_refused(user):
    with pytest.raises(ValueError, match=r"features of shape \(n, d\).*got \(shape \(6, 3\), shape \(6, 4, 1, 1\)\)"):
        user("FeatureMaps")(torch.zeros(6, 4), features=True)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("their_networks:Squeezed", r"expected logits of shape \(2, 3\).*got shape \(2,\)"),
        ("their_networks:Broken", r"fails on a batch of shape \(2, 4\)"),
        ("their_networks:raising", r"called as raising\(\(4,\), 3\) and failed: no such thing"),
        ("their_networks:not_a_module", "expected it to return a torch.nn.Module, got int"),
        ("their_networks:number", "'number' is a int"),
        ("their_networks:Absent", "'Absent' is not in it"),
        ("no_such_module:Net", "importing 'no_such_module' failed.*PYTHONPATH"),
        ("their_bug:Net", "importing 'their_bug' failed .ZeroDivisionError"),
        (":Net", "importing '' failed"),
    ],
)
def test_what_is_wrong_with_a_users_network_is_said_before_training(user, name, message):
    with pytest.raises(ValueError, match=message):
        networks.build(name, (4,), 3, seeded())
