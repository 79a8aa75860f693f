"""Safetensors files with FP4 and FP6 in them, which PyTorch reads in part only."""

import json

import numpy as np
import torch

NARROW = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}
DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16, "U8": torch.uint8,
          "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "F8_E8M0": torch.uint8}


def codes_of(data, bits, shape):
    """Packed codes, one a byte: code i has bits [i * bits, (i + 1) * bits), the lowest of a byte first."""
    stream = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little").reshape(-1, bits)
    codes = (stream << np.arange(bits, dtype=np.uint8)).sum(1).astype(np.uint8)
    return torch.from_numpy(codes.reshape(shape))


def load(path):
    """name -> tensor; codes of fewer than eight bits as uint8, one a byte."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    found = {}
    for name, entry in header.items():
        begin, end = (8 + length + o for o in entry["data_offsets"])
        if entry["dtype"] in NARROW:
            found[name] = codes_of(data[begin:end], NARROW[entry["dtype"]], entry["shape"])
        else:
            words = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.uint8)
            found[name] = words.view(DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return found
