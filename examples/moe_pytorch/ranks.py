"""Starts several ranks of one run, and averages their values."""

import os
import signal
import socket
import subprocess
import sys
import time

import torch
import torch.distributed as dist


def rank_and_world():
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def join():
    """Joins the other ranks (gloo, over MASTER_ADDR and MASTER_PORT)."""
    if rank_and_world()[1] > 1:
        dist.init_process_group("gloo")


def leave():
    if dist.is_initialized():
        # Gloo's worker needs the GIL to release the last hook. If the thread that ends it holds the GIL, both wait
        # forever (seen once on a busy machine, torch 1.13).
        time.sleep(0.1)
        dist.destroy_process_group()


def average(values):
    """Averages an fp32 tensor over the ranks, in place. Every rank gets the same bits."""
    if dist.is_initialized():
        dist.all_reduce(values)
        values /= dist.get_world_size()
    return values


def average_gradients(parameters):
    """Averages all gradients in one fp32 all-reduce. An expert without tokens has gradient 0."""
    if not dist.is_initialized():
        return
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    gradients = [p.grad for p in parameters]
    flat = average(torch.cat([g.float().flatten() for g in gradients]))
    for gradient, mean in zip(gradients, flat.split([g.numel() for g in gradients])):
        gradient.copy_(mean.view_as(gradient))


def launch(count, command):
    """Runs `command` as `count` ranks on this host; returns 0, or the first failure's status."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = []
    try:
        for rank in range(count):
            environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(count),
                               MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                               GLOO_SOCKET_IFNAME="lo")
            processes.append(subprocess.Popen([sys.executable, *command], env=environment))
        return _wait_for_all(processes)
    finally:
        _end(processes)


def _wait_for_all(processes):
    """Returns 0 if all have ended well, otherwise the status of the first failure: the others may wait for that rank."""
    waiting = list(processes)
    while waiting:
        for process in list(waiting):
            try:
                status = process.wait(timeout=0.1)
            except subprocess.TimeoutExpired:
                continue
            waiting.remove(process)
            if status != 0:
                return status if status > 0 else 128 - status
    return 0


def _end(processes):
    """Terminates the processes that still run, then kills them. Not interruptible."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    for end in (subprocess.Popen.terminate, subprocess.Popen.kill):
        for process in processes:
            if process.poll() is None:
                end(process)
        for process in processes:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                pass
