"""The inputs of transcripts: small arrays of numbers that binary32 holds exactly, from fixed seeds, and what goes with them.

Nothing but the standard library, so that the bytes are the same everywhere.
"""

import json
import math
import os
import random
import struct


def npy(shape, data, descr="<f4", fortran=False):
    header = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {tuple(shape)}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data


def safetensors(tensors, header=None):
    """{name: (dtype, shape, bytes)}, and what the header has besides."""
    header, data = dict(header or {}), b""
    for name, (dtype, shape, part) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def count_of(shape):
    count = 1
    for size in shape:
        count *= size
    return count


def values(seed, shape, spread=1.0):
    """Sums of four bytes, nearly normal, in steps of 1/128; `spread` is a power of two."""
    draw = random.Random(seed)
    return [spread * (sum(draw.randrange(256) for _ in range(4)) - 510) / 128 for _ in range(count_of(shape))]


def floats(numbers, form="f"):
    return struct.pack(f"<{len(numbers)}{form}", *numbers)


def bf16(numbers):
    """Cut to BF16."""
    return b"".join(struct.pack("<f", number)[2:] for number in numbers)


def codes(seed, shape, mask=0xFF, nan=(0x7F, 0xFF)):
    draw = random.Random(seed)
    drawn = (draw.randrange(256) & mask for _ in range(count_of(shape)))
    return bytes(0x38 if code in nan else code for code in drawn)


