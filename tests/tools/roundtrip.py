#!/usr/bin/env python3
"""roundtrip: what `--dump-after=all` prints, `stepc opt` reads and prints again, the same bytes.

roundtrip.py STEPC RECIPE FOLDER CONFIG...
    each published config, under every recompute policy; texts that were seen before are left out
roundtrip.py ranks STEPC RECIPE FOLDER CONFIG RANKS:KEY=VALUE,...
    one config on meshes; and the passes from `partition` on, run on the dump in front of them,
    give the plan that they gave before
"""

import re
import subprocess
import sys

POLICIES = {
    "none": [],
    "block": ["step_scheduler.global_batch_size=2"],
    "submodule": ["model.torch_dtype=float32"],
    "selective": ["stepc.precision.compute=f32"],
}


def dumps(stepc, recipe, options):
    """Pass and text of every dump of one plan."""
    command = [stepc, "plan", recipe, "--dump-after=all", "--json", *options]
    out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    out = out[: out.index("\n{\n") + 1]  # the report follows
    parts = re.split(r"^# after (\S+)\n", out, flags=re.M)
    return list(zip(parts[1::2], parts[2::2]))


def options_of(sets):
    return [w for s in sets for w in ("--set", s)]


class Folder:
    """Texts that were read back."""

    def __init__(self, stepc, path):
        self.stepc, self.path, self.seen = stepc, path, set()

    def opt(self, what, name, text, *options):
        path = "%s/%s.sir" % (self.path, name)
        with open(path, "w") as file:
            file.write(text)
        done = subprocess.run(
            [self.stepc, "opt", path, *options], stdout=subprocess.PIPE, text=True
        )
        if done.returncode:
            sys.exit("FAIL %s, after %s: %s" % (what, name, path))
        return done.stdout

    def take(self, what, found):
        if len(found) < 13:
            sys.exit("FAIL %s: only %d dumps" % (what, len(found)))
        for name, text in found:
            if hash(text) in self.seen:
                continue
            self.seen.add(hash(text))
            if self.opt(what, name, text) != text:
                sys.exit("FAIL %s, after %s: another text" % (what, name))


def one_rank(stepc, recipe, folder, *configs):
    texts = Folder(stepc, folder)
    for config in configs:
        for policy, more in POLICIES.items():
            sets = ["model.pretrained_model_name_or_path=" + config]
            sets += ["stepc.recompute.policy=" + policy, *more]
            texts.take(config + ", " + policy, dumps(stepc, recipe, options_of(sets)))
    print("ok %d texts" % len(texts.seen))


def ranks(stepc, recipe, folder, config, *meshes):
    texts = Folder(stepc, folder)
    for mesh in meshes:
        world, _, keys = mesh.partition(":")
        sets = ["model.pretrained_model_name_or_path=" + config, "stepc.world_size=" + world]
        options = options_of(sets + keys.split(","))
        found = dumps(stepc, recipe, options)
        texts.take(mesh, found)
        by_name = dict(found)
        passes = ["--passes=partition..memplan", "--recipe", recipe, *options]
        if texts.opt(mesh, "again", by_name["localize"], *passes) != by_name["memplan"]:
            sys.exit("FAIL %s: another plan from the dump" % mesh)
        print("ok " + mesh)


if __name__ == "__main__":
    if sys.argv[1] == "ranks":
        ranks(*sys.argv[2:])
    else:
        one_rank(*sys.argv[1:])
