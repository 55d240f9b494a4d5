#!/usr/bin/env python3
"""ranks_faults: what becomes of a job when a rank is killed, stopped, or runs another plan, when
the ranks are too few, or the disk is slow, over MPI and over links of our own: every rank is gone
within the timeout and 5 s, one message names the rank, the op and the last step, and no file is
half-written. Started by mpirun, ranks run without MPI's library too; a stranger on the port that
they meet at holds up none.

  ranks_faults.py STEPC FIXTURE SEQ WORK_DIR
"""

import glob
import os
import re
import signal
import socket
import subprocess
import sys
import time

import check
import ranks

TIMEOUT_S, RANKS = 3, 3


class Job:
    """Ranks that train without end, saving after every step where asked to."""

    def __init__(self, exe, transport, work, saves=True):
        self.log, self.save, self.out = (
            work + "/fault.jsonl",
            work + "/fault.save",
            open(work + "/fault.out", "w+"),
        )
        for path in [self.log]:
            if os.path.exists(path):
                os.remove(path)
        self.exe, self.transport = exe, transport
        words = [exe, "--steps", "1000000", "--log", self.log]
        words += ["--save", self.save] if saves else []
        if transport == "mpi":
            self.started = [self.start([*ranks.MPIRUN, str(RANKS), *words], None)]
        else:
            port = ranks.free_port()
            self.started = [
                self.start(
                    words,
                    dict(
                        os.environ,
                        WORLD_SIZE=str(RANKS),
                        RANK=str(r),
                        LOCAL_RANK=str(r),
                        LOCAL_WORLD_SIZE=str(RANKS),
                        MASTER_ADDR="127.0.0.1",
                        MASTER_PORT=port,
                    ),
                )
                for r in range(RANKS)
            ]

    def start(self, words, env):
        return subprocess.Popen(words, env=env, stdout=self.out, stderr=self.out)

    def steps(self):
        return len(check.read_log(self.log)) if os.path.exists(self.log) else 0

    def wait_for_steps(self, n):
        until = time.time() + 60
        while self.steps() < n:
            if time.time() > until or all(p.poll() is not None for p in self.started):
                check.fail("no step %d: %s" % (n, self.text()))
            time.sleep(0.05)

    def pid_of(self, rank):
        if self.transport == "tcp":
            return self.started[rank].pid
        for path in glob.glob("/proc/[0-9]*/environ"):
            try:
                words = open(os.path.dirname(path) + "/cmdline").read().split("\0")
                if (
                    words[0].startswith(self.exe)
                    and "OMPI_COMM_WORLD_RANK=%d\0" % rank in open(path).read() + "\0"
                ):
                    return int(path.split("/")[2])
            except OSError:
                pass
        check.fail("rank %d is not there" % rank)

    def text(self):
        self.out.flush()
        return open(self.out.name).read()

    def ends(self, but=None):
        """All are gone in time; returns the exit statuses and what they said."""
        until = time.time() + TIMEOUT_S + 5
        left = [p for i, p in enumerate(self.started) if i != but]
        statuses = []
        for p in left:
            try:
                statuses.append(p.wait(timeout=max(0.1, until - time.time())))
            except subprocess.TimeoutExpired:
                check.fail("still there after %d s: %s" % (TIMEOUT_S + 5, self.text()))
        return statuses, self.text()


def whole(job):
    """What was saved is a whole checkpoint, and nothing else is there."""
    if os.path.exists(job.save):
        check.read(job.save + "/model.safetensors")
        check.read(job.save + "/state/optimizer.safetensors")


def demand(what, pattern, text):
    """Errors have the pattern; each is shown once, from its `error:` on."""
    if not re.search(pattern, text):
        check.fail("%s: no `%s` in: %s" % (what, pattern, text[-1500:]))
    for line in sorted(set(re.findall("error: .*", text))):
        print(what + ": " + line)


LAST = "; the last step done is [0-9]+"


def kill(exe, transport, work):
    job = Job(exe, transport, work)
    job.wait_for_steps(2)
    os.kill(job.pid_of(1), signal.SIGKILL)
    statuses, text = job.ends(but=1 if transport == "tcp" else None)
    if not all(statuses):
        check.fail("killed over %s: exit %s" % (transport, statuses))
    if transport == "tcp":
        demand("killed", "rank 1 has gone" + LAST, text)
        job.started[1].wait()
    whole(job)
    print("ok killed over " + transport)


def kill_in_step(exe, work):
    """Most of the time is spent in steps, and then the message names the op."""
    for _ in range(8):
        job = Job(exe, "tcp", work, saves=False)
        job.wait_for_steps(2)
        os.kill(job.pid_of(1), signal.SIGKILL)
        _, text = job.ends(but=1)
        job.started[1].wait()
        found = re.search("error: step .*: rank 1 has gone" + LAST, text)
        if found:
            print("killed in a step: " + found.group(0))
            return
    check.fail("killed in a step: no op is named: " + text)


def stop(exe, transport, work):
    job = Job(exe, transport, work)
    job.wait_for_steps(2)
    pid = job.pid_of(1)
    os.kill(pid, signal.SIGSTOP)
    try:
        statuses, text = job.ends(but=1 if transport == "tcp" else None)
    finally:
        if transport == "tcp":
            os.kill(pid, signal.SIGKILL)
            job.started[1].wait()
    if not all(statuses):
        check.fail("stopped over %s: exit %s" % (transport, statuses))
    waited = r"rank 1 has not answered for %d(\.\d+)? s" % TIMEOUT_S  # more while it saves
    demand("stopped", "error: .*: " + waited + LAST, text)
    whole(job)
    print("ok stopped over " + transport)