def arrays(folder):
    save = lambda name, shape, *more, **options: (folder / f"{name}.npy").write_bytes(npy(shape, *more, **options))
    real = lambda name, seed, shape, spread=1.0: save(name, shape, floats(values(seed, shape, spread)))
    positive = lambda name, shape: save(
        name, shape, floats([2.0 ** (i * 5 % 7 - 6) * (1 + i % 3 / 4) for i in range(count_of(shape))]))
    special = [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 448.0, 464.0, 480.0, 2.0**-9, 2.0**-10, 2.0**-11, 1e30, -3.0,
               57344.0, 61440.0, math.copysign(float("nan"), -1.0)]
    # A product, its operands as floats, as codes of FP8 and FP4, and what may come with it.
    real("a", 1, (12, 128))
    real("b", 2, (10, 128), 0.25)
    save("a8", (12, 128), codes(3, (12, 128)), "|u1")
    save("b8", (10, 128), codes(4, (10, 128)), "|u1")
    save("b8_turned", (128, 10), codes(4, (128, 10)), "|u1")
    save("a5", (12, 128), codes(5, (12, 128), 0xF3, (0x7C, 0xFC, 0x7D, 0xFD, 0x7E, 0xFE, 0x7F, 0xFF)), "|u1")
    save("a4", (12, 64), codes(6, (12, 64), nan=()), "|u1")
    save("b4", (10, 64), codes(7, (10, 64), nan=()), "|u1")
    save("a16", (12, 128), floats(values(8, (12, 128)), "e"), "<f2")
    save("b16", (10, 128), floats(values(9, (10, 128), 0.25), "e"), "<f2")
    save("fortran", (12, 128), floats(values(1, (12, 128))), fortran=True)
    real("large", 19, (128, 128))
    # Not finite numbers of both signs, each in another tile.
    odd = {5: special[0], 40: special[15], 200: special[1], 4000: special[2], 9000: special[15], 12345: special[0]}
    save("strange", (128, 128), floats([odd.get(i, v) for i, v in enumerate(values(19, (128, 128)))]))
    save("nibbles", (12, 128), codes(21, (12, 128), 0x0F, ()), "|u1")
    save("strange16", (128, 128), bf16([odd.get(i, v) for i, v in enumerate(values(19, (128, 128)))]), "<V2")
    save("large16", (32, 128), bf16(values(20, (32, 128))), "<V2")
    real("c", 10, (12, 10), 4.0)
    real("bias", 11, (10,))
    positive("one", (1,))
    positive("rows", (12,))
    positive("columns", (10,))
    positive("tiles_a", (12, 4))
    positive("tiles_b", (10, 4))
    positive("blocks_b", (1, 1))
    positive("column_major", (4, 12))
    save("e8_a", (12, 4), bytes(120 + i % 13 for i in range(48)), "|u1")
    save("e8_b", (10, 4), bytes(122 + i % 11 for i in range(40)), "|u1")
    save("e4_a", (12, 8), bytes(40 + i * 7 % 60 for i in range(96)), "|u1")
    save("e4_b", (10, 8), bytes(44 + i * 5 % 60 for i in range(80)), "|u1")
    # Groups.
    real("stack_a", 12, (3, 6, 128))
    real("stack_b", 13, (3, 10, 128), 0.25)
    save("stack_b8", (3, 10, 128), codes(22, (3, 10, 128)), "|u1")
    save("one8", (1,), bytes([126]), "|u1")
    save("ends", (3,), struct.pack("<3q", 3, 3, 11), "<i8")
    save("indices", (12,), struct.pack("<12i", 0, 0, 0, -1, 1, 1, 2, 2, 2, 2, 2, -1), "<i4")
    # Odd ones.
    save("special", (2, 8), floats(special))
    few = {131: float("nan"), 700: float("inf")}
    save("a_nan", (12, 128), floats([few.get(i, v) for i, v in enumerate(values(1, (12, 128)))]))
    save("c_nan", (12, 10), floats([float("nan") if i == 101 else v for i, v in enumerate(values(10, (12, 10), 4.0))]))
    save("zeros", (12, 128), floats([0.0] * (12 * 128)))
    save("empty", (0, 128), b"")
    save("empty8", (0, 128), b"", "|u1")
    save("cube", (2, 3, 4), floats(values(14, (2, 3, 4))))
    save("integers", (12, 128), struct.pack("<1536i", *range(1536)), "<i4")
    save("f64", (4, 32), floats(values(15, (4, 32)), "d"), "<f8")
    save("u32", (4, 32), struct.pack("<128I", *range(128)), "<u4")
    save("u64", (4, 32), struct.pack("<128Q", *range(128)), "<u8")
    # An output, and one in which a block is that of another place.
    whole = values(80, (48, 64))
    copied = [whole[(row - 8) * 64 + column + 24] if 16 <= row < 32 and 8 <= column < 24 else whole[row * 64 + column]
              for row in range(48) for column in range(64)]
    save("whole", (48, 64), floats(whole))
    save("copied", (48, 64), floats(copied))
    (folder / "cut.npy").write_bytes(npy((12, 128), floats(values(1, (12, 128)))[:-4]))
    (folder / "text.npy").write_text("no array")
    # Attention.
    for name, seed, shape in (("q", 16, (4, 20, 32)), ("k", 17, (2, 36, 32)), ("v", 18, (2, 36, 32))):
        real(name, seed, shape)
        save(name + "8", shape, codes(seed + 20, shape, 0xBF), "|u1")
        save(name + "5", shape, codes(seed + 24, shape, 0xBF), "|u1")
    real("v_wide", 18, (2, 36, 48))
    few = {70: float("nan"), 700: float("inf"), 1300: -float("nan")}
    save("q_nan", (4, 20, 32), floats([few.get(i, v) for i, v in enumerate(values(16, (4, 20, 32)))]))
    for name, seed, shape in (("q64", 81, (2, 20, 64)), ("k64", 82, (1, 36, 64)), ("v64", 83, (1, 36, 64))):
        real(name, seed, shape)
    save("o_zeros8", (4, 20, 32), bytes(4 * 20 * 32), "|u1")
    positive("scale_q", (4,))
    positive("scale_kv", (2,))
    positive("sinks", (4,))
    real("q576", 19, (2, 3, 576))
    real("k576", 20, (1, 40, 576))


def tensors(folder):
    named = {
        "x": ("F32", (8, 128), floats(values(30, (8, 128)))),
        "half": ("BF16", (4, 64), bf16(values(31, (4, 64)))),
        "layers.0.weight": ("F16", (16, 128), floats(values(32, (16, 128), 0.5), "e")),
        "count": ("I64", (3,), struct.pack("<3q", 1, 2, 3)),
        "outlier": ("F32", (4, 128),
                    floats([v * (4096.0 if i % 128 == 5 else 1.0) for i, v in enumerate(values(33, (4, 128)))])),
    }
    (folder / "tensors.safetensors").write_bytes(safetensors(named))
    (folder / "none.safetensors").write_bytes(safetensors({}))
    nothing = ("F32", (0, 128), b"")
    (folder / "nothing.safetensors").write_bytes(safetensors({"a": nothing, "b": named["x"], "c": nothing, "d": named["outlier"]}))
    (folder / "cut.safetensors").write_bytes(safetensors(named)[:-8])
    names = ("lm_head.weight", "model.embed_tokens.weight", "model.layers.0.mlp.gate.weight")
    (folder / "names.safetensors").write_bytes(safetensors(
        {name: named["x"] for name in names} | {"model.norm.weight": ("F32", (128,), floats(values(34, (128,))))}))


    vector = lambda i: ("F32", (8,), floats(values(81 + i, (8,))))
    (folder / "vectors.safetensors").write_bytes(safetensors({f"norm.{i}": vector(i) for i in range(7)}))
    known = {"__metadata__": {"format": "pt", "fp8lab.recipe": "another", "author": "someone"}}
    (folder / "known.safetensors").write_bytes(safetensors({"x": named["x"], "norm": vector(1)}, known))


