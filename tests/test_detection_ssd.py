"""The detectors: sizes, shapes, gradients, seeds, and published weights in either layout."""

import math

import pytest
import torch
from safetensors.torch import save_file

from cissl.detection import priors, ssd

BACKBONES = tuple(ssd.BACKBONES)


def parameters(network):
    return sum(parameter.numel() for parameter in network.parameters())


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def vgg():
    return ssd.ssd300(20, seeded())


def by_hand(classes):
    """Parameters of SSD300, layer by layer: channels in, channels out, kernel."""
    vgg = [(3, 64), (64, 64), (64, 128), (128, 128), (128, 256), (256, 256), (256, 256), (256, 512)] + 5 * [(512, 512)]
    layers = [(wide, narrow, 3) for wide, narrow in vgg] + [(512, 1024, 3), (1024, 1024, 1)]
    layers += [(1024, 256, 1), (256, 512, 3), (512, 128, 1), (128, 256, 3)] + 2 * [(256, 128, 1), (128, 256, 3)]
    maps = zip((512, 1024, 512, 256, 256, 256), (4, 6, 6, 6, 4, 4), strict=True)
    layers += [(wide, boxes * each, 3) for wide, boxes in maps for each in (classes + 1, 4)]
    return 512 + sum(narrow * (wide * size**2 + 1) for wide, narrow, size in layers)


def test_ssd300_has_as_many_parameters_as_the_paper_says(vgg):
    assert parameters(vgg) == by_hand(20) == 26_285_486
    assert len(vgg.priors) == 8732
    assert vgg.priors.equal(priors.ssd300())


def test_every_map_and_output_of_ssd300_has_its_shape_and_every_parameter_learns(vgg):
    maps = {}
    hooks = [
        head.register_forward_pre_hook(lambda _, given, n=n: maps.update({n: tuple(given[0].shape)}))
        for n, head in enumerate(vgg.class_heads)
    ]
    image = 255 * torch.rand(1, 3, 300, 300, generator=seeded(1))
    logits, offsets = vgg(image)
    for hook in hooks:
        hook.remove()
    cells, widths = (38, 19, 10, 5, 3, 1), (512, 1024, 512, 256, 256, 256)
    assert maps == {n: (1, width, size, size) for n, (size, width) in enumerate(zip(cells, widths, strict=True))}
    fc6 = vgg.body.layers[31]
    assert (fc6.kernel_size, fc6.dilation) == ((3, 3), (6, 6))
    assert logits.shape == (1, 8732, 21)
    assert offsets.shape == (1, 8732, 4)
    (logits.square().mean() + offsets.square().mean()).backward()
    silent = [name for name, parameter in vgg.named_parameters() if not parameter.grad.abs().sum() > 0]
    assert silent == []
    vgg.zero_grad()


def test_every_feature_of_conv4_3_is_scaled_to_norm_twenty():
    norm = ssd.L2Norm(8, 20.0)
    x = torch.randn(2, 8, 3, 3, generator=seeded())
    torch.testing.assert_close(norm(x).norm(dim=1), torch.full((2, 3, 3), 20.0))
    torch.testing.assert_close(norm(x), 20 * x / x.square().sum(1, keepdim=True).sqrt())
    dark = torch.zeros(1, 8, 1, 1, requires_grad=True)
    norm(dark.relu()).sum().backward()
    assert dark.grad.isfinite().all()


@pytest.mark.parametrize("size", [96, 128])
def test_the_small_detector_is_small_and_every_parameter_learns(size):
    network = ssd.small(20, seeded(), size)
    assert parameters(network) < 500_000
    logits, offsets = network(255 * torch.rand(2, 3, size, size, generator=seeded(1)))
    assert logits.shape == (2, len(network.priors), 21)
    assert offsets.shape == (2, len(network.priors), 4)
    (logits.square().sum() + offsets.square().sum()).backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in network.parameters())


