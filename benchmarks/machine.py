"""What the figures were measured on, and how fast it multiplies."""

from __future__ import annotations

import datetime
import os
import platform
import time
from pathlib import Path
from typing import Any

import torch

SHAPE = (900, 192, 1024)  # rows, inputs, outputs of a typical product in planning


def cpu_model() -> str:
    """Name of the processor as its maker writes it, or its kind where the system does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def facts() -> dict[str, Any]:
    """What tells machines and days apart; neither a host name nor a path."""
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load_average": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def multiply_rates(seconds: float = 1.0) -> dict[str, float]:
    """GFLOP/s of a matrix product of `SHAPE`, the best of what fits into the time, at most 80."""
    rates = {}
    rows, inputs, outputs = SHAPE
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        left, right = torch.ones(rows, inputs, dtype=dtype), torch.ones(inputs, outputs, dtype=dtype)
        taken: list[float] = []
        while not taken or (len(taken) < 80 and sum(taken) < seconds):
            begun = time.perf_counter()
            left @ right
            taken.append(time.perf_counter() - begun)
        rates[name] = round(2 * rows * inputs * outputs / min(taken) / 1e9, 1)
    return rates


def precisions_that_pay(rates: dict[str, float]) -> list[str]:
    """fp32, and bf16 where it is faster: a CPU without units for it emulates it, many times slower."""
    return ["fp32", "bf16"] if rates["bf16"] > rates["fp32"] else ["fp32"]