def model(folder):
    """A model of two layers in two files, with what stands beside the weights."""
    target = folder / "model"
    target.mkdir()
    shards, index = ({}, {}), {}

    def add(shard, name, part):
        shards[shard][name] = part
        index[name] = f"model-{shard + 1}-of-2.safetensors"

    weight = lambda seed, *shape: ("BF16", shape, bf16(values(seed, shape, 0.125)))
    add(0, "model.embed_tokens.weight", weight(40, 24, 128))
    for layer in (0, 1):
        name = f"model.layers.{layer}."
        parts = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj")
        for i, part in enumerate(parts):
            add(layer, f"{name}{part}.weight", weight(41 + 10 * layer + i, 128, 128))
        add(layer, f"{name}mlp.down_proj.weight", weight(48 + 10 * layer, 128, 128))
        add(layer, f"{name}input_layernorm.weight", weight(49 + 10 * layer, 128))
    add(1, "model.norm.weight", weight(62, 128))
    add(1, "lm_head.weight", weight(63, 24, 128))
    for shard, named in enumerate(shards):
        (target / f"model-{shard + 1}-of-2.safetensors").write_bytes(safetensors(named))
    size = sum(len(part[2]) for named in shards for part in named.values())
    index_text = json.dumps({"metadata": {"total_size": size}, "weight_map": index}, indent=2)
    (target / "model.safetensors.index.json").write_text(index_text)
    config = {"architectures": ["LlamaForCausalLM"], "hidden_size": 128, "num_hidden_layers": 2, "torch_dtype": "bfloat16"}
    (target / "config.json").write_text(json.dumps(config, indent=2))
    # What is copied, and what is left: other forms of the weights, hidden files, folders.
    for name in ("tokenizer.json", "LICENSE", "notes.ckpt.txt", "pytorch_model.bin", "a.pt", "b.pth", "c.ckpt", "d.gguf", "e.h5",
                 "f.msgpack", "g.onnx", ".hidden"):
        (target / name).write_text(f"{name}\n")
    (target / "original").mkdir()
    (target / "original" / "inside.txt").write_text("inside\n")
    linears = [name.removesuffix(".weight") for name in index if name.endswith("_proj.weight")]
    samples = {f"{name}.input": ("F32", (3, 128), floats(values(70 + i, (3, 128), 2.0 ** (i % 5 - 2)))) for i, name in enumerate(linears)}
    (folder / "samples.safetensors").write_bytes(safetensors(samples))
    others = {f"{name}.input": ("F32", (2, 128), floats(values(90, (2, 128)))) for name in ("model.norm", "lm_head", "model.embed_tokens")}
    (folder / "others.safetensors").write_bytes(safetensors(samples | others))
    (folder / "trace.csv").write_text("".join(f"{name},{1.5 + i / 8}\n" for i, name in enumerate(linears)))
    (folder / "short.csv").write_text(f"{linears[0]},1.5\n")
    (folder / "trace.txt").write_text((folder / "trace.csv").read_text())