def test_outputs_are_in_the_order_of_the_priors():
    """A head that says where it stands says it for the priors that stand there."""
    network = ssd.small(3, seeded())
    with torch.no_grad():
        for parameter in (*network.class_heads.parameters(), *network.offset_heads.parameters()):
            parameter.zero_()
        shape = 0
        for head in network.offset_heads:
            head.weight[::4, 0] = 1  # the first offset is the first channel
            head.bias[1::4] = torch.arange(shape, shape + len(head.bias) // 4).float()  # the second, map and shape
            shape += len(head.bias) // 4
    maps = []
    for cells, width in zip((12, 6, 3, 1), network.body.widths, strict=True):
        columns, rows = torch.meshgrid(torch.arange(cells), torch.arange(cells), indexing="xy")
        maps.append(torch.zeros(1, width, cells, cells))
        maps[-1][0, 0] = (columns + 100 * rows).float()
    network.body.forward = lambda images: maps
    _, offsets = network(torch.zeros(1, 3, 96, 96))
    start = shape = 0
    for map_ in ssd.small_maps(96):
        for at, prior in enumerate(network.priors[start : start + map_.cells**2 * len(map_.shapes)].tolist()):
            column, row = (int(x / map_.step) for x in prior[:2])
            assert offsets[0, start + at, 0].item() == column + 100 * row
            assert offsets[0, start + at, 1].item() == shape + at % len(map_.shapes)
        start, shape = start + map_.cells**2 * len(map_.shapes), shape + len(map_.shapes)
    assert start == len(network.priors)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_a_network_is_a_function_of_its_seed_and_moves_no_other_generator(backbone):
    if backbone == "vgg16":  # its first layer is drawn first: enough, and cheap
        drawn = [ssd.convolution(3, 64, 3, seeded(seed)).weight for seed in (1, 1, 2)]
    before = torch.get_rng_state()
    if backbone == "small":
        drawn = [torch.cat([p.flatten() for p in ssd.build("small", 3, seeded(s)).parameters()]) for s in (1, 1, 2)]
    assert torch.get_rng_state().equal(before)
    assert drawn[0].equal(drawn[1])
    assert not drawn[0].equal(drawn[2])


def test_new_layers_are_xavier_uniform_with_zero_biases(vgg):
    layers = [module for module in vgg.modules() if isinstance(module, torch.nn.Conv2d)]
    assert len(layers) == 15 + 8 + 12
    for layer in layers:
        wide, narrow = (n * layer.kernel_size[0] ** 2 for n in (layer.in_channels, layer.out_channels))
        bound = math.sqrt(6 / (wide + narrow))
        assert layer.weight.abs().max() <= bound
        assert layer.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)
        assert layer.bias.eq(0).all()


def test_what_a_detector_cannot_take_is_said():
    network = ssd.small(3, seeded())
    with pytest.raises(ValueError, match=r"images of shape \(3, 96, 96\), got \(3, 64, 64\)"):
        network(torch.zeros(1, 3, 64, 64))
    with pytest.raises(ValueError, match="96, 128, 160"):
        ssd.small(3, size=100)
    with pytest.raises(ValueError, match="at least 1 class"):
        ssd.small(0)
    with pytest.raises(ValueError, match="unknown backbone 'smal': did you mean 'small'"):
        ssd.build("smal", 3)


def test_bytes_and_floats_are_the_same_image():
    network = ssd.small(3, seeded()).eval()
    image = torch.randint(0, 256, (1, 3, 96, 96), generator=seeded(1))
    assert network(image.to(torch.uint8))[0].equal(network(image.float())[0])


def test_the_mean_of_vggs_training_images_is_subtracted(vgg):
    class Seen(Exception):
        pass

    def show(body, given):
        raise Seen(given[0])

    for network, scale in ((vgg, 1), (ssd.small(3, seeded()), 64)):
        hook = network.body.register_forward_pre_hook(show)
        image = torch.tensor([133.0, 117.0, 100.0])[:, None, None].expand(1, 3, network.size, network.size)
        with pytest.raises(Seen) as seen:
            network(image)
        hook.remove()
        assert (scale * seen.value.args[0][0, :, 5, 5]).tolist() == [10, 0, -4]


# ---- Published weights


def published(vgg, seed=5):
    """Weights in the reduced-fc layout."""
    shapes = {name: tensor.shape for name, tensor in vgg.body.layers.state_dict().items()}
    return {name: torch.randn(shape, generator=seeded(seed)) for name, shape in shapes.items()}


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_the_reduced_file_is_taken_as_it_is(vgg, tmp_path, suffix):
    weights, path = published(vgg), tmp_path / f"vgg16_reducedfc{suffix}"
    assert {"0.weight", "28.bias", "31.weight", "33.bias"} < set(weights)
    torch.save(weights, path) if suffix == ".pth" else save_file(weights, path)
    others = {name: p.clone() for name, p in vgg.named_parameters() if not name.startswith("body.layers.")}
    assert len(ssd.load_backbone(vgg, path)) == 15
    for name, tensor in vgg.body.layers.state_dict().items():
        assert tensor.equal(weights[name])
    assert all(p.equal(others[name]) for name, p in vgg.named_parameters() if name in others)


