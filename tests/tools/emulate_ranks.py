#!/usr/bin/env python3
"""emulate_ranks: ranks on target cuda without a GPU: each rank's device is the emulator, and NCCL
is a fake one between processes. A fixture on meshes against one rank, and bit for bit with
exchanges as late and as early as the events between streams allow, without the graph, with --check,
and over NCCL where the devices' memory is not shared; or ranks that each find another algorithm
best; or what becomes of a job whose devices, NCCL or ranks are not as they should be. Passes where
there is no CUDA toolkit.

  emulate_ranks.py BUILD FIXTURE SEQ WORK_DIR MESH...      MESH as in ranks.py
  emulate_ranks.py tune BUILD FIXTURE SEQ WORK_DIR MESH
  emulate_ranks.py faults BUILD FIXTURE SEQ WORK_DIR
"""

import os
import re
import shutil
import subprocess
import sys

import check
import ranks
import ranks_faults

ROWS = 4


def use_emulator(build, exe=None, **more):
    """What the processes that are started from now on find as their driver and libraries."""
    libraries = [build + "/tests/emulated_cuda", build + "/tests/fake_cuda"]
    os.environ.update(LD_LIBRARY_PATH=":".join(libraries), FAKE_DEVICES="8", **more)
    if exe:
        os.environ["EMULATED_STEP"] = exe + ".so"


class Emulated(ranks.Fixture):
    def __init__(self, build, folder, seq, work):
        super().__init__(build + "/stepc", folder, seq, work, ROWS)
        self.build_dir = build

    def emulate(self, exe, world, transport, *options, **env):
        use_emulator(self.build_dir, exe, **env)
        name, _ = self.train(exe, world, transport, *options)
        for key in env:
            del os.environ[key]
        return name

    def build(self, world, local, distributed, recompute):
        self.at += 1
        exe = "%s/%d.step" % (self.work, self.at)
        sets = [
            "model.pretrained_model_name_or_path=" + self.folder,
            "dataset.seq_length=" + self.seq,
            "step_scheduler.global_batch_size=%d" % ROWS,
            "step_scheduler.local_batch_size=%d" % local,
            "step_scheduler.max_steps=3",
            "step_scheduler.ckpt_every_steps=0",
            "stepc.recompute.policy=" + recompute,
            *("distributed.%s=%s" % kv for kv in distributed.items()),
        ]
        return compile_step(self.build_dir, exe, world, sets)


def compile_step(build, exe, world, sets):
    words = [ranks.RECIPE, "--target", "cuda", "--world", str(world)]
    words += [w for s in sets for w in ("--set", s)]
    ranks.run([build + "/stepc", "build", *words, "-o", exe])
    plan = ranks.run([build + "/stepc", "plan", *words, "--emit", "ir"])
    with open(exe + ".sir", "w") as out:
        out.write(plan)
    ranks.run([build + "/tests/emit_cuda_test", exe + ".sir", exe + ".so"])
    return exe


def main(build, folder, seq, work, *meshes):
    os.makedirs(work, exist_ok=True)
    f = Emulated(build, folder, seq, work)
    alone = f.emulate(f.build(1, 2, {}, "none"), 1, "mpi")
    for mesh in meshes:
        world, keys = ranks.parse(mesh)
        local, recompute = int(keys.pop("local", 2)), keys.pop("recompute", "none")
        transport = keys.pop("transport", "mpi")
        exe = f.build(world, local, keys, recompute)
        name = f.emulate(exe, world, transport)
        ranks.logs_near(mesh, name + ".jsonl", alone + ".jsonl")
        check.compare(mesh + ": gradient of", name + ".grads", alone + ".grads", 1e-4)
        for options, env in (
            ([], {"FAKE_STREAMS": "late"}),
            ([], {"FAKE_STREAMS": "early"}),
            (["--no-graph"], {}),
            (["--check"], {}),
            (["--no-copy-engines"], {}),
            ([], {"FAKE_CUDA": "unshared"}),
        ):
            again = f.emulate(exe, world, transport, *options, **env)
            check.same([name + ".jsonl", again + ".jsonl", "--", name + ".grads", again + ".grads"])
        print("ok " + mesh)
    shutil.rmtree(work)  # a failed run leaves it, to be looked at


def tune(build, folder, seq, work, mesh):
    """All ranks run what rank 0 has chosen: in the run that measures, and in the next."""
    os.makedirs(work, exist_ok=True)
    f = Emulated(build, folder, seq, work)
    world, keys = ranks.parse(mesh)
    exe = f.build(world, 2, keys, "none")
    chosen = work + "/tune"
    first, again = (
        f.emulate(exe, world, "mpi", "--tune", chosen, FAKE_CUBLASLT="apart") for _ in range(2)
    )
    check.same([first + ".jsonl", again + ".jsonl", "--", first + ".grads", again + ".grads"])
    with open(chosen) as file:
        algorithms = {line.split()[0] for line in list(file)[1:]}
    if algorithms != {"1"}:
        check.fail("algorithms of rank 0: %s" % algorithms)
    print("ok tune " + mesh)
    shutil.rmtree(work)


def start(exe, world, options, env):
    use_emulator(os.environ["EMULATED_BUILD"], exe)
    done = subprocess.run(
        [*ranks.MPIRUN, str(world), exe, "--steps", "1", *options],
        capture_output=True,
        text=True,
        timeout=60,
        env=dict(os.environ, **env),
    )
    return done, done.stdout + done.stderr