def texts(folder):
    write = lambda name, text: (folder / name).write_text(text)
    write("models.toml", '[accumulator.narrow]\nbase = "sm90.wgmma.e4m3"\nF = 10\n\n'
          '[accumulator.wide]\nbase = "fused"\nterms = 16\nF = 25\n')
    write("models.json", '{"accumulator": {"other": {"base": "sm89.mma.e4m3", "F": 14}}}')
    write("no_models.toml", "[accumulator]\n")
    write("wrong_models.toml", "[accumulators.narrow]\nF = 10\n")
    write("vectors.txt", "# fp8lab vectors 1\n# model: sm90.wgmma.e4m3\n# input: e4m3\n# terms: 2\n"
          "3838 4030 3f800000 40600000\n3838 4030 3f800000 40600001\n")
    write("no_vectors.txt", "# fp8lab vectors 1\n# model: none\n")
    write("shape.toml", "layers = 2\nhidden = 256\nheads = 4\nvocabulary = 1000\n")
    write("wrong_shape.toml", "layers = 2.0\nhidden = 256\nheads = 4\nvocabulary = 1000\n")
    write("odd_shape.toml", "layers = 2\nhidden = 256\nheads = 4\nvocabulary = 1000\ncolour = 3\n")
    write("grid.toml", 'experiment = "walkthrough"\nquick = true\n\n[axes]\ncurve_points = [10, 20]\n')
    write("run.toml", 'experiment = "walkthrough"\nquick = true\n\n[set]\ncurve_points = 10\n')
    write("run.toml.bak", 'experiment = "walkthrough"\nquick = true\n')
    write("sweep.toml", 'experiment = "walkthrough"\nquick = true\nrepeat = 3\nseed = 7\n\n'
          '[axes]\ncurve_points = [10, 20]\n')
    for name, lines in (("zero", "1\n0\n2\n"), ("minus", "1\n2\n-3\n"),
                        ("single", "1\n"), ("odd", "a\n1\nx\n"), ("gap", "1\n\n2\n"), ("infinite", "1,inf\n")):
        write(f"{name}.csv", lines)
    write("names.toml", "quick = true\n")
    write("outlier.toml", 'experiment = "outlier"\nquick = true\n\n[set]\nrepeats = 1\noutliers_per_decade = 1\n\n'
          '[axes]\ntiles = [16, 32]\n')
    write("words.txt", "the quick brown fox jumps over the lazy dog. " * 40)
    os.mkfifo(folder / "pipe.npy")


def edges(folder):
    """What only calls at the edges read: a number, runs with settings of their own, odd models."""
    (folder / "scalar.npy").write_bytes(npy((), floats([-3.25])))
    (folder / "codes_of_two.npy").write_bytes(npy((2, 1), bytes([0x38, 0x40]), "|u1"))
    write = lambda name, text: (folder / name).write_text(text)
    write("seed.toml", 'experiment = "walkthrough"\nquick = true\nseed = 7\n\n[set]\ncurve_points = 10\n')
    write("long.toml", 'experiment = "walkthrough"\nquick = false\n\n[set]\ncurve_points = 10\n')
    write("repeat.toml", 'experiment = "walkthrough"\nquick = true\nrepeat = 3\n')
    write("whole.toml", 'experiment = "walkthrough"\nquick = false\n\n[set]\ncurve_points = 10\n\n[axes]\ncurve_points = [11, 12]\n')
    # Two weights in FP8, of which one has no scale, and the other one's is an outlier.
    code = lambda seed, *shape: ("F8_E4M3", shape, codes(seed, shape))
    config = {"architectures": ["LlamaForCausalLM"], "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    for name, dtype in (("half", {"torch_dtype": "float16"}), ("no_dtype", {})):
        target = folder / f"model_{name}"
        target.mkdir()
        (target / "config.json").write_text(json.dumps(config | dtype))
        (target / "model.safetensors").write_bytes(safetensors(
            {"a.weight": code(101, 130, 40), "a.weight_scale_inv": ("F32", (2, 1), floats([0.5, 1024.0])), "b.weight": code(102, 8, 16),
             "c.weight": code(103, 5, 3), "norm.weight": ("BF16", (8,), bf16(values(104, (8,))))}))
    # Weights with NaN in two of them, and no head.
    target = folder / "model_nan"
    target.mkdir()
    (target / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "torch_dtype": "float32"}))
    odd = lambda seed, *at: floats([float("nan") if i in at else v for i, v in enumerate(values(seed, (128, 128)))])
    (target / "model.safetensors").write_bytes(safetensors(
        {f"layers.{i}.q_proj.weight": ("F32", (128, 128), odd(110 + i, *at)) for i, at in enumerate(((5,), (), (300, 301)))}))


def make(folder):
    arrays(folder)
    tensors(folder)
    model(folder)
    texts(folder)
    edges(folder)