def torchvision_file(vgg, dense):
    weights = {f"features.{name}": w for name, w in published(vgg).items() if int(name.split(".")[0]) < 30}
    if dense is not None:
        shapes = {"0.weight": (4096, 25088), "0.bias": (4096,), "3.weight": (4096, 4096), "3.bias": (4096,)}
        for name, shape in (shapes | {"6.weight": (1000, 4096), "6.bias": (1000,)}).items():
            weights[f"classifier.{name}"] = dense.expand(shape)
    return weights


@pytest.mark.parametrize("dense", [None, torch.tensor(math.nan)], ids=["left out", "NaN"])
def test_torchvisions_file_for_ssd_leaves_fc6_and_fc7_as_they_were(vgg, tmp_path, monkeypatch, dense):
    weights, path = torchvision_file(vgg, dense), tmp_path / "vgg16_features.pth"
    monkeypatch.setattr(ssd, "_read", lambda path: weights)
    before = {n: vgg.body.layers[n].weight.clone() for n in (31, 33)}
    assert ssd.load_backbone(vgg, path) == tuple(map(str, (0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28)))
    assert vgg.body.layers[0].weight.equal(weights["features.0.weight"])
    assert vgg.body.layers[28].bias.equal(weights["features.28.bias"])
    assert all(vgg.body.layers[n].weight.equal(weight) for n, weight in before.items())


def test_torchvisions_classifier_is_thinned_out_and_made_to_see_our_pixels(vgg, tmp_path, monkeypatch):
    weights = torchvision_file(vgg, torch.tensor(0.0))
    row = torch.arange(4096.0)
    place = torch.arange(512.0)[:, None, None] * 100 + torch.arange(7.0)[:, None] * 10 + torch.arange(7.0)
    weights["classifier.0.weight"] = place.flatten().expand(4096, -1)
    weights["classifier.0.bias"] = weights["classifier.3.bias"] = row
    weights["classifier.3.weight"] = row.expand(4096, -1)
    monkeypatch.setattr(ssd, "_read", lambda path: weights)
    assert ssd.load_backbone(vgg, tmp_path / "vgg16.pth")[-2:] == ("31", "33")
    layers = vgg.body.layers
    assert layers[31].weight[7, 5].tolist() == [[500, 503, 506], [530, 533, 536], [560, 563, 566]]
    assert layers[31].bias.equal(row[::4])
    assert layers[33].weight[3, :, 0, 0].equal(row[::4])
    # What the classifier's first layer says of a standardised pixel, ours says of the pixel less its mean.
    pixel, mean, deviation = 200.0, torch.tensor((0.485, 0.456, 0.406)), torch.tensor((0.229, 0.224, 0.225))
    theirs = weights["features.0.weight"][:, :, 1, 1] @ ((pixel / 255 - mean) / deviation)
    ours = layers[0].weight[:, :, 1, 1] @ (pixel - 255 * mean)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"conv.weight": torch.zeros(3)}, r"expected VGG16's weights.*got 1 tensors: conv.weight"),
        ([1, 2], "expected a table of named tensors"),
        ({"0.weight": "text"}, "expected a table of named tensors"),
        (print, "no file of weights.*not only tensors"),
        (b"not a file of weights", "no file of weights"),
        (b"", "no file of weights"),
        (None, r"cannot be read: No such file"),
    ],
)
def test_a_file_that_is_none_is_refused_and_changes_nothing(vgg, tmp_path, content, message):
    path, before = tmp_path / "weights.pth", vgg.body.layers[0].weight.clone()
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        torch.save(content, path)
    with pytest.raises(ValueError, match=message):
        ssd.load_backbone(vgg, path)
    assert vgg.body.layers[0].weight.equal(before)


def test_weights_of_other_shapes_damaged_ones_and_other_networks_are_refused(vgg, tmp_path, monkeypatch):
    weights = published(vgg)
    monkeypatch.setattr(ssd, "_read", lambda path: weights)
    with pytest.raises(ValueError, match="fit the backbone vgg16 only"):
        ssd.load_backbone(ssd.small(3), tmp_path / "x.pth")
    before = vgg.body.layers[0].weight.clone()
    weights["33.bias"][5] = math.inf
    with pytest.raises(ValueError, match=r"33\.bias has a NaN"):
        ssd.load_backbone(vgg, tmp_path / "x.pth")
    weights["33.bias"] = torch.zeros(7)
    with pytest.raises(ValueError, match=r"33\.bias is of shape \(7,\), VGG16's is \(1024,\)"):
        ssd.load_backbone(vgg, tmp_path / "x.pth")
    assert vgg.body.layers[0].weight.equal(before)