def falls_back(what, why, exe, world, **env):
    done, text = start(exe, world, [], env)
    pattern = r"record: exchanges go over NCCL, not by the copy engines: rank 0 finds that " + why
    ranks_faults.demand(what, pattern, text)
    if done.returncode or text.count("record: exchanges") != 1:
        check.fail("%s: exit %d: %s" % (what, done.returncode, text))
    print(what + ": " + re.search(pattern, text).group())


def nothing_to_copy(exe, world):
    """Between stages alone nothing is said of memory that cannot be shared."""
    done, text = start(exe, world, [], {"FAKE_CUDA": "unshared"})
    if done.returncode or "record: exchanges" in text:
        check.fail("nothing to copy: exit %d: %s" % (done.returncode, text))
    print("ok nothing to copy")


def refused(what, pattern, exe, world, *options, **env):
    done, text = start(exe, world, options, env)
    ranks_faults.demand(what, pattern, text)
    if not done.returncode or "step 1 |" in text:
        check.fail("%s: exit %d: %s" % (what, done.returncode, text))
    print("ok " + what)


def faults(build, folder, seq, work):
    os.makedirs(work, exist_ok=True)
    world = ranks_faults.RANKS
    sets = [
        "model.pretrained_model_name_or_path=" + folder,
        "dataset.seq_length=" + seq,
        "step_scheduler.global_batch_size=%d" % world,
        "step_scheduler.local_batch_size=1",
        "step_scheduler.ckpt_every_steps=1",
        "dist_env.timeout_minutes=%g" % (ranks_faults.TIMEOUT_S / 60),
    ]
    exe = compile_step(build, work + "/fault.step", world, sets)
    os.environ["EMULATED_BUILD"] = build
    refused(
        "too few devices",
        r"error: local rank 2 has no device: the driver offers 2",
        exe,
        world,
        FAKE_DEVICES="2",
    )
    refused(
        "one device",
        r"error: ranks 0 and 1 have the same device",
        exe,
        world,
        FAKE_CUDA="same_device",
    )
    refused("old NCCL", r"error: `libnccl.so.2` has version 20705", exe, world, FAKE_NCCL="old")
    refused(
        "no NCCL",
        r"error: `libnccl.so.2` has no function `ncclGetVersion`",
        exe,
        world,
        LD_LIBRARY_PATH="%s:%s" % (build + "/tests/emulated_cuda", without_nccl(build, work)),
    )
    failed = r"error: NCCL failed while linking"
    refused("NCCL fails", failed, exe, world, "--no-copy-engines", FAKE_NCCL="fails")
    refused(
        "another library",
        r"rank 1: error: matrix product",
        exe,
        world,
        "--tune",
        work + "/tune",
        FAKE_CUBLASLT="refuses",
    )
    unshared = "the driver does not let memory be shared"
    falls_back("memory is not shared", unshared, exe, world, FAKE_CUDA="unshared")
    unmapped = "the driver does not map rank [12]'s memory"
    falls_back("memory is not mapped", unmapped, exe, world, FAKE_CUDA="no_import")
    stages = [s for s in sets if "batch_size" not in s] + [
        "step_scheduler.global_batch_size=2",
        "step_scheduler.local_batch_size=2",
        "distributed.pp_size=2",
        "distributed.pipeline.pp_microbatch_size=1",
    ]
    nothing_to_copy(compile_step(build, work + "/pp.step", 2, stages), 2)
    # a step takes longer than ranks wait for each other, and its exchanges do not
    many = [s for s in sets if "batch_size" not in s and "timeout" not in s] + [
        "step_scheduler.global_batch_size=%d" % (48 * world),
        "step_scheduler.local_batch_size=1",
        "dist_env.timeout_minutes=0.06",
    ]
    done, text = start(compile_step(build, work + "/many.step", world, many), world, [], {})
    if done.returncode or "step 1 |" not in text:
        check.fail("a long step: exit %d: %s" % (done.returncode, text))
    print("ok a long step")
    # what does not come makes the device hang, as a real one does
    use_emulator(build, exe, FAKE_NCCL_SECONDS="0.3")
    for transport, mode in (("mpi", "unshared"), ("tcp", "")):
        os.environ["FAKE_CUDA"] = mode
        ranks_faults.kill(exe, transport, work)
        ranks_faults.stop(exe, transport, work)


def without_nccl(build, work):
    """A folder in front of the system's, where `libnccl.so.2` is another library."""
    folder = work + "/libraries"
    os.makedirs(folder, exist_ok=True)
    for link, to in (
        ("libcublasLt.so.13", "/tests/fake_cuda/libcublasLt.so.13"),
        ("libnccl.so.2", "/tests/libcount_allocations.so"),
    ):
        if not os.path.lexists(folder + "/" + link):
            os.symlink(build + to, folder + "/" + link)
    return folder


if __name__ == "__main__":
    modes = {"faults": faults, "tune": tune}
    mode = modes.get(sys.argv[1], main)
    arguments = sys.argv[1:] if mode is main else sys.argv[2:]
    if not os.path.exists(arguments[0] + "/tests/emulated_cuda/libcuda.so.1"):
        print("ok: left out, target cuda is not built")
        sys.exit(0)
    mode(*arguments)