def differ(exe, other, transport, work):
    if transport == "mpi":
        done = subprocess.run(
            [*ranks.MPIRUN, "2", exe, "--steps", "1", ":", "-n", "1", other, "--steps", "1"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        status, text = done.returncode, done.stdout + done.stderr
    else:
        base = dict(
            os.environ,
            WORLD_SIZE=str(RANKS),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=ranks.free_port(),
        )
        started = [
            subprocess.Popen(
                [other if r == 2 else exe, "--steps", "1"],
                env=dict(base, RANK=str(r)),
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            for r in range(RANKS)
        ]
        text = "".join(p.communicate(timeout=60)[0] for p in started)
        status = min(p.returncode for p in started)
    demand("another plan", r"error: rank 2 runs another plan than rank 0", text)
    if not status or len(re.findall("error:", text)) != 1 or "step 1 |" in text:
        check.fail("another plan over %s: exit %d: %s" % (transport, status, text))
    print("ok another plan over " + transport)


def stranger(exe):
    """Somebody else on the port, who says nothing, before the ranks that are waited for."""
    port = ranks.free_port()
    base = dict(os.environ, WORLD_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)

    def start(rank):
        return subprocess.Popen(
            [exe, "--steps", "1"],
            env=dict(base, RANK=str(rank)),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    started, guest = [start(0)], None
    while not guest:
        if started[0].poll() is not None:
            check.fail("a stranger on the port: %s" % started[0].communicate()[0])
        try:
            guest = socket.create_connection(("127.0.0.1", int(port)))
        except OSError:
            time.sleep(0.02)
    started += [start(r) for r in range(1, RANKS)]
    text = "".join(p.communicate(timeout=60)[0] for p in started)
    guest.close()
    if any(p.returncode for p in started) or "step 1 |" not in text:
        check.fail("a stranger on the port: %s" % text)
    print("ok a stranger")


def slow_save(stepc, sets, work):
    """Rank 0's disk takes longer than ranks wait for each other in a step."""
    sets = [*sets, "model.text_config.vocab_size=65536", "model._target_=X.from_config"]
    exe, counter = work + "/large.step", os.path.dirname(stepc) + "/tests/libslow_fsync.so"
    build(stepc, sets, exe)
    words = [*ranks.MPIRUN, str(RANKS), exe, "--steps", "1", "--save", work + "/large.save"]
    env = dict(os.environ, LD_PRELOAD=counter, SLOW_FSYNC=str(TIMEOUT_S + 1))
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, env=env)
    ranks.finish(words, done)
    demand("slow save", r"saved \| step 1", done.stdout)
    print("ok a slow save")


def apart(exe):
    """Ranks that were started with different options train nothing."""
    words = [exe, "--steps", "1", "--seed"]
    done = subprocess.run(
        [*ranks.MPIRUN, "1", *words, "1", ":", "-n", str(RANKS - 1), *words, "2"],
        capture_output=True,
        text=True,
    )
    text = done.stdout + done.stderr
    demand("apart", "error: rank 1 has another seed than rank 0: 2, not 1;", text)
    if not done.returncode or "step 1 |" in text:
        check.fail("apart: exit %d: %s" % (done.returncode, text))


def build(stepc, sets, exe):
    words = [w for s in sets for w in ("--set", s)]
    ranks.run([stepc, "build", ranks.RECIPE, *words, "--world", str(RANKS), "-o", exe])


def without_library(exe, work):
    """Started by mpirun where MPI's library is not: over links of our own, with the same bits."""
    folder, logs = work + "/libraries", [work + "/library%d.jsonl" % i for i in range(2)]
    os.makedirs(folder, exist_ok=True)
    with open(folder + "/libmpi.so.40", "w") as file:
        file.write("no library")
    more = {"LD_LIBRARY_PATH": folder, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": ranks.free_port()}
    for log, env in zip(logs, ({}, more)):
        if os.path.exists(log):
            os.remove(log)
        words = [*ranks.MPIRUN, str(RANKS), exe, "--steps", "2", "--log", log]
        done = subprocess.run(words, capture_output=True, text=True, env=dict(os.environ, **env))
        ranks.finish(words, done)
    demand("without the library", r"over TCP", done.stdout)
    check.same(logs)


def main(stepc, folder, seq, work):
    os.makedirs(work, exist_ok=True)
    exes = []
    for seed in ("1", "2"):
        exe = "%s/%s.step" % (work, seed)
        sets = [
            "model.pretrained_model_name_or_path=" + folder,
            "dataset.seq_length=" + seq,
            "seed=" + seed,
            "step_scheduler.global_batch_size=%d" % RANKS,
            "step_scheduler.local_batch_size=1",
            "step_scheduler.ckpt_every_steps=1",
            "dist_env.timeout_minutes=%g" % (TIMEOUT_S / 60),
        ]
        build(stepc, sets, exe)
        exes.append(exe)
    kill_in_step(exes[0], work)
    for transport in ("mpi", "tcp"):
        kill(exes[0], transport, work)
        stop(exes[0], transport, work)
        differ(exes[0], exes[1], transport, work)
    apart(exes[0])
    slow_save(stepc, sets, work)
    stranger(exes[0])
    without_library(exes[0], work)
    done = subprocess.run([*ranks.MPIRUN, "2", exes[0]], capture_output=True, text=True)
    demand(
        "too few",
        r"error: started as 2 ranks, and this executable is for 3",
        done.stdout + done.stderr,
    )
    done = subprocess.run([exes[0]], capture_output=True, text=True)
    demand("alone", r"error: this executable is for 3 ranks", done.stderr)
    if done.returncode != 1:
        check.fail("alone: exit %d" % done.returncode)
    print("ok too few")


if __name__ == "__main__":
    main(*sys.argv[1:])
