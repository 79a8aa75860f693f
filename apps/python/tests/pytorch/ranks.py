"""Two ranks: processes of one machine that talk over gloo."""

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

RANKS = 2


def on_ranks(work, *arguments):
    """Runs `work(index, *arguments)`, a function of a module, in a process for each rank."""
    mp.spawn(_rank, (29500 + torch.randint(2000, (1,)).item(), work, arguments), nprocs=RANKS)


def _rank(index, port, work, arguments):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=index, world_size=RANKS)
    work(index, *arguments)
    dist.destroy_process_group()
